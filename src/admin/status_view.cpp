#include "admin/status_view.hpp"

#include "admin/log_sink.hpp"
#include "base/json_text.hpp"

#include <optional>

namespace fencegate::admin {
namespace {

std::int64_t number(std::uint64_t counted) { return static_cast<std::int64_t>(counted); }

void add_bool(std::string& out, json_object& to, std::string_view name, bool value) {
  to.name(name);
  out += value ? "true" : "false";
}

void add_token(json_object& to, std::string_view name, const std::optional<std::int64_t>& token) {
  if (token) to.add(name, std::to_string(*token));
}

void add_time(json_object& to, std::string_view name, const std::optional<wall_time>& at) {
  if (at) to.add(name, time_text(*at));
}

// `write(out, object, one)` fills the object of each.
template <class All, class Write>
void add_objects(std::string& out, json_object& to, std::string_view name, const All& all, Write write) {
  to.name(name);
  out += '[';
  for (const auto& one : all) {
    if (out.back() != '[') out += ',';
    json_object object(out);
    write(object, one);
    object.end();
  }
  out += ']';
}

void add_numbers(std::string& out, json_object& to, std::string_view name, const std::vector<std::uint64_t>& all) {
  to.name(name);
  out += '[';
  for (const auto one : all) {
    if (out.back() != '[') out += ',';
    out += std::to_string(one);
  }
  out += ']';
}

void add_tokens(std::string& out, json_object& to, const fence::claims_list& claims) {
  to.name("tokens");
  json_object tokens(out);
  for (const auto& one : claims) tokens.add(one.resource, one.presented.to_string());
  tokens.end();
}

std::string_view word_of(server_status::state is) {
  switch (is) {
    case server_status::state::unknown: return "unknown";
    case server_status::state::up: return "up";
    case server_status::state::down: return "down";
  }
  return "unknown";
}

void write_gate(std::string& out, json_object& to, const gate_status& gate) {
  const auto& facts = gate.facts;
  to.add("name", facts.name);
  to.add("protocol", facts.protocol);
  to.add("mode", facts.mode);
  to.add("guarantee", facts.guarantee);
  to.add("listen", facts.listen);
  add_objects(out, to, "backends", gate.servers, [](json_object& server, const server_status& one) {
    server.add("name", one.name);
    server.add("address", one.address);
    server.add("state", word_of(one.is));
    server.add("problem", one.problem);
  });
  to.add("connections", gate.connections);
  to.add("admitted", number(gate.admitted));
  to.add("rejected", number(gate.rejected));
  to.add("stale", number(gate.stale));
  to.add("marks_raised", number(gate.raises));
  to.add("sessions_cut", number(gate.sessions_cut));
  to.add("regressions", number(gate.regressions));
  add_numbers(out, to, "admitted_each_second", gate.lately.admitted);
  add_numbers(out, to, "rejected_each_second", gate.lately.rejected);
}

void write_lease(std::string& out, json_object& to, const lease::lease_seen& one) {
  to.add_list("resources", one.resources);
  to.add("state", one.claims.empty() ? "waiting" : "held");
  add_tokens(out, to, one.claims);
  to.add("holder", one.holder);
  to.add("act_for_ms", static_cast<std::int64_t>(one.act_for.count()));
}

void write_writer(std::string& out, json_object& to, const lease::writer_view& one) {
  to.add("writer", one.writer);
  to.add("phase", lease::name_of(one.phase));
  to.add("since", time_text(one.since));
  to.add_list("resources", one.resources);
  add_tokens(out, to, one.claims);
  to.add("held_by", one.held_by);
  to.add("detail", one.detail);
}

void write_resource(std::string& out, json_object& to, const resource_seen& one) {
  to.add("id", number(one.id));
  to.add("gate", one.gate);
  to.add("resource", one.resource);
  add_token(to, "mark", one.mark);
  add_time(to, "rose_at", one.rose);
  if (one.rose) add_bool(out, to, "first_seen", one.first);
  to.add("rejections", number(one.rejections));
  add_time(to, "rejected_at", one.rejected);
  add_token(to, "rejected_token", one.token);
  if (one.rejected) to.add("rejected_for", fence::terms_of(one.why).name);
}

// What the client was told, in the words of its protocol.
std::string code_of(fence::reason why, std::string_view protocol) {
  const auto& terms = fence::terms_of(why);
  if (protocol == "redis") return std::string(terms.redis_code);
  if (protocol == "postgres") return std::string(terms.sqlstate);
  return std::to_string(terms.http_status);
}

void write_rejection(std::string& out, json_object& to, const rejection_seen& one, std::string_view protocol) {
  to.add("id", number(one.id));
  to.add("at", time_text(one.at));
  to.add("count", number(one.count));
  to.add("gate", one.gate);
  to.add("resource", one.resource);
  add_token(to, "token", one.token);
  add_token(to, "mark", one.mark);
  to.add("reason", fence::terms_of(one.why).name);
  to.add("code", code_of(one.why, protocol));
  to.add("client", one.client);
  to.add("command", one.command);
  to.add("detail", one.detail);
  to.add("traceparent", one.trace);
  add_bool(out, to, "let_through", one.monitor);
}

}  // namespace

std::string status_json(const status_view& view) {
  const auto protocol_of = [&view](const std::string& gate) -> std::string_view {
    for (const auto& one : view.gates)
      if (one.facts.name == gate) return one.facts.protocol;
    return "";
  };
  std::string out;
  json_object to(out);
  to.add("version", FENCEGATE_VERSION);
  to.add("state", view.state);
  add_bool(out, to, "draining", view.draining);
  to.add("generation", view.generation);
  to.add("started_at", time_text(view.started));
  to.add("now", time_text(view.now));
  add_bool(out, to, "complete", view.complete);
  add_objects(out, to, "gates", view.gates, [&](json_object& o, const gate_status& one) { write_gate(out, o, one); });
  add_objects(out, to, "leases", view.leased.leases,
              [&](json_object& o, const lease::lease_seen& one) { write_lease(out, o, one); });
  add_objects(out, to, "writers", view.leased.writers,
              [&](json_object& o, const lease::writer_view& one) { write_writer(out, o, one); });
  add_objects(out, to, "resources", view.seen.resources,
              [&](json_object& o, const resource_seen& one) { write_resource(out, o, one); });
  add_objects(out, to, "rejections", view.seen.rejections,
              [&](json_object& o, const rejection_seen& one) { write_rejection(out, o, one, protocol_of(one.gate)); });
  to.end();
  return out;
}

std::string json_in_html(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      out += "\\u003c";  // an end tag, or a comment, would be read before the JSON is
    else
      out += c;
  }
  return out;
}

}  // namespace fencegate::admin
