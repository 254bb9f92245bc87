#include "gate/http/http_engine.hpp"

#include "base/limits.hpp"
#include "fence/compare.hpp"
#include "fence/header_tag.hpp"
#include "gate/http/http_marks.hpp"
#include "gate/http/http_messages.hpp"
#include "gate/relay/connection_shares.hpp"
#include "gate/relay/rejection_log.hpp"
#include "wire/trace_parent.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace fencegate::gate {

using fence::reason;
using fence::rejection;

http_engine::http_engine(http_host& host, const settings::http_gate& gate, const http_plan& plan, metrics::gate& stats,
                         std::string client)
    : http_engine(host, gate, plan, stats, std::move(client), gate.tag) {}

http_engine::http_engine(http_host& host, const settings::http_gate& gate, const http_plan& plan, metrics::gate& stats,
                         std::string client, const fence::claims_list& tag)
    : host_(host),
      gate_(gate),
      plan_(plan),
      stats_(stats),
      client_(std::move(client)),
      fence_fields_{gate.token_header, fence::other_token_header},
      tag_(tag),
      tag_of_listener_(fence::write_tag(tag)) {}

bool http_engine::blocked() const {
  return phase_ == phase::checking || phase_ == phase::connecting || awaits_upstream();
}

bool http_engine::awaits_body() const {
  return phase_ == phase::gathering || phase_ == phase::collecting || phase_ == phase::swallowing ||
         (phase_ == phase::forwarding && !request_body_.complete() && !answered_);
}

// What a callback changes is seen by the pump that runs below it, or starts one.
void http_engine::pump() {
  if (pumping_) return;
  pumping_ = true;
  while (step()) {
  }
  // What is missing of a request will not come.
  if (client_ended_ && (phase_ == phase::head || awaits_body())) abandon();
  pumping_ = false;
}

bool http_engine::step() {
  switch (phase_) {
    case phase::head: return step_head();
    case phase::gathering: return step_gathering();
    case phase::collecting: return step_collecting();
    case phase::forwarding: return step_forwarding();
    case phase::swallowing: {
      std::string nowhere;
      const auto how = request_body_.move(from_client, nowhere);
      if (how == http_body::progress::waiting) return false;
      if (how == http_body::progress::malformed) keep_alive_ = false;
      finish_request();
      return true;
    }
    case phase::checking:
    case phase::connecting:
    case phase::closing: return false;
  }
  return false;
}

// ── a request's head ────────────────────────────────────────────────────────────────────────────────────────────────

bool http_engine::step_head() {
  if (draining_ && from_client.empty()) phase_ = phase::closing;
  if (phase_ == phase::closing || from_client.empty()) return false;
  const auto found = request_finder_.find(from_client.view());
  if (found.has_error()) {
    stats_.protocol_errors(metrics::side::client).add();
    refuse_unread(found.error().status, found.error().message);
    return true;
  }
  if (!*found) return false;
  head_bytes_.assign(from_client.view().substr((*found)->begin, (*found)->end - (*found)->begin));
  from_client.consume((*found)->end);
  began_ = host_.now();
  if (read_head(head_bytes_)) begin_request();
  return true;
}

// False: it was answered, and the connection ends.
bool http_engine::read_head(std::string_view bytes) {
  const auto wrong = [this](const wire::http_error& e) {
    keep_alive_ = false;
    stats_.protocol_errors(metrics::side::client).add();
    refuse(e.status, e.message);
    return false;
  };
  keep_alive_ = true;
  answered_ = false;
  route_.reset();
  claims_.clear();
  presented_.reset();
  marks_.clear();
  trace_.clear();
  target_ = {};
  framing_ = {};
  request_body_.begin({}, wire::http_framing::kind::none);
  if (auto parsed = wire::parse_request_head(bytes, request_); parsed.has_error()) return wrong(parsed.error());
  trace_ = wire::trace_parent_of(request_.fields);
  const auto framing = wire::request_framing(request_);
  if (framing.has_error()) return wrong(framing.error());
  framing_ = *framing;
  if (auto hop = wire::read_request_hop(request_, fence_fields_, hop_); hop.has_error()) return wrong(hop.error());
  bring_tag_of_listener();
  if (auto target = wire::parse_http_target(request_.method, request_.target, request_.host, target_);
      target.has_error())
    return wrong(target.error());
  keep_alive_ = hop_.keep_alive;
  request_body_.begin(framing_, framing_.what);
  return true;
}

