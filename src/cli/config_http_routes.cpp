#include "cli/config_http_routes.hpp"

#include "backend/command_roles.hpp"
#include "backend/pg_store.hpp"
#include "backend/sql_parameters.hpp"
#include "cli/config_gate_common.hpp"
#include "cli/config_url.hpp"
#include "fence/route_template.hpp"

#include <algorithm>

namespace fencegate::cli {
namespace {

using settings::http_action;
using settings::http_guarantee;
using kind = settings::mark_store::kind;

bool only_reads(std::string_view method) { return method == "GET" || method == "HEAD" || method == "OPTIONS"; }

// SQL is taken as it stands: its `$1` are not variables of the process.
result<std::string> verbatim(std::string_view text, const variable_lookup&) {
  return {boost::system::in_place_value, std::string(text)};
}

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

}  // namespace

const settings::mark_store* http_routes_reader::use_store(section& in, std::string_view key, const std::string& name) {
  for (const auto& known : gate_.stores)
    if (known.name == name) return &known;
  const auto written = std::find_if(stores_.begin(), stores_.end(), [&](const auto& s) { return s.name == name; });
  if (written == stores_.end()) {
    std::vector<std::string_view> names;
    for (const auto& one : stores_) names.push_back(one.name);
    in.complain(key, "there is no store " + quoted(name) + suggestion(name, names));
    return nullptr;
  }
  const bool redis = is_redis_url(written->url);
  auto url = parse_store_url(*written);
  if (!url) return nullptr;  // what is wrong with it was said of the store
  gate_.stores.push_back({redis ? kind::redis : kind::postgres, name, std::move(url->where), std::move(url->control),
                          std::move(url->database), std::move(url->secured), written->pool, gate_.limits_time.connect});
  return &gate_.stores.back();
}

void http_routes_reader::read(const YAML::Node& node) {
  section route(report_, node, "route", keys::route);
  if (!node.IsMap()) return;
  route.require("match");
  route.require("resource");
  settings::http_route out;
  out.policy = gate_.policy;
  if (const auto own = route.node("policy")) {
    section policy(report_, *own, "policy", keys::policy);
    read_policy(policy, out.policy);
  }
  auto pattern = read_match(route, out);
  const auto named = route.text("store");
  out.store = named.value_or(default_store_);
  const settings::mark_store* store = nullptr;
  if (named || !default_store_.empty())
    store = use_store(route, "store", out.store);
  else if (!default_unusable_)
    route.require("store");
  if (!pattern) return;
  if (const auto resource = route.text("resource")) {
    out.resource = *resource;
    const auto compiled = fence::route_template::parse_resource(*resource, *pattern);
    if (!compiled) route.complain("resource", "resource: " + compiled.error().message);
  }
  read_action(route, *pattern, out);
  if (store != nullptr) read_guarantee(route, store, out);
  check_effect(route, out);
  if (out.does == http_action::forward && !first_forward_) first_forward_ = route.mark("match").line + 1;
  const auto added = table_.add(std::move(*pattern));
  if (!added) route.complain("match", "match: " + added.error().message);
  gate_.routes.push_back(std::move(out));
}

std::optional<fence::route_pattern> http_routes_reader::read_match(section& route, settings::http_route& out) {
  const auto match = route.text("match");
  if (!match) return std::nullopt;
  auto pattern = fence::route_pattern::parse(*match);
  if (!pattern) {
    route.complain("match", "match: " + pattern.error().message);
    return std::nullopt;
  }
  const auto blank = match->find(' ');
  out.pattern = match->substr(match->find_first_not_of(' ', blank));
  std::string_view methods(*match);
  methods = methods.substr(0, blank);
  while (!pattern->any_method() && !methods.empty()) {
    const auto comma = std::min(methods.find(','), methods.size());
    out.methods.emplace_back(methods.substr(0, comma));
    methods.remove_prefix(std::min(comma + 1, methods.size()));
  }
  return std::move(*pattern);
}

// ── what a route does ───────────────────────────────────────────────────────────────────────────────────────────────

void http_routes_reader::read_action(section& route, const fence::route_pattern& pattern, settings::http_route& out) {
  if (route.has("redis") && route.has("sql"))
    route.complain("sql", "a route runs one of redis and sql: one request is one unit in one database");
  if (route.has("redis")) {
    out.does = http_action::redis;
    read_command(route, pattern, out);
  } else if (route.has("sql")) {
    out.does = http_action::sql;
    read_statement(route, pattern, out);
  }
  if (route.has("params") && !route.has("sql")) route.complain("params", "params are those of sql, which is not here");
}

std::vector<std::string> http_routes_reader::templates(section& route, std::string_view key,
                                                       const fence::route_pattern& pattern) {
  std::vector<std::string> out;
  const auto list = route.node(key);
  if (!list || !is_list(report_, *list, key)) return out;
  for (const auto& node : *list) {
    auto text = text_of(report_, node, key);
    if (!text) continue;
    const auto compiled = fence::route_template::parse(*text, pattern);
    if (!compiled) report_.add(node.Mark(), std::string(key) + ": " + compiled.error().message);
    out.push_back(std::move(*text));
  }
  return out;
}

void http_routes_reader::read_command(section& route, const fence::route_pattern& pattern, settings::http_route& out) {
  out.command = templates(route, "redis", pattern);
  const auto list = route.node("redis");
  if (!list || !list->IsSequence()) return;
  if (out.command.empty()) {
    if (list->size() == 0) route.complain("redis", "redis is empty: it is the words of a command");
    return;
  }
  const auto name = lower(out.command[0]);
  if (name.empty() || name.find('{') != std::string::npos)
    return report_.add((*list)[0].Mark(), "the command's name is written out: a request must not choose it");
  check_command(name, out.command.size() > 1 ? lower(out.command[1]) : "", (*list)[0].Mark());
  for (const auto& word : out.command)
    if (const auto read = fence::route_template::parse(word, pattern); read && read->optional())
      report_.add((*list)[0].Mark(), "a word of a command cannot be missing: leave the ? out of " + quoted(word));
}

// What would answer every request with 403.
void http_routes_reader::check_command(const std::string& name, const std::string& next, const YAML::Mark& at) {
  const auto refused = backend::refused_commands();
  const auto is_refused = [&](const std::string& what) {
    return std::binary_search(refused.begin(), refused.end(), std::string_view(what));
  };
  const std::string whole = name + "|" + next;
  if (is_refused(name) || is_refused(whole))
    return report_.add(at, "this command is refused: it could damage marks or escape the fence");
  const bool of_subcommand =
      !next.empty() && backend::role_by_name(name + "|help").has_value();  // then it is not for the container to say
  if (backend::never_in_script(of_subcommand ? whole : name))
    report_.add(at,
                "this command has no place in an HTTP route: Redis does not run it in a script, which is how it is "
                "checked, or it waits, or it is about the connection or the server");
}

void http_routes_reader::read_statement(section& route, const fence::route_pattern& pattern,
                                        settings::http_route& out) {
  const auto node = route.node("sql");
  const auto sql = node ? text_of(report_, *node, "sql", verbatim) : std::nullopt;
  out.parameters = templates(route, "params", pattern);
  if (!sql) return;
  out.statement = *sql;
  if (const auto why = backend::unfit_statement(*sql); !why.empty())
    return route.complain("sql", "sql: " + std::string(why));
  const auto used = backend::sql_parameters(*sql);
  const std::string given = std::to_string(out.parameters.size());
  if (!used.empty() && used.rbegin()->first > out.parameters.size())
    return route.complain(
        "sql", "sql uses $" + std::to_string(used.rbegin()->first) + ", and params has " + given + " of them");
  for (std::size_t i = 1; i <= out.parameters.size(); ++i)
    if (used.count(i) == 0)
      return route.complain("params", "sql has no $" + std::to_string(i) + ", and params has " + given + " of them");
  const auto resource = fence::route_template::parse_resource(out.resource, pattern);
  if (!resource) return;
  for (const auto& [number, cast] : used)
    if (!cast.text && number >= 1) warn_of_spellings(route, *resource, pattern, number, out.parameters[number - 1]);
}

// The database may read two texts as one value (07 and 7, as a number), and then each has a mark of its own.
void http_routes_reader::warn_of_spellings(section& route, const fence::route_template& resource,
                                           const fence::route_pattern& pattern, std::size_t number,
                                           const std::string& parameter) {
  const auto value = fence::route_template::parse(parameter, pattern);
  if (!value) return;
  for (const auto& part : value->parts()) {
    const bool untyped = part.what == fence::route_template::part::kind::path &&
                         pattern.places()[part.index].type == fence::capture_type::text;
    if (untyped && resource.uses_capture(part.index))
      route.warn("sql", "$" + std::to_string(number) + " is {" + part.text +
                            "} of the path, which names the resource, too: "
                            "two spellings of one value, as 7 and 07, would have two marks. Write {" +
                            part.text + ":int}, {" + part.text + ":uuid} or {" + part.text + ":slug} in match, or $" +
                            std::to_string(number) + "::text where it is compared as text");
  }
}

void http_routes_reader::read_guarantee(section& route, const settings::mark_store* store, settings::http_route& out) {
  const bool postgres = store->speaks == kind::postgres;
  if (out.does == http_action::redis && postgres)
    route.complain("redis", "redis needs a redis store, and " + quoted(store->name) + " is PostgreSQL");
  if (out.does == http_action::sql && !postgres)
    route.complain("sql", "sql needs a postgres store, and " + quoted(store->name) + " is Redis");
  out.guarantee = postgres ? http_guarantee::held : http_guarantee::checked;
  if (!route.has("guarantee")) return;
  route.choice("guarantee", out.guarantee, words::guarantee);
  if (out.does != http_action::forward)
    route.complain("guarantee", "guarantee is for routes that forward: this one is atomic, which is more");
  else if (out.guarantee == http_guarantee::held && !postgres)
    route.complain("guarantee", "guarantee: held needs a postgres store, and " + quoted(store->name) + " is Redis");
}

void http_routes_reader::check_effect(section& route, const settings::http_route& out) {
  const bool reading = !out.methods.empty() && std::all_of(out.methods.begin(), out.methods.end(), only_reads);
  if (reading && out.does == http_action::forward && out.policy.read == fence::reads::pass)
    route.complain("match",
                   "this route has no effect: GET, HEAD and OPTIONS pass, unless the policy says reads: fence");
}

}  // namespace fencegate::cli
