#include "cli/config_http.hpp"

#include "base/header_field.hpp"
#include "base/limits.hpp"
#include "cli/config_gate_common.hpp"
#include "cli/config_http_routes.hpp"
#include "cli/config_url.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <string>

namespace fencegate::cli {
namespace {

using settings::http_guarantee;
using settings::http_unmatched;
using std::chrono::milliseconds;

// What the database's own functions take.
constexpr milliseconds hold_grace_most = std::chrono::minutes(10);
// One alone finds room.
constexpr auto body_held_most = static_cast<std::int64_t>(limits::http_held_of_process_bytes_max);

bool is_field_name(std::string_view name) {
  constexpr std::size_t name_bytes_max = 64;
  constexpr std::string_view others = "!#$%&'*+-.^_`|~";
  return !name.empty() && name.size() <= name_bytes_max && std::all_of(name.begin(), name.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || others.find(c) != others.npos;
  });
}

void read_token_header(section& gate, settings::http_gate& out) {
  // What means something to every HTTP program on the way.
  static constexpr std::array<std::string_view, 13> taken{
      "Host",    "Connection", "Content-Length", "Transfer-Encoding", "Content-Type", "TE",
      "Trailer", "Upgrade",    "Expect",         "Authorization",     "Cookie",       "Range",
      "Via"};
  const auto name = gate.text("token_header");
  if (!name) return;
  if (!is_field_name(*name))
    gate.complain("token_header", "token_header must be the name of a field: letters, digits and -, 64 at most");
  else if (std::any_of(taken.begin(), taken.end(), [&](auto t) { return looks_like_field_name(t, *name); }))
    gate.complain("token_header", "this field has a meaning of its own in HTTP: choose another, such as Fencing-Token");
  else
    out.token_header = *name;
}

void read_times(section& gate, settings::http_gate& out) {
  gate.duration("hold_grace", out.hold_grace, milliseconds(0), hold_grace_most);
  gate.duration("answer_timeout", out.answer_timeout, milliseconds(1));
  gate.duration("keep_alive", out.keep_alive, milliseconds(0));
  gate.duration("body_timeout", out.body_timeout, milliseconds(0));
  gate.duration("request_timeout", out.request_timeout, milliseconds(0));
  gate.duration("response_timeout", out.response_timeout, milliseconds(0));
}

// The admin listener's path names no gate.
void check_seal(section& gate, const settings::http_gate& read, const settings::process& process) {
  if (read.seal != settings::http_seal::admin) return;
  if (!process.admin_enabled) gate.complain("seal", "seal: admin needs the section admin");
  for (const auto& other : process.http_gates)
    if (other.seal == settings::http_seal::admin)
      return gate.complain("seal", "seal: admin is gate " + quoted(other.name) +
                                       "'s already: the admin listener serves the marks of one gate");
}

void check_whole(report& to, section& gate, const http_routes_reader& routes, settings::http_gate& out) {
  const bool holds = std::any_of(out.routes.begin(), out.routes.end(), [](const settings::http_route& r) {
    return r.does == settings::http_action::forward && r.guarantee == http_guarantee::held;
  });
  if (gate.has("hold_grace") && !holds)
    gate.complain("hold_grace", "hold_grace has no effect: no route forwards with guarantee: held");
  if (holds && out.answer_timeout <= out.hold_grace)
    gate.complain(gate.has("answer_timeout") ? "answer_timeout" : "hold_grace",
                  "answer_timeout must be longer than hold_grace: a new holder waits for as long as a raise spares the "
                  "forwards of the old one");
  // Here it is only how long a raise spares what other gates hold.
  if (!holds) out.hold_grace = std::min(out.hold_grace, out.answer_timeout / 2);
  if (gate.has("upstream")) return;
  if (const auto line = routes.first_forward())
    to.add(gate.mark(), "gate needs the key \"upstream\": the route on line " + std::to_string(*line) + " forwards");
  else if (out.unmatched == http_unmatched::pass)
    gate.complain("unmatched", "unmatched: pass needs the key \"upstream\"");
}

}  // namespace

settings::http_gate read_http_gate(report& to, section& gate, const settings::process& process) {
  settings::http_gate out;
  if (gate.has("password_file"))
    gate.complain("password_file", "an http gate has no key \"password_file\": its upstream asks for none");
  if (const auto url = gate.url("upstream")) {
    auto parsed = parse_http_url(*url);
    if (parsed) {
      out.upstream = std::move(parsed->where);
      check_files(to, gate, "upstream", parsed->secured);
      out.secured = std::move(parsed->secured);
    } else {
      gate.complain("upstream", "upstream: " + parsed.error().message);
    }
  }
  if (const auto node = gate.node("policy")) {
    section policy(to, *node, "policy", keys::policy);
    read_policy(policy, out.policy);
  }
  read_limits(to, gate, out);
  if (const auto node = gate.node("timeouts"); node && node->IsMap() && (*node)["idle"])
    to.add((*node)["idle"].Mark(),
           "timeouts.idle has no effect in an http gate: keep_alive, body_timeout and response_timeout are its own");
  gate.choice("unmatched", out.unmatched, words::http_unmatched);
  gate.choice("seal", out.seal, words::seal);
  check_seal(gate, out, process);
  read_token_header(gate, out);
  read_times(gate, out);
  gate.count("body_max", out.body_bytes_max, 0, std::numeric_limits<std::int64_t>::max());
  gate.count("body_held_max", out.body_held_bytes_max, 0, body_held_most);
  gate.count("access_log", out.access_log_every, 0, std::numeric_limits<std::int64_t>::max());

  http_routes_reader routes(to, out, process.stores);
  const auto store = gate.text("store");
  const bool usable = store && routes.use_store(gate, "store", *store) != nullptr;
  if (gate.has("store") && !usable)
    routes.default_store_unusable();
  else
    routes.default_store(store.value_or(""));
  gate.require("routes");
  const auto list = gate.node("routes");
  if (list && is_list(to, *list, "routes")) {
    if (list->size() == 0) gate.complain("routes", "routes is empty: nothing would be fenced");
    for (const auto& one : *list) routes.read(one);
  }
  const bool store_used =
      !usable || std::any_of(out.routes.begin(), out.routes.end(), [&](const auto& r) { return r.store == *store; });
  if (!store_used && !out.routes.empty()) gate.complain("store", "no route uses this store: each names another");
  check_whole(to, gate, routes, out);
  return out;
}

}  // namespace fencegate::cli