// tag_from: listen: a request without a token carries the listener's, for who is behind the gate, too.
void http_engine::bring_tag_of_listener() {
  if (tag_.empty()) return;
  const auto carries_one = [this](const header_field& one) { return looks_like_any(one.name, fence_fields_); };
  if (std::none_of(request_.fields.begin(), request_.fields.end(), carries_one))
    request_.fields.push_back({gate_.token_header, tag_of_listener_});
}

bool http_engine::is_read() const {
  return request_.method == "GET" || request_.method == "HEAD" || request_.method == "OPTIONS";
}

void http_engine::begin_request() {
  stats_.requests(is_read() ? metrics::request_class::read : metrics::request_class::write).add();
  if (gate_.body_bytes_max != 0 && framing_.length > gate_.body_bytes_max)
    return refuse(413, "the body is larger than body_max of this gate");
  if (target_.decoded.starts_with("/.fencegate/")) return serve_marks();
  if (const auto match = plan_.table.match(request_.method, target_.decoded)) return serve_route(*match);
  if (is_read() || gate_.unmatched == settings::http_unmatched::pass) return forward();
  reject({reason::refused,
          {},
          {},
          {},
          "no route of this gate matches " + std::string(request_.method) + " " + target_.path +
              ", and what writes needs one"});
}

void http_engine::serve_route(const fence::route_match& match) {
  const auto& route = gate_.routes[match.route];
  route_ = match.route;
  captures_ = match.captured;
  const bool forwards = route.does == settings::http_action::forward;
  const bool passes = is_read() && route.policy.read == fence::reads::pass;
  // What passes and is forwarded is the upstream's to understand, whatever it is.
  if (!settle_captures() && !(passes && forwards))
    return refuse(400, "a part of the path is not what this route takes");
  if (passes) return proceed();
  const std::string resource = plan_.routes[match.route].resource.resource(captures_);
  if (!fence::is_resource_name(resource)) return refuse(400, "this path names no resource that a token could be for");
  if (!bind(route.policy, resource)) return;
  if (claims_.empty()) return proceed();
  const bool atomic = !forwards;
  if (route.policy.mode == fence::enforcement::monitor || (is_read() && !atomic)) return look(route.policy);
  if (claims_.size() > 1 && !is_read())  // the route's own is none
    if (auto foreign = plan_.foreign_claim(claims_, route.store)) return reject(std::move(*foreign));
  if (atomic) return proceed();  // the check is one unit with what it runs
  if (route.guarantee == settings::http_guarantee::held) return gather();
  phase_ = phase::checking;
  host_.raise(route_, claims_, [this](const fence_answer& answer) { on_judged(answer); });
}

// Gives each part of the path that has a type its one spelling, before anything is made of it. False: it is no such value,
// or the path was another route's in that spelling.
bool http_engine::settle_captures() {
  const auto& places = plan_.table.pattern(*route_).places();
  std::vector<std::pair<std::size_t, std::string>> changes;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].type == fence::capture_type::text) continue;
    auto spelled = fence::canonical(places[i].type, captures_.values[i]);
    if (!spelled) return false;
    if (*spelled != captures_.values[i]) changes.emplace_back(places[i].segment, std::move(*spelled));
  }
  if (changes.empty()) return true;
  captures_ = {};  // they are parts of what is changed now
  for (const auto& [segment, text] : changes) target_.set_segment(segment, text);
  const auto again = plan_.table.match(request_.method, target_.decoded);
  if (!again || again->route != *route_) return false;
  captures_ = again->captured;
  return true;
}

void http_engine::on_judged(const fence_answer& answer) {
  if (answer.why) {
    reject(*answer.why);
  } else {
    note_admitted(answer.marks, answer.raised);
    checked_ = host_.now();
    forward();
  }
  pump();
}

