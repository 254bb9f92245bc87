#include "base/log.hpp"

#include <atomic>

namespace fencegate::log {
namespace {

std::atomic<sink> current_sink{nullptr};
std::atomic<level> least_level{level::info};

}  // namespace

void set_sink(sink s, level least) {
  least_level.store(least, std::memory_order_relaxed);
  current_sink.store(s, std::memory_order_release);
}

bool enabled(level l) {
  return l >= least_level.load(std::memory_order_relaxed) && current_sink.load(std::memory_order_relaxed) != nullptr;
}

void write(level l, std::string_view message, std::initializer_list<field> fields) {
  write(l, message, fields.begin(), fields.size());
}

void write(level l, std::string_view message, const field* fields, std::size_t count) {
  if (l < least_level.load(std::memory_order_relaxed)) return;
  // Read once: the sink may be replaced while we are here.
  const sink s = current_sink.load(std::memory_order_acquire);
  if (s != nullptr) s(l, message, fields, count);
}

}  // namespace fencegate::log
