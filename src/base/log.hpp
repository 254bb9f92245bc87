// Structured logging as the rest of the code sees it: one event, a few fields. Where lines go and how they look is
// decided by the sink that the process edge installs (admin/log_sink.hpp); without one, nothing is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <variant>

namespace fencegate::log {

enum class level : std::uint8_t { debug, info, warn, error };

struct field {
  std::string_view key;
  std::variant<std::string_view, std::int64_t> value;
};

// Must be callable from any thread.
using sink = void (*)(level, std::string_view message, const field* fields, std::size_t count);

void set_sink(sink s, level least);
[[nodiscard]] bool enabled(level l);

// `message` is a short fixed text ("write rejected"); what varies goes into fields. Never pass values or passwords.
void write(level l, std::string_view message, std::initializer_list<field> fields = {});
// The same, for fields that are only known at run time.
void write(level l, std::string_view message, const field* fields, std::size_t count);

}  // namespace fencegate::log
