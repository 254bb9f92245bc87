#include "gate/relay/rejection_log.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"
#include "fence/printable.hpp"

#include <algorithm>
#include <array>

namespace fencegate::gate {

namespace {

constexpr std::size_t client_bytes_max = 128;
constexpr std::size_t detail_bytes_max = 512;
constexpr std::size_t trace_bytes_max = 128;

// The address without its port: a writer that connects anew for each write is one client, not many.
std::string_view host_of(std::string_view address) {
  const auto colon = address.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == address.size()) return address;
  const auto host = address.substr(0, colon);
  const auto port = address.substr(colon + 1);
  const bool numeric = std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  // "::1" is an address alone: a v6 address with a port stands in brackets.
  const bool bare_v6 = host.find(':') != std::string_view::npos && !host.ends_with(']');
  return numeric && !bare_v6 ? host : address;
}

// Parts are joined by a byte that none of them has: they are printable.
std::string key_of(std::string_view gate, const fence::rejection& why, std::string_view resource,
                   std::string_view client_address, bool monitor) {
  std::string key(gate);
  key += monitor ? "\nmonitor\n" : "\nenforce\n";
  key += fence::terms_of(why.why).name;
  key += '\n';
  key += resource;
  key += '\n';
  key += host_of(client_address);
  return key;
}

}  // namespace

metrics::check_outcome outcome_of(fence::reason why) {
  using enum fence::reason;
  switch (why) {
    case stale: return metrics::check_outcome::stale;
    case missing: return metrics::check_outcome::missing;
    case malformed: return metrics::check_outcome::malformed;
    case equal: return metrics::check_outcome::equal;
    case jump: return metrics::check_outcome::jump;
    case unavailable: return metrics::check_outcome::unavailable;
    case refused: return metrics::check_outcome::refused;
  }
  return metrics::check_outcome::unavailable;
}

void rejection_log::report(std::string_view gate, const fence::rejection& why, std::string_view client_address,
                           std::string_view command, clock::time_point now, bool monitor, std::string_view trace) {
  tell_of_stale(gate, why);
  if (all_) all_(gate, why, client_address, command, monitor, trace);
  if (!log::enabled(log::level::warn)) return;

  line latest;
  latest.gate = gate;
  latest.why.why = why.why;
  latest.why.resource = fence::printable(why.resource, limits::resource_bytes_max);
  latest.why.presented = why.presented;
  latest.why.mark = why.mark;
  latest.why.detail = fence::printable(why.detail, detail_bytes_max);
  latest.client = fence::printable(client_address, client_bytes_max);
  latest.command = fence::printable(command, command_bytes_max);
  latest.trace = fence::printable(trace, trace_bytes_max);
  latest.monitor = monitor;
  auto key = key_of(gate, why, latest.why.resource, latest.client, monitor);

  std::vector<line> lines;
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = by_key_.find(key); known != by_key_.end()) {
      line& shown = known->second->latest;
      latest.repeated = shown.repeated + 1;
      shown = std::move(latest);
      take_due(now, lines);
    } else {
      take_due(now, lines);
      if (by_age_.size() == kinds_max) forget_oldest(now, lines);
      show(latest, now, lines);
      by_age_.push_back({std::move(key), std::move(latest), now});
      by_key_.emplace(by_age_.back().key, std::prev(by_age_.end()));
    }
  }
  for (const line& l : lines) write(l);
}

void rejection_log::write_due(clock::time_point now) {
  std::vector<line> lines;
  {
    const std::lock_guard lock(mutex_);
    take_due(now, lines);
  }
  for (const line& l : lines) write(l);
}

void rejection_log::flush(clock::time_point now) {
  std::vector<line> lines;
  {
    const std::lock_guard lock(mutex_);
    auto next = by_age_.begin();
    for (auto left = by_age_.size(); left > 0; --left) {
      const auto here = next++;  // take_count moves it to the end
      if (here->latest.repeated > 0) take_count(here, now, lines);
    }
    take_suppressed(lines);
  }
  for (const line& l : lines) write(l);
}

void rejection_log::take_due(clock::time_point now, std::vector<line>& lines) {
  turn_second(now, lines);
  while (!by_age_.empty() && now - by_age_.front().written >= line_interval) {
    if (by_age_.front().latest.repeated > 0) {
      take_count(by_age_.begin(), now, lines);
    } else {
      forget_oldest(now, lines);
    }
  }
}

void rejection_log::show(line one, clock::time_point now, std::vector<line>& lines) {
  turn_second(now, lines);
  if (shown_this_second_ == lines_per_second_max) {
    suppressed_ += std::max<std::uint64_t>(1, one.repeated);
    return;
  }
  ++shown_this_second_;
  lines.push_back(std::move(one));
}

void rejection_log::turn_second(clock::time_point now, std::vector<line>& lines) {
  if (now - second_began_ < std::chrono::seconds(1)) return;
  second_began_ = now;
  shown_this_second_ = 0;
  take_suppressed(lines);
}

void rejection_log::take_suppressed(std::vector<line>& lines) {
  if (suppressed_ == 0) return;
  line sum;
  sum.repeated = std::exchange(suppressed_, 0);
  sum.of_many_kinds = true;
  lines.push_back(std::move(sum));
}

void rejection_log::take_count(kinds::iterator of, clock::time_point now, std::vector<line>& lines) {
  show(of->latest, now, lines);
  of->latest.repeated = 0;
  of->written = now;
  by_age_.splice(by_age_.end(), by_age_, of);
}

void rejection_log::forget_oldest(clock::time_point now, std::vector<line>& lines) {
  kind& oldest = by_age_.front();
  if (oldest.latest.repeated > 0) show(std::move(oldest.latest), now, lines);
  by_key_.erase(oldest.key);
  by_age_.pop_front();
}

void rejection_log::write(const line& l) {
  if (l.of_many_kinds)
    return log::write(log::level::warn, "more rejections than the log takes; see checks_total",
                      {{"repeated", static_cast<std::int64_t>(l.repeated)}});
  log::event event;
  event.add("gate", l.gate).add("reason", fence::terms_of(l.why.why).name).add("resource", l.why.resource);
  event.add("token", l.why.presented).add("mark", l.why.mark).add("client", l.client).add("command", l.command);
  event.add("detail", l.why.detail).add("traceparent", l.trace);
  if (l.repeated > 0) event.add("repeated", static_cast<std::int64_t>(l.repeated));
  event.write(log::level::warn, l.monitor ? "write would be rejected" : "write rejected");
}

}  // namespace fencegate::gate
