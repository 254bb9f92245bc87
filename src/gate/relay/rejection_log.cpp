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

rejection_log::told told_of(std::string_view gate, const fence::rejection& why, std::string_view client,
                            std::string_view command, rejection_log::clock::time_point now) {
  rejection_log::told out;
  out.gate = gate;
  out.why.why = why.why;
  out.why.resource = fence::printable(why.resource, limits::resource_bytes_max);
  out.why.presented = why.presented;
  out.why.mark = why.mark;
  out.why.detail = fence::printable(why.detail, detail_bytes_max);
  out.client = fence::printable(client, client_bytes_max);
  out.command = fence::printable(command, rejection_log::command_bytes_max);
  out.at = now;
  return out;
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

void rejection_log::report_cut(std::string_view gate, const fence::rejection& why, std::string_view client_address,
                               clock::time_point now) const {
  tell_of_stale(gate, why);
  if (all_) all_(told_of(gate, why, client_address, "session", now));
}

void rejection_log::report(std::string_view gate, const fence::rejection& why, std::string_view client_address,
                           std::string_view command, clock::time_point now, bool monitor, std::string_view trace) {
  tell_of_stale(gate, why);
  if (!all_ && !log::enabled(log::level::warn)) return;

  told latest = told_of(gate, why, client_address, command, now);
  latest.trace = fence::printable(trace, trace_bytes_max);
  latest.monitor = monitor;
  auto key = key_of(gate, why, latest.why.resource, latest.client, monitor);

  due out;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = by_key_.find(key); found != by_key_.end()) {
      kind& known = *found->second;
      const bool another_token = known.latest.why.presented != latest.why.presented;
      if (another_token) tell(known, now, out);
      known.latest = std::move(latest);
      ++known.repeated;
      ++known.untold;
      if (another_token || now - known.told_at >= tell_interval) tell(known, now, out);
      take_due(now, out);
    } else {
      take_due(now, out);
      if (by_age_.size() == kinds_max) forget_oldest(now, out);
      show({latest}, now, out);
      kind& made = by_age_.emplace_back();
      made.key = std::move(key);
      made.latest = std::move(latest);
      made.written = now;
      made.untold = 1;
      by_key_.emplace(made.key, std::prev(by_age_.end()));
      tell(made, now, out);
    }
  }
  do_outside(out);
}

void rejection_log::write_due(clock::time_point now) {
  due out;
  {
    const std::lock_guard lock(mutex_);
    for (kind& one : by_age_)
      if (now - one.told_at >= tell_interval) tell(one, now, out);
    take_due(now, out);
  }
  do_outside(out);
}

void rejection_log::flush(clock::time_point now) {
  due out;
  {
    const std::lock_guard lock(mutex_);
    auto next = by_age_.begin();
    for (auto left = by_age_.size(); left > 0; --left) {
      const auto here = next++;  // take_count moves it to the end
      tell(*here, now, out);
      if (here->repeated > 0) take_count(here, now, out);
    }
    take_suppressed(out);
  }
  do_outside(out);
}

void rejection_log::tell(kind& one, clock::time_point now, due& out) const {
  const auto count = std::exchange(one.untold, 0);
  if (count == 0 || !all_) return;
  one.told_at = now;
  out.tellings.push_back(one.latest);
  out.tellings.back().count = count;
}

void rejection_log::do_outside(const due& out) const {
  for (const told& one : out.tellings) all_(one);
  for (const line& one : out.lines) write(one);
}

void rejection_log::take_due(clock::time_point now, due& out) {
  turn_second(now, out);
  while (!by_age_.empty() && now - by_age_.front().written >= line_interval) {
    if (by_age_.front().repeated > 0) {
      take_count(by_age_.begin(), now, out);
    } else {
      forget_oldest(now, out);
    }
  }
}

void rejection_log::show(line one, clock::time_point now, due& out) {
  turn_second(now, out);
  if (shown_this_second_ == lines_per_second_max) {
    suppressed_ += std::max<std::uint64_t>(1, one.repeated);
    return;
  }
  ++shown_this_second_;
  out.lines.push_back(std::move(one));
}

void rejection_log::turn_second(clock::time_point now, due& out) {
  if (now - second_began_ < std::chrono::seconds(1)) return;
  second_began_ = now;
  shown_this_second_ = 0;
  take_suppressed(out);
}

void rejection_log::take_suppressed(due& out) {
  if (suppressed_ == 0) return;
  line sum;
  sum.repeated = std::exchange(suppressed_, 0);
  sum.of_many_kinds = true;
  out.lines.push_back(std::move(sum));
}

void rejection_log::take_count(kinds::iterator of, clock::time_point now, due& out) {
  show({of->latest, std::exchange(of->repeated, 0)}, now, out);
  of->written = now;
  by_age_.splice(by_age_.end(), by_age_, of);
}

void rejection_log::forget_oldest(clock::time_point now, due& out) {
  kind& oldest = by_age_.front();
  tell(oldest, now, out);
  if (oldest.repeated > 0) show({std::move(oldest.latest), oldest.repeated}, now, out);
  by_key_.erase(oldest.key);
  by_age_.pop_front();
}

void rejection_log::write(const line& l) {
  if (l.of_many_kinds)
    return log::write(log::level::warn, "more rejections than the log takes; see checks_total",
                      {{"repeated", static_cast<std::int64_t>(l.repeated)}});
  const told& one = l.latest;
  log::event event;
  event.add("gate", one.gate).add("reason", fence::terms_of(one.why.why).name).add("resource", one.why.resource);
  event.add("token", one.why.presented).add("mark", one.why.mark).add("client", one.client).add("command", one.command);
  event.add("detail", one.why.detail).add("traceparent", one.trace);
  if (l.repeated > 0) event.add("repeated", static_cast<std::int64_t>(l.repeated));
  event.write(log::level::warn, one.monitor ? "write would be rejected" : "write rejected");
}

}  // namespace fencegate::gate
