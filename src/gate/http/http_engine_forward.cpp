// Forwarding: the request's body to the upstream, its response to the client.
#include "base/limits.hpp"
#include "gate/http/http_engine.hpp"
#include "gate/http/http_messages.hpp"

#include <string>

namespace fencegate::gate {

using fence::reason;
using kind = wire::http_framing::kind;

namespace {

constexpr std::string_view hold_ended =
    "the hold on the mark was ended before the upstream answered, by a newer holder or because its store went away";

}  // namespace

// A hold takes one of few sessions of the store, and newer holders wait for it: not for a client that takes its time.
void http_engine::gather() {
  collected_.clear();
  phase_ = phase::gathering;
  if (hop_.expects_continue) hold();  // it waits for our word, which is not given to the stale
}

bool http_engine::step_gathering() {
  const auto how = request_body_.move(from_client, collected_);
  if (how == http_body::progress::malformed) {
    keep_alive_ = false;
    stats_.protocol_errors(metrics::side::client).add();
    refuse(400, request_body_.what_is_malformed());
  } else if (gate_.body_bytes_max != 0 && request_body_.moved() > gate_.body_bytes_max) {
    refuse(413, "the body is larger than body_max of this gate");
  } else if (how == http_body::progress::complete || collected_.size() >= limits::http_gathered_bytes_max) {
    hold();
  } else {
    return false;
  }
  return true;
}

void http_engine::hold() {
  phase_ = phase::checking;
  holding_ = true;
  host_.hold(route_, claims_, [this](const fence_answer& answer) { on_judged(answer); });
}

void http_engine::forward() {
  if (!gate_.upstream) return refuse(404, "no route of this gate matches, and it has no upstream");
  // It may have been closed, or have said what would be taken for the answer, and we have not read so yet.
  if (linked_ && !host_.link_is_quiet()) drop_link();
  if (linked_) return send_forward();
  phase_ = phase::connecting;
  host_.connect();
}

void http_engine::on_connected() {
  linked_ = true;
  if (phase_ == phase::connecting) send_forward();
  pump();
}

void http_engine::on_unreachable(std::string_view why) {
  if (phase_ != phase::connecting) return;
  release();
  const std::string detail = "the upstream cannot be reached: " + std::string(why);
  refuse(503, detail);
  pump();
}

void http_engine::send_forward() {
  // The last look before the first byte leaves; from here on a raise waits for us, or cuts us.
  if (holding_ && !host_.holds())
    return reject(
        {reason::unavailable, claims_.front().resource, claims_.front().presented, {}, "its store has let go of it"});
  if (only_checked())
    if (auto stale = host_.known_stale(route_, claims_)) return reject(*stale);
  append_forwarded(to_backend, {request_, target_, hop_, framing_, client_, wire::wants_trailers(request_)});
  if (hop_.expects_continue && !request_body_.complete() && from_client.empty())
    to_client += "HTTP/1.1 100 Continue\r\n\r\n";
  to_backend += collected_;
  collected_.clear();
  answered_ = false;
  link_reusable_ = true;
  phase_ = phase::forwarding;
}

bool http_engine::step_forwarding() {
  // An answer that comes early ends the request: what is left of its body is for nobody.
  if (!answered_ && request_body_.move(from_client, to_backend) == http_body::progress::malformed) {
    fail_forward(400, request_body_.what_is_malformed());
    return true;
  }
  if (!answered_ && gate_.body_bytes_max != 0 && request_body_.moved() > gate_.body_bytes_max) {
    fail_forward(413, "the body is larger than body_max of this gate");
    return true;
  }
  if (!answered_) return step_response_head();
  if (!from_backend.empty() && hold_is_gone()) return true;
  switch (response_body_.move(from_backend, to_client)) {
    case http_body::progress::waiting: return false;
    case http_body::progress::complete: end_response(); return true;
    case http_body::progress::malformed: fail_forward(502, response_body_.what_is_malformed()); return true;
  }
  return false;
}

bool http_engine::step_response_head() {
  if (from_backend.empty()) return false;
  const auto wrong = [this](const wire::http_error& e) {
    stats_.protocol_errors(metrics::side::backend).add();
    fail_forward(502, "the upstream's answer is not valid HTTP: " + std::string(e.message));
    return true;
  };
  const auto found = response_finder_.find(from_backend.view());
  if (found.has_error()) return wrong(found.error());
  if (!*found) return false;
  response_bytes_.assign(from_backend.view().substr((*found)->begin, (*found)->end - (*found)->begin));
  from_backend.consume((*found)->end);
  if (auto parsed = wire::parse_response_head(response_bytes_, response_); parsed.has_error())
    return wrong(parsed.error());
  const auto framing = wire::response_framing(response_, request_.method);
  if (framing.has_error()) return wrong(framing.error());
  if (auto read = wire::read_response_hop(response_, response_hop_); read.has_error()) return wrong(read.error());
  link_reusable_ = link_reusable_ && framing->reusable && response_hop_.keep_alive;
  if (response_.status >= 200) {
    if (!hold_is_gone()) relay_response_head(*framing);
  } else if (response_.status != 100 && request_.minor == 1) {  // the gate has said 100 itself
    append_relayed(to_client, response_, response_hop_);
    to_client += "\r\n";
  }
  return true;
}

// A gate that was frozen finds an answer, or its end, and the end of its hold at the same time, in any order.
bool http_engine::hold_is_gone() {
  if (!holding_ || host_.holds()) return false;
  marks_.clear();  // where they are now is not known
  fail_forward(504, "its store has let go of it before the upstream answered");
  return true;
}

void http_engine::relay_response_head(const wire::http_framing& framing) {
  const bool early = !request_body_.complete();
  auto goes_on = framing;
  if (framing.what == kind::chunked || framing.what == kind::until_close)
    goes_on.what = request_.minor == 1 ? kind::chunked : kind::until_close;
  if (early || is_last() || goes_on.what == kind::until_close) keep_alive_ = false;
  link_reusable_ = link_reusable_ && !early;
  note_answer(response_.status);
  append_relayed(to_client, response_, response_hop_);
  append_marks(to_client, marks_);
  // Of what would have come, in an answer to HEAD or a 304.
  const auto* length = wire::find_field(response_.fields, "Content-Length");
  if (framing.what == kind::none && length != nullptr && response_.status != 204)
    wire::append_header_field(to_client, length->name, length->value);
  wire::append_framing_field(to_client, goes_on);
  response_body_.begin(framing, goes_on.what);
  if (framing.what == kind::chunked && wire::wants_trailers(request_)) {
    const wire::http_trailer_rules rules{fence_fields_, response_hop_.listed};
    wire::append_trailer_names(to_client, response_.fields, rules);
    response_body_.let_trailers_through(rules);
  }
  append_end_of_head(to_client, keep_alive_, request_.minor);
  answered_ = true;
}

void http_engine::end_response() {
  if (only_checked()) host_.count_overtaken(route_, claims_, host_.now() - checked_);
  release();
  const bool early = !request_body_.complete();
  if (!link_reusable_ || !from_backend.empty()) drop_link();
  lingers_ = early;
  finish_request();
}

void http_engine::on_backend_bytes() {
  if (phase_ == phase::forwarding) return pump();
  // Nobody has asked: it must not become the answer to the next request.
  stats_.protocol_errors(metrics::side::backend).add();
  drop_link();
}

void http_engine::on_backend_end(bool cut_off) {
  const bool waits = phase_ == phase::forwarding;
  if (waits && answered_ && hold_is_gone()) return pump();
  if (waits && answered_ && !cut_off && response_body_.on_end(to_client) == http_body::progress::complete) {
    end_response();
    drop_link();
    return pump();
  }
  drop_link();
  if (!waits) return;
  fail_forward(502, "the upstream closed the connection before it had answered");
  pump();
}

void http_engine::on_hold_lost(const std::optional<fence::rejection>& why) {
  if (!holding_) return;
  if (cut_ && why) {
    end_cut(*why);
  } else if (phase_ == phase::connecting) {
    drop_link();
    reject({reason::unavailable, claims_.front().resource, claims_.front().presented, {}, std::string(hold_ended)});
  } else if (phase_ == phase::forwarding && answered_) {
    fail_forward(504, hold_ended);
  } else if (phase_ == phase::forwarding) {
    drop_link();
    cut_ = true;
    phase_ = phase::checking;
  }
  pump();
}

// The upstream may have carried the request out. Where its marks are now, the store has said, or nobody knows.
void http_engine::end_cut(const fence::rejection& why) {
  cut_ = false;
  release();
  marks_.clear();
  if (why.mark) marks_ = {{why.resource, *why.mark}};
  const bool early = !request_body_.complete();
  refuse_unknown(504,
                 why.why == reason::stale ? "a newer holder has taken over before the upstream answered" : hold_ended);
  if (early) lingers_ = true;
}

void http_engine::on_upstream_timeout() {
  if (phase_ != phase::forwarding) return;
  fail_forward(504, "the upstream did not answer in time");
  pump();
}

// The upstream may have carried the request out.
void http_engine::fail_forward(int status, std::string_view detail) {
  const bool early = !request_body_.complete();
  drop_link();
  release();
  if (answered_) {
    keep_alive_ = false;  // half an answer: the client sees that it ends too soon
    return finish_request();
  }
  refuse_unknown(status, detail);
  if (early) lingers_ = true;
}

void http_engine::drop_link() {
  linked_ = false;
  from_backend = {};
  to_backend.clear();
  response_finder_ = wire::http_head_finder{wire::http_head_finder::side::response};
  host_.disconnect();
}

void http_engine::release() {
  cut_ = false;
  if (!holding_) return;
  holding_ = false;
  host_.release();
}

}  // namespace fencegate::gate
