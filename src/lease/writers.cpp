#include "lease/writers.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::lease {

void writers::add(std::shared_ptr<writer_lease> one, std::vector<named_gate> gates) {
  all_.push_back({std::move(one), std::move(gates)});
}

void writers::start() {
  for (const auto& one : all_) one.lease->start();
}

void writers::drain() {
  for (const auto& one : all_) one.lease->drain();
}

void writers::release(const std::function<void()>& done) {
  if (all_.empty()) return done();
  const auto left = std::make_shared<std::size_t>(all_.size());
  for (const auto& one : all_)
    one.lease->release([left, done] {
      if (--*left == 0) done();
    });
}

writer_lease* writers::named(std::string_view writer) const {
  const auto at = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one.lease->name() == writer; });
  return at == all_.end() ? nullptr : at->lease.get();
}

writer_lease* writers::behind(std::string_view gate) const {
  for (const auto& one : all_)
    for (const auto& known : one.gates)
      if (known.name == gate) return one.lease.get();
  return nullptr;
}

void writers::superseded(std::string_view gate, const fence::claim& presented) {
  if (auto* lease = behind(gate)) lease->superseded(presented);
}

std::vector<writer_view> writers::views() const {
  std::vector<writer_view> out;
  for (const auto& one : all_) out.push_back(one.lease->view());
  return out;
}

std::optional<writer_view> writers::of_gate(std::string_view gate) const {
  const auto* lease = behind(gate);
  return lease == nullptr ? std::nullopt : std::optional(lease->view());
}

std::optional<writer_view> writers::heard(std::string_view writer) {
  auto* lease = named(writer);
  if (lease == nullptr) return std::nullopt;
  lease->heard();
  return lease->view();
}

std::optional<writer_view> writers::heard_of_gate(std::string_view gate) {
  auto* lease = behind(gate);
  if (lease == nullptr) return std::nullopt;
  lease->heard();
  return lease->view();
}

std::optional<writer::report> writers::started(std::string_view writer, std::string_view container,
                                               boot_clock::time_point start) {
  auto* lease = named(writer);
  return lease == nullptr ? std::nullopt : std::optional(lease->started(container, start));
}

std::string writers::holder_of(const std::string& resource) const {
  for (const auto& one : all_)
    for (const auto& known : one.gates)
      if (std::find(known.resources.begin(), known.resources.end(), resource) != known.resources.end())
        return known.name;
  return {};
}

}  // namespace fencegate::lease
