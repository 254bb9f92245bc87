// How `fencegate lease show` looks.
#include "cli/config_values.hpp"
#include "cli/lease.hpp"
#include "cli/text_table.hpp"

#include <algorithm>
#include <optional>
#include <ostream>

namespace fencegate::cli {
namespace {

std::string text_of(const std::optional<fence::token>& mark) { return mark ? mark->to_string() : "-"; }

void print(const std::vector<lease::lease_entry>& all, std::ostream& out) {
  text_table rows{{"RESOURCE", "TOKEN", "MARK", "LEFT", "SINCE", "HOLDER"}};
  for (const auto& one : all)
    rows.push_back({one.resource, one.granted.to_string(), text_of(one.mark),
                    one.frozen             ? "frozen"
                    : one.left.count() > 0 ? write_duration(one.left)
                                           : "free",
                    one.since, one.holder});
  print_table(rows, out);
}

void print_waiters(const std::vector<lease::lease_entry>& all, std::ostream& out) {
  text_table rows{{"RESOURCE", "WAITS SINCE", "WAITER"}};
  for (const auto& one : all)
    for (const auto& waiter : one.waiters) rows.push_back({one.resource, waiter.since, waiter.holder});
  if (rows.size() == 1) return;
  out << '\n';
  print_table(rows, out);
}

void print(const std::vector<lease::place_entry>& all, std::ostream& out) {
  text_table rows{{"PLACE", "MARK", "ISSUER"}};
  for (const auto& one : all)
    rows.push_back({one.name, text_of(one.mark),
                    !one.problem.empty() ? one.problem
                    : one.issuer.empty() ? "-"
                                         : one.issuer});
  out << '\n';
  print_table(rows, out);
}

// Whether it is another's by now, or free, or frozen, or others wait.
bool differ(const lease::lease_entry& a, const lease::lease_entry& b) {
  const auto is_same = [](const auto& x, const auto& y) { return x.holder == y.holder && x.since == y.since; };
  return a.resource != b.resource || a.granted != b.granted || a.mark != b.mark || a.frozen != b.frozen ||
         (a.left.count() > 0) != (b.left.count() > 0) ||
         !std::equal(a.waiters.begin(), a.waiters.end(), b.waiters.begin(), b.waiters.end(), is_same);
}

}  // namespace

void print_leases(const lease::operation_result& shown, std::ostream& out) {
  print(shown.leases, out);
  print_waiters(shown.leases, out);
  if (!shown.places.empty()) print(shown.places, out);
}

bool differ(const std::vector<lease::lease_entry>& a, const std::vector<lease::lease_entry>& b) {
  return !std::equal(a.begin(), a.end(), b.begin(), b.end(),
                     [](const auto& x, const auto& y) { return !differ(x, y); });
}

}  // namespace fencegate::cli
