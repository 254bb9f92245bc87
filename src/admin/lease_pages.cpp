#include "admin/lease_pages.hpp"

#include "admin/lease_body.hpp"
#include "base/ascii.hpp"
#include "base/header_field.hpp"
#include "base/json_text.hpp"
#include "fence/problem.hpp"

#include <array>
#include <utility>

namespace fencegate::admin {
namespace {

constexpr std::string_view leases_path = "/v1/leases", operations_path = "/v1/operations/";

struct problem_terms {
  unsigned status;
  std::string_view type, title;
};

constexpr problem_terms held{409, "urn:fencegate:held", "Another holds the lease"};
constexpr problem_terms lost{410, "urn:fencegate:lost", "The lease is over"};
constexpr problem_terms unavailable{503, "urn:fencegate:unavailable", "Nobody can tell at this moment"};
constexpr problem_terms refused{422, "urn:fencegate:refused", "The lease cannot be had so"};
constexpr problem_terms malformed{400, "urn:fencegate:malformed", "The request is malformed"};
constexpr std::array<problem_terms, 8> plain_terms{{{403, "about:blank", "Forbidden"},
                                                    {404, "about:blank", "Not Found"},
                                                    {405, "about:blank", "Method Not Allowed"},
                                                    {409, "about:blank", "Conflict"},
                                                    {413, "about:blank", "Content Too Large"},
                                                    {415, "about:blank", "Unsupported Media Type"},
                                                    {426, "about:blank", "Upgrade Required"},
                                                    {431, "about:blank", "Request Header Fields Too Large"}}};

const problem_terms& terms_of(unsigned status) {
  for (const auto& one : plain_terms)
    if (one.status == status) return one;
  return malformed;
}

const problem_terms& terms_of(lease::lease_refusal::kind why) {
  using kind = lease::lease_refusal::kind;
  switch (why) {
    case kind::busy: return held;
    case kind::lost: return lost;
    case kind::unreachable: return unavailable;
    case kind::refused: break;
  }
  return refused;
}

void add_problem(json_object& to, const problem_terms& terms, std::string_view detail) {
  to.add("type", terms.type);
  to.add("title", terms.title);
  to.add("status", terms.status);
  to.add("detail", detail.substr(0, fence::detail_bytes_max));
}

bool is_json_type(std::string_view content_type) {
  auto type = content_type.substr(0, content_type.find(';'));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.remove_suffix(1);
  return same_field_name(type, "application/json");
}

using question = lease_question_result;
using question_kind = lease_question::kind;

question without_body(const lease_request& request, lease_question asked) {
  if (!request.body.empty()) return lease_problem(400, "GET takes no body");
  return asked;
}

question read_wish(const lease_request& request) {
  auto wish = read_lease_wish(request.body);
  if (!wish) return lease_problem(400, wish.error().message);
  return lease_question{question_kind::acquire, std::move(*wish)};
}

question read_tokens(const lease_request& request, question_kind what, std::string_view id,
                     std::string_view gate = {}) {
  if (auto wrong = refuse_type(request)) return std::move(*wrong);
  auto tokens = read_lease_tokens(request.body);
  if (!tokens) return lease_problem(400, tokens.error().message);
  return lease_question{what, {}, std::string(id), std::move(*tokens), std::string(gate)};
}

question read_connect(const lease_request& request, std::string_view id, std::string_view gate) {
  if (request.head.method != "POST") return lease_wrong_method("POST");
  if (!request.upgrades)
    return lease_problem(426, "a gate's protocol follows here: ask with Upgrade: " + std::string(lease::gate_upgrade));
  return read_tokens(request, question_kind::connect, id, gate);
}

question read_operation_request(const lease_request& request, std::string_view word) {
  const auto what = lease::operation_named(word);
  if (!what) return lease_problem(404, "there are /v1/operations/show, break, freeze, thaw, move and forget-store");
  if (request.head.method != "POST") return lease_wrong_method("POST");
  if (auto wrong = refuse_type(request)) return std::move(*wrong);
  auto read = read_operation(*what, request.body);
  if (!read) return lease_problem(400, read.error().message);
  lease_question out{question_kind::operate};
  out.operation = std::move(read->asked);
  out.by = std::move(read->by);
  return out;
}

void add_times(json_object& to, const lease::lease_given& given) {
  to.add("act_for_ms", given.act_for.count());
  to.add("stop_ms", given.stop.count());
}

void append_seen(std::string& out, const lease::lease_seen& one) {
  json_object object(out);
  object.add_list("resources", one.resources);
  object.add("holder", one.holder);
  if (one.claims.empty()) {
    object.add("state", "waiting");
  } else {
    object.add("state", "held");
    add_lease_tokens(out, object, one.claims);
    object.add("act_for_ms", one.act_for.count());
  }
  object.end();
}

std::string_view name_of(lease::lease_event::kind what) {
  using kind = lease::lease_event::kind;
  switch (what) {
    case kind::granted: return "granted";
    case kind::renewed: return "renewed";
    case kind::expiring: return "expiring";
    case kind::lost: break;
  }
  return "lost";
}

}  // namespace

std::optional<lease_answer> refuse_type(const lease_request& request) {
  if (request.content_type && is_json_type(*request.content_type)) return std::nullopt;
  return lease_problem(415, "Content-Type must be application/json");
}

void add_lease_tokens(std::string& out, json_object& to, const fence::claims_list& claims) {
  to.name("tokens");
  json_object tokens(out);
  for (const auto& one : claims) tokens.add(one.resource, one.presented.value());
  tokens.end();
  to.add("tag", fence::write_tag(claims));
}

lease_answer lease_wrong_method(std::string_view allow) {
  auto out = lease_problem(405, "allowed here: " + std::string(allow));
  out.allow = allow;
  return out;
}

question read_lease_request(const lease_request& request, const settings::address& listen) {
  const auto& head = request.head;
  if (auto why = why_stranger("the API of leases", head, listen)) return lease_problem(403, *why);
  std::string_view path = head.target;
  constexpr std::string_view events = "/events", gates = "/gates/";
  if (path.starts_with(operations_path)) return read_operation_request(request, path.substr(operations_path.size()));
  if (!path.starts_with(leases_path)) return lease_problem(404, "the API of leases begins with /v1/leases");
  if (path.find('?') != std::string_view::npos) return lease_problem(400, "this API takes no query");
  path.remove_prefix(leases_path.size());
  if (path.empty()) {
    if (head.method == "GET") return without_body(request, {question_kind::list});
    if (head.method != "POST") return lease_wrong_method("GET, POST");
    if (auto wrong = refuse_type(request)) return std::move(*wrong);
    return read_wish(request);
  }
  if (path.front() != '/') return lease_problem(404, "the API of leases begins with /v1/leases");
  path.remove_prefix(1);
  const auto id = path.substr(0, path.find('/'));
  const auto rest = path.substr(id.size());
  const bool watches = rest == events;
  const bool connects =
      rest.starts_with(gates) && rest.size() > gates.size() && rest.find('/', gates.size()) == std::string_view::npos;
  if (id.empty() || (!rest.empty() && !watches && !connects))
    return lease_problem(
        404, "there are /v1/leases, /v1/leases/{id}, /v1/leases/{id}/events and /v1/leases/{id}/gates/{gate}");
  if (!is_grant_id(id)) return lease_problem(400, "the id in the path must have 32 hexadecimal digits, in lower case");
  if (connects) return read_connect(request, id, rest.substr(gates.size()));
  if (watches) {
    if (head.method != "GET") return lease_wrong_method("GET");
    return without_body(request, {question_kind::watch, {}, std::string(id)});
  }
  if (head.method == "PUT") return read_tokens(request, question_kind::renew, id);
  if (head.method == "DELETE") return read_tokens(request, question_kind::release, id);
  return lease_wrong_method("PUT, DELETE");
}

lease_answer lease_granted(const lease::lease_given& given) {
  lease_answer out{.status = 201, .body = {}};
  json_object object(out.body);
  object.add("id", given.id);
  add_lease_tokens(out.body, object, given.claims);
  add_times(object, given);
  object.end();
  return out;
}

lease_answer lease_renewed(const lease::lease_given& given) {
  lease_answer out;
  json_object object(out.body);
  add_times(object, given);
  object.end();
  return out;
}

lease_answer lease_released() { return {.status = 204, .body = {}, .content_type = {}}; }

lease_answer lease_connected(std::string_view protocol) {
  return {.status = 101, .body = {}, .content_type = {}, .protocol = protocol};
}

lease_answer lease_refused(const lease::lease_refusal& why) {
  const auto& terms = terms_of(why.what);
  lease_answer out{.status = terms.status, .body = {}, .content_type = fence::problem_media_type};
  json_object object(out.body);
  add_problem(object, terms, why.message);
  if (!why.resource.empty()) object.add("resource", why.resource);
  if (!why.holder.empty()) object.add("holder", why.holder);
  if (why.what == lease::lease_refusal::kind::busy) object.add("left_ms", why.left.count());
  object.end();
  return out;
}

lease_answer leases_listed(const std::vector<lease::lease_seen>& all) {
  lease_answer out;
  out.body = "{\"leases\":";
  char before = '[';
  for (const auto& one : all) {
    out.body += std::exchange(before, ',');
    append_seen(out.body, one);
  }
  out.body += before == '[' ? "[]}" : "]}";
  return out;
}

lease_answer operation_done(std::string json) { return {.status = 200, .body = std::move(json)}; }

lease_answer lease_unknown() {
  return lease_problem(404, "this process has no lease of this id: it is over, or was never asked for here");
}

lease_answer lease_problem(unsigned status, std::string_view detail) {
  lease_answer out{.status = status, .body = {}, .content_type = fence::problem_media_type};
  json_object object(out.body);
  add_problem(object, terms_of(status), detail);
  object.end();
  return out;
}

std::string lease_event_text(const lease::lease_event& event) {
  std::string out = "event: " + std::string(name_of(event.what)) + "\ndata: ";
  json_object object(out);
  add_lease_tokens(out, object, event.given.claims);
  add_times(object, event.given);
  if (!event.why.empty()) object.add("why", event.why);
  object.end();
  return out + "\n\n";
}

}  // namespace fencegate::admin