// Fills claims_ from the request; they cover the resource. False: it was answered.
bool http_engine::bind(const fence::policy& rules, const std::string& resource) {
  const bool enforced = rules.mode == fence::enforcement::enforce;
  const bool needed = !is_read() && rules.missing != fence::missing_token::allow;
  const auto at = is_read() ? fence::attempt::read : fence::attempt::write;
  auto [claims, why] = read_claims(request_.fields, gate_.token_header, resource, at, needed);
  claims_ = std::move(claims);
  if (auto other = fence::disagreement(tag_, claims_); other && !why)
    why = rejection{reason::malformed, resource, {}, {}, std::move(*other)};
  if (!why) {
    if (const auto full = host_.take_room(claims_)) {
      claims_.clear();
      keep_alive_ = false;
      refuse(503, too_many_connections(*full));
      return false;
    }
    for (const auto& one : claims_)
      if (one.resource == resource) presented_ = one.presented;
    return true;
  }
  claims_.clear();
  if (enforced) {
    reject(*why);
    return false;
  }
  host_.report(*why, request_.method, trace_, true);
  return true;
}

// Only looks at the marks: monitor mode, and reads that are fenced and forwarded.
void http_engine::look(const fence::policy& rules) {
  phase_ = phase::checking;
  auto on_answer = [this, rules](const fence_answer& answer) {
    auto why = answer.why;
    for (const auto& mark : answer.marks) {
      for (const auto& one : claims_) {
        if (why || one.resource != mark.resource) continue;
        const auto stands = fence::compare(one.presented, mark.presented, rules);
        if (stands == fence::comparison::stale)
          why = rejection{reason::stale, one.resource, one.presented, mark.presented, {}};
        else if (stands == fence::comparison::used && !is_read())
          why = rejection{reason::equal, one.resource, one.presented, mark.presented, {}};
      }
    }
    claims_.clear();  // what follows is not fenced
    if (why && rules.mode == fence::enforcement::enforce) {
      reject(*why);
    } else {
      if (why)
        host_.report(*why, request_.method, trace_, true);
      else
        stats_.checks(metrics::check_outcome::admitted).add();
      marks_ = answer.marks;
      proceed();
    }
    pump();
  };
  host_.look(route_, claims_, std::move(on_answer));
}

void http_engine::note_admitted(const claims_list& marks, bool raised) {
  stats_.checks(raised ? metrics::check_outcome::raised : metrics::check_outcome::admitted).add();
  marks_ = marks;
}

void http_engine::proceed() {
  const bool atomic = route_ && gate_.routes[*route_].does != settings::http_action::forward;
  if (atomic)
    collect();
  else
    forward();
}

// ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────

// A client may say that it has nothing more to ask and still wait for the answer.
void http_engine::on_client_end() {
  client_ended_ = true;
  pump();
}

void http_engine::on_client_gone() {
  client_ended_ = true;
  from_client = {};
  if (phase_ == phase::closing || cut_) return;  // a cut is explained, which ends the request
  const bool asked = phase_ == phase::checking || phase_ == phase::connecting || phase_ == phase::forwarding;
  if (holding_ && phase_ == phase::forwarding && (request_body_.complete() || answered_)) {
    stats_.left(metrics::left_client::awaited).add();
    return host_.outlive_client();
  }
  if (asked) stats_.left(metrics::left_client::given_up).add();
  abandon();
}

// Each client of HTTP/1.1 takes interim answers (RFC 9110, 15.2); the host of one that has closed resets the connection.
bool http_engine::probe_client() {
  const bool unanswered =
      phase_ == phase::checking || phase_ == phase::connecting || (phase_ == phase::forwarding && !answered_);
  if (!unanswered || request_.minor != 1 || !to_client.empty()) return false;
  to_client += "HTTP/1.1 100 Continue\r\n\r\n";
  return true;
}

void http_engine::on_client_timeout() {
  constexpr std::string_view late = "the request did not come in time";
  if (phase_ == phase::head) {
    // Line ends in front of a request are no part of it.
    const bool begun = from_client.view().find_first_not_of("\r\n") != std::string_view::npos;
    if (begun) return refuse_unread(408, late);
  } else if (phase_ == phase::collecting || phase_ == phase::gathering) {
    keep_alive_ = false;
    return refuse(408, late);
  } else if (phase_ == phase::forwarding && !answered_) {
    keep_alive_ = false;
    return fail_forward(408, late);
  }
  abandon();
}

void http_engine::abandon() {
  const bool under_way = phase_ != phase::head && phase_ != phase::swallowing && phase_ != phase::closing;
  if (under_way || status_ != 0) tell_access();
  if (linked_) drop_link();
  release();
  drop_collected();
  phase_ = phase::closing;
}

void http_engine::drain() {
  ends_soon_ = true;
  draining_ = true;
  if (phase_ == phase::head && from_client.empty()) phase_ = phase::closing;
}

}  // namespace fencegate::gate
