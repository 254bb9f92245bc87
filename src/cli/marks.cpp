#include "cli/marks.hpp"

#include "backend/mark_raising.hpp"
#include "base/json_text.hpp"
#include "base/utf8.hpp"
#include "cli/commands.hpp"
#include "cli/config_leases.hpp"
#include "cli/lease_places.hpp"
#include "cli/mark_places.hpp"
#include "cli/operation_run.hpp"
#include "cli/text_table.hpp"
#include "fence/printable.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

namespace fencegate::cli {
namespace {

using lease::lease_entry;
using lease::listed_mark;
using verb = marks_question::verb;
using places = std::vector<std::shared_ptr<lease::seal_place>>;

constexpr std::size_t reason_bytes_max = 200;

int complain(std::ostream& err, const std::string& why, int code = exit_failed) {
  err << "fencegate marks: " << why << '\n';
  return code;
}

// ── where ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

result<std::vector<std::string>> places_of_gate(const settings::process& config, const std::string& gate) {
  std::vector<std::string> out;
  if (named(config.redis_gates, gate) != nullptr || named(config.postgres_gates, gate) != nullptr)
    return {boost::system::in_place_value, std::vector{"gate:" + gate}};
  const auto* http = named(config.http_gates, gate);
  if (http == nullptr) return error{"there is no gate named " + gate};
  for (const auto& one : http->stores) out.push_back("store:" + one.name);
  return {boost::system::in_place_value, std::move(out)};
}

result<std::vector<std::string>> places_asked(const settings::process& config, const marks_question& asked) {
  if (!asked.store.empty()) {
    if (named(config.stores, asked.store) == nullptr) return error{"there is no store named " + asked.store};
    return {boost::system::in_place_value, std::vector{"store:" + asked.store}};
  }
  if (!asked.gate.empty()) return places_of_gate(config, asked.gate);
  return {boost::system::in_place_value, all_places(config)};
}

bool changes(verb what) { return what == verb::raise || what == verb::lower || what == verb::bump; }

// ── who raised what ─────────────────────────────────────────────────────────────────────────────────────────────────────

constexpr std::string_view broken_mark_hint = "; marks raise --force, or marks lower --force, replaces it";

struct shown_mark {
  std::string place, resource;
  std::optional<fence::token> mark;  // nullopt: `problem` says why it cannot be read
  std::string raised_at,
      issuer;                 // "" = it is not known; the issuer's name where the configuration has one, else its id
  std::string holder, since;  // of the grant that raised it
  std::string problem{};
};

struct known_issuer {
  std::string name, id;
  std::vector<lease_entry> leases;
};

// Those that can be asked. Nobody is told of the others: what they know is not shown.
std::vector<known_issuer> ask_issuers(operation_run& run, const settings::process& config) {
  std::vector<known_issuer> out;
  for (const auto& one : config.leased.issuers) {
    lease_plan plan;
    plan.issuer = one;
    const auto issuer = make_issuer(run.io, config, plan, timing_of(config.leased, config.leased.ttl));
    const auto id = run.asked(lease::answer<std::string>(lease::unanswered(no_answer)),
                              [&](auto done) { issuer->identify(std::move(done)); });
    const auto leases =
        run.asked(result<std::vector<lease_entry>>(no_answer), [&](auto done) { issuer->list(std::move(done)); });
    if (id && leases) out.push_back({one.name, *id, *leases});
  }
  return out;
}

void add_holder(const std::vector<known_issuer>& issuers, shown_mark& to) {
  const auto by = std::find_if(issuers.begin(), issuers.end(), [&](const auto& one) { return one.id == to.issuer; });
  if (to.issuer.empty() || by == issuers.end()) return;
  to.issuer = by->name;
  for (const auto& one : by->leases)
    if (one.resource == to.resource && one.granted == to.mark) {
      to.holder = one.holder;
      to.since = one.since;
    }
}

// All of them, or that of `only` one, if there is any.
result<std::vector<listed_mark>> list_of(operation_run& run, lease::seal_place& at,
                                         const std::optional<std::string>& only = {}) {
  return run.asked(result<std::vector<listed_mark>>(no_answer),
                   [&](auto done) { at.list_marks(only, std::move(done)); });
}

// Without a mark: there is none.
result<backend::looked_mark> seen_of(operation_run& run, lease::seal_place& at, const std::string& resource) {
  const auto found = run.asked(lease::answer<std::vector<backend::looked_mark>>(lease::unanswered(no_answer)),
                               [&](auto done) { at.look({resource}, std::move(done)); });
  if (!found) return found.error();
  return found->empty() ? backend::looked_mark{resource, {}} : found->front();
}

void print_json(const std::vector<shown_mark>& all, std::ostream& out) {
  std::string text = "[";
  for (const auto& one : all) {
    text += text.size() == 1 ? "\n" : ",\n";
    json_object element(text);
    element.add("place", one.place);
    element.add("resource", one.resource);
    if (one.mark) element.add("mark", one.mark->value());
    for (const auto& [name, what] :
         {std::pair("raised_at", &one.raised_at), std::pair("issuer", &one.issuer), std::pair("holder", &one.holder),
          std::pair("since", &one.since), std::pair("problem", &one.problem)})
      if (!what->empty()) element.add(name, *what);
    element.end();
  }
  out << text << "\n]\n";
}

void print_marks(const std::vector<shown_mark>& all, std::ostream& out) {
  text_table rows{{"PLACE", "RESOURCE", "MARK", "RAISED", "ISSUER", "HOLDER"}};
  const auto known = [](const std::string& text) { return text.empty() ? "-" : text; };
  for (const auto& one : all)
    rows.push_back({one.place, one.resource, one.mark ? one.mark->to_string() : "?",
                    known(one.raised_at.empty() ? one.since : one.raised_at), known(one.issuer), known(one.holder)});
  print_table(rows, out);
}

int show(operation_run& run, const settings::process& config, const places& where, const marks_question& asked,
         std::ostream& out, std::ostream& err) {
  std::vector<shown_mark> shown;
  int status = exit_ok;
  const auto only = asked.what == verb::list ? std::nullopt : std::optional(asked.resources.front());
  for (const auto& place : where) {
    const auto found = list_of(run, *place, only);
    if (!found) status = complain(err, place->name() + ": " + found.error().message);
    if (found)
      for (const auto& one : *found) {
        shown.push_back({place->name(), one.resource, one.mark, one.raised_at, one.issuer, {}, {}, one.problem});
        if (one.problem.empty()) continue;
        shown.back().mark.reset();
        status = complain(
            err, place->name() + ": " + one.resource + ": the mark is " + one.problem + std::string(broken_mark_hint));
      }
  }
  if (std::any_of(shown.begin(), shown.end(), [](const auto& one) { return !one.issuer.empty(); })) {
    const auto issuers = ask_issuers(run, config);
    for (auto& one : shown) add_holder(issuers, one);
  }
  asked.json ? print_json(shown, out) : print_marks(shown, out);
  return status;
}

// ── raising ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

// "mia on host": whom a person can ask about it.
std::string operator_here() {
  std::string user = "user " + std::to_string(::getuid());
  if (const auto* known = ::getpwuid(::getuid()); known != nullptr) user = known->pw_name;
  if (const char* person = std::getenv("SUDO_USER"); person != nullptr && *person != '\0') user = person;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return fence::printable(user + " on " + host.data(), reason_bytes_max);
}

bool replace(operation_run& run, lease::seal_place& at, const lease::replacement_wish& wish, std::ostream& out,
             std::ostream& err) {
  const auto about = at.name() + ": " + wish.resource + ": ";
  const auto done = run.asked(result<void>(no_answer), [&](auto told) { at.replace(wish, std::move(told)); });
  if (!done) return complain(err, about + done.error().message), false;
  out << about << "the mark was no number and is " << wish.to.to_string() << '\n';
  return true;
}

// False: it was not, which `err` says.
bool raise(operation_run& run, lease::seal_place& at, const std::string& resource, fence::token to, bool force,
           std::ostream& out, std::ostream& err) {
  const auto outcome = run.asked(backend::store_result<void>(backend::unavailable(no_answer.message)), [&](auto done) {
    at.raise({fence::claim{resource, to}}, std::move(done));
  });
  const auto about = at.name() + ": " + resource + ": ";
  if (outcome) {
    out << about << "the mark is " << to.to_string() << '\n';
    return true;
  }
  const auto& why = outcome.error();
  if (why.why == fence::reason::stale && why.mark) {
    out << about << "the mark is " << why.mark->to_string() << ", which is above " << to.to_string() << '\n';
    return true;
  }
  const bool broken = backend::says_mark_is_broken(why.detail);
  if (broken && force) return replace(run, at, {resource, to, operator_here(), {}}, out, err);
  complain(err, about + fence::describe(why) + (broken ? std::string(broken_mark_hint) : "") +
                    (why.why == fence::reason::jump && why.detail == fence::raised_by_leases_only
                         ? "; fencegate lease break " + resource + " raises it"
                         : ""));
  return false;
}

// Those that are to rise together: all of them, or else one by one, so that one that cannot rise holds none back.
bool raise_block(operation_run& run, lease::seal_place& at, const fence::claims_list& block, std::ostream& out,
                 std::ostream& err) {
  const auto together = run.asked(backend::store_result<void>(backend::unavailable(no_answer.message)),
                                  [&](auto done) { at.raise(block, std::move(done)); });
  bool all = true;
  for (const auto& one : block) {
    if (together)
      out << at.name() << ": " << one.resource << ": the mark is " << one.presented.to_string() << '\n';
    else
      all = raise(run, at, one.resource, one.presented, false, out, err) && all;
  }
  return all;
}

// Those that are named, or all.
std::vector<listed_mark> marks_to_bump(operation_run& run, lease::seal_place& at, const marks_question& asked,
                                       bool& all, std::ostream& err) {
  std::vector<listed_mark> out;
  const auto add = [&](const std::optional<std::string>& only) {
    const auto found = list_of(run, at, only);
    if (!found) all = (complain(err, at.name() + ": " + found.error().message), false);
    if (found && only && found->empty()) all = (complain(err, at.name() + ": " + *only + ": there is no mark"), false);
    if (found) out.insert(out.end(), found->begin(), found->end());
  };
  if (asked.all) add(std::nullopt);
  for (const auto& resource : asked.resources) add(resource);
  return out;
}

int bump(operation_run& run, lease::seal_place& at, const marks_question& asked, std::int64_t by, std::ostream& out,
         std::ostream& err) {
  bool all = true;
  fence::claims_list block;
  const auto raise_them = [&] {
    if (!block.empty()) all = raise_block(run, at, std::exchange(block, {}), out, err) && all;
  };
  for (const auto& one : marks_to_bump(run, at, asked, all, err)) {
    const auto about = at.name() + ": " + one.resource + ": ";
    if (!one.problem.empty())
      all = (complain(err, about + "the mark is " + one.problem + std::string(broken_mark_hint)), false);
    else if (one.mark.value() > std::numeric_limits<std::int64_t>::max() - by)
      all = (complain(err, about + "no token is so far above " + one.mark.to_string()), false);
    else
      block.push_back({one.resource, fence::token(one.mark.value() + by)});
    if (block.size() == at.raised_at_once()) raise_them();
  }
  raise_them();
  return all ? exit_ok : exit_failed;
}

// ── lowering ────────────────────────────────────────────────────────────────────────────────────────────────────────────

int lower(operation_run& run, lease::seal_place& at, const marks_question& asked, fence::token to, std::ostream& out,
          std::ostream& err) {
  const auto& resource = asked.resources.front();
  const auto about = at.name() + ": " + resource + ": ";
  const auto found = seen_of(run, at, resource);
  if (!found && backend::says_mark_is_broken(found.error().message)) {
    if (!asked.force) return complain(err, about + found.error().message + std::string(broken_mark_hint));
    const lease::replacement_wish wish{resource, to, operator_here(), asked.reason, true};
    return replace(run, at, wish, out, err) ? exit_ok : exit_failed;
  }
  if (!found) return complain(err, at.name() + ": " + found.error().message);
  if (!found->mark) return complain(err, about + "there is no mark");
  const auto mark = *found->mark;
  if (mark <= to) {
    out << about << "the mark is " << mark.to_string() << ", which is not above " << to.to_string() << '\n';
    return exit_ok;
  }
  const lease::lowering_wish wish{*found, to, operator_here(), asked.reason, asked.force};
  const auto lowered = run.asked(result<void>(no_answer), [&](auto done) { at.lower(wish, std::move(done)); });
  if (!lowered) return complain(err, about + lowered.error().message);
  out << about << "the mark was " << mark.to_string() << " and is " << to.to_string()
      << "; running gates follow within seconds\n";
  return exit_ok;
}

result<std::int64_t> number_of(const marks_question& asked) {
  const bool bumps = asked.what == verb::bump;
  const auto read = fence::token::parse(bumps ? asked.by : asked.to);
  if (!read) return error{(bumps ? "--by: " : "--to: ") + read.error().message};
  if (bumps && read->value() == 0) return error{"--by: at least 1"};
  return read->value();
}

result<void> check(const marks_question& asked) {
  for (const auto& resource : asked.resources)
    if (!fence::is_resource_name(resource))
      return error{resource + ": a resource is 1 to 200 of the characters A-Z a-z 0-9 _ . : / -"};
  if (asked.what == verb::lower &&
      (asked.reason.empty() || asked.reason.size() > reason_bytes_max || !is_shown_text(asked.reason)))
    return error{"--reason: one line of 1 to " + std::to_string(reason_bytes_max) +
                 " bytes of UTF-8, without control characters"};
  if (asked.what == verb::bump && asked.all == !asked.resources.empty()) return error{"bump: name resources, or --all"};
  return {};
}

}  // namespace

int run_marks_word(const marks_question& asked, const environment& from, std::ostream& out, std::ostream& err) {
  const auto config = load_config(asked.path, from);
  if (!config) {
    print_errors(config.error(), err);
    return exit_bad_configuration;
  }
  const auto checked = check(asked);
  if (!checked) return complain(err, checked.error().message, exit_bad_configuration);
  const auto number = changes(asked.what) ? number_of(asked) : result<std::int64_t>(0);
  if (!number) return complain(err, number.error().message, exit_bad_configuration);
  lease_plan plan;
  auto found = places_asked(*config, asked);
  if (!found) return complain(err, found.error().message, exit_bad_configuration);
  if (changes(asked.what) && found->size() != 1)
    return complain(err, "marks are in several places: name one with --gate or --store", exit_bad_configuration);
  plan.places = std::move(*found);
  operation_run run;
  const auto where = make_places(run.io, *config, plan);
  if (!changes(asked.what)) return show(run, *config, where, asked, out, err);
  if (asked.what == verb::bump) return bump(run, *where.front(), asked, *number, out, err);
  if (asked.what == verb::lower) return lower(run, *where.front(), asked, fence::token(*number), out, err);
  return raise(run, *where.front(), asked.resources.front(), fence::token(*number), asked.force, out, err)
             ? exit_ok
             : exit_failed;
}

}  // namespace fencegate::cli
