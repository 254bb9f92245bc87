// `fencegate lease show`.
#include "base/json_text.hpp"
#include "cli/asked.hpp"
#include "cli/commands.hpp"
#include "cli/config_leases.hpp"
#include "cli/config_values.hpp"
#include "cli/lease.hpp"
#include "cli/lease_places.hpp"

#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <thread>
#include <utility>
#include <vector>

namespace fencegate::cli {
namespace {

using entries = std::vector<lease::lease_entry>;
using table = std::vector<std::vector<std::string>>;

// What a place knows of a resource.
struct place_entry {
  std::string name;
  std::optional<fence::token> mark{};
  std::string issuer{};   // "" = no lease was sealed there
  std::string problem{};  // it cannot be asked
};

void print(const table& rows, std::ostream& out) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      out << row[i] << (i + 1 == row.size() ? "\n" : std::string(widths[i] - row[i].size() + 2, ' '));
}

std::string text_of(const std::optional<fence::token>& mark) { return mark ? mark->to_string() : "-"; }

void print(const entries& all, std::ostream& out) {
  table rows{{"RESOURCE", "TOKEN", "MARK", "LEFT", "SINCE", "HOLDER"}};
  for (const auto& one : all)
    rows.push_back({one.resource, one.granted.to_string(), text_of(one.mark),
                    one.frozen             ? "frozen"
                    : one.left.count() > 0 ? write_duration(one.left)
                                           : "free",
                    one.since, one.holder});
  print(rows, out);
}

void print(const std::vector<place_entry>& all, std::ostream& out) {
  table rows{{"PLACE", "MARK", "ISSUER"}};
  for (const auto& one : all)
    rows.push_back({one.name, text_of(one.mark),
                    !one.problem.empty() ? one.problem
                    : one.issuer.empty() ? "-"
                                         : one.issuer});
  out << '\n';
  print(rows, out);
}

std::string json_of(const place_entry& one) {
  std::string out;
  json_object json(out);
  json.add("place", one.name);
  if (one.mark) json.add("mark", one.mark->value());
  if (!one.issuer.empty()) json.add("issuer", one.issuer);
  if (!one.problem.empty()) json.add("problem", one.problem);
  json.end();
  return out;
}

std::string json_of(const lease::lease_entry& one, const std::vector<place_entry>& places) {
  std::string out;
  json_object json(out);
  json.add("resource", one.resource);
  json.add("token", one.granted.value());
  if (one.mark) json.add("mark", one.mark->value());
  json.add("holder", one.holder);
  json.add("since", one.since);
  json.add("left_ms", one.left.count());
  json.name("frozen");
  out += one.frozen ? "true" : "false";
  if (!places.empty()) {
    json.name("places");
    for (std::size_t i = 0; i < places.size(); ++i) out += (i == 0 ? "[" : ",") + json_of(places[i]);
    out += ']';
  }
  json.end();
  return out;
}

class looker {
 public:
  looker(const settings::process& config, const lease_plan& plan)
      : issuer_(make_issuer(io_, config, plan, timing_of(config.leased, config.leased.ttl))),
        places_(make_places(io_, config, plan)) {}

  // `resource`: "" = all.
  result<entries> leases(const std::string& resource) {
    auto all = asked(io_, result<entries>(error{"there was no answer"}), [&](auto done) { issuer_->list(done); });
    if (all) std::erase_if(*all, [&](const auto& one) { return !resource.empty() && one.resource != resource; });
    return all;
  }

  std::vector<place_entry> places(const std::string& resource) {
    std::vector<place_entry> out;
    for (const auto& place : places_) {
      using marks = std::vector<backend::looked_mark>;
      place_entry one{place->name()};
      const auto found =
          asked(io_, result<marks>(error{"there was no answer"}), [&](auto done) { place->look({resource}, done); });
      const auto owner = asked(io_, result<std::string>(error{"there was no answer"}),
                               [&](auto done) { place->issuer_of(resource, done); });
      if (found && !found->empty()) one.mark = found->front().mark;
      if (owner) one.issuer = *owner;
      if (!found || !owner) one.problem = !found ? found.error().message : owner.error().message;
      out.push_back(std::move(one));
    }
    return out;
  }

 private:
  boost::asio::io_context io_{1};
  const std::shared_ptr<lease::issuer> issuer_;
  const std::vector<std::shared_ptr<lease::seal_place>> places_;
};

// Whether it is another's by now, or free, or frozen.
bool differ(const lease::lease_entry& a, const lease::lease_entry& b) {
  return a.resource != b.resource || a.granted != b.granted || a.mark != b.mark || a.frozen != b.frozen ||
         (a.left.count() > 0) != (b.left.count() > 0);
}

}  // namespace

int show_leases(const settings::process& config, const lease_question& about, std::ostream& out, std::ostream& err) {
  const auto plan = plan_lease(config, {about.resource.empty() ? "any" : about.resource}, about.issuer);
  if (!plan) {
    err << "fencegate lease: " << plan.error().message << '\n';
    return exit_failed;
  }
  looker look(config, *plan);
  entries before;
  for (bool first = true;; first = false) {
    const auto all = look.leases(about.resource);
    if (!all) {
      err << "fencegate lease: " << all.error().message << '\n';
      return exit_failed;
    }
    if (first || !std::equal(all->begin(), all->end(), before.begin(), before.end(), std::not_fn(differ))) {
      std::vector<place_entry> places;
      if (!about.resource.empty()) places = look.places(about.resource);
      if (about.json) {
        out << '[';
        for (std::size_t i = 0; i < all->size(); ++i) out << (i == 0 ? "\n" : ",\n") << json_of((*all)[i], places);
        out << "\n]\n";
      } else {
        print(*all, out);
        if (!places.empty()) print(places, out);
        if (about.watch) out << '\n';
      }
      out.flush();
    }
    if (!about.watch || !out) return exit_ok;
    before = *all;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace fencegate::cli
