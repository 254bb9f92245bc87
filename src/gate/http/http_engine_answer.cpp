// Answers of the gate's own, and the end of a request.
#include "base/limits.hpp"
#include "gate/http/http_engine.hpp"
#include "gate/http/http_messages.hpp"

#include <string>
#include <utility>

namespace fencegate::gate {

using fence::rejection;

void http_engine::reject(rejection why) {
  release();
  if (why.resource.empty() && !claims_.empty()) {
    why.resource = claims_.front().resource;
    why.presented = claims_.front().presented;
  }
  host_.report(why, request_.method, trace_, false);
  if (!why.resource.empty() && why.mark) marks_ = {{why.resource, *why.mark}};
  refuse(fence::problem_of(why));
}

void http_engine::refuse(int status, std::string_view detail) {
  refuse(problem_of_gateway(status, detail, fence::problem::effect::none));
}

// It may have been carried out.
void http_engine::refuse_unknown(int status, std::string_view detail) {
  auto what = problem_of_gateway(status, detail, fence::problem::effect::unknown);
  stats_.unknown_total.add();
  if (!claims_.empty()) {
    stats_.checks(metrics::check_outcome::unknown).add();
    const auto& one = claims_.front();
    what.resource = one.resource;
    what.presented = one.presented;
    for (const auto& mark : marks_)
      if (mark.resource == one.resource) what.mark = mark.presented;
  }
  refuse(what);
}

// A request whose head is not whole: nothing is left of the one before.
void http_engine::refuse_unread(int status, std::string_view detail) {
  keep_alive_ = false;
  request_ = {};
  target_ = {};
  trace_.clear();
  claims_.clear();
  marks_.clear();
  began_ = host_.now();
  refuse(status, detail);
}

void http_engine::refuse(const fence::problem& what) {
  answer(what.status, fence::problem_media_type, fence::problem_json(what));
}

// Then the rest of the request's body has to be taken off the connection, or the connection ends.
void http_engine::answer(int status, std::string_view content_type, std::string_view body) {
  release();
  const bool unread = !request_body_.complete();
  const bool short_rest = framing_.what == wire::http_framing::kind::length &&
                          framing_.length <= limits::http_swallowed_bytes_max && !hop_.expects_continue;
  if (is_last() || (unread && !short_rest)) keep_alive_ = false;
  note_answer(status);
  append_answer(to_client,
                {status, content_type, body, marks_, keep_alive_, request_.minor, request_.method == "HEAD"});
  if (unread && keep_alive_) {
    phase_ = phase::swallowing;
  } else {
    lingers_ = !keep_alive_;
    finish_request();
  }
}

// No request is read behind this one. What a client has asked before it said that nothing more comes is answered.
bool http_engine::is_last() const { return ends_soon_ || (client_ended_ && from_client.empty()); }

void http_engine::tell_access() {
  const int status = std::exchange(status_, 0);
  if (gate_.access_log_every == 0) return;
  const auto* claim = claims_.empty() ? nullptr : &claims_.front();
  host_.access({request_.method, target_.path, status, host_.now() - began_, claim, trace_});
}

// The next request may be long in coming.
void http_engine::drop_collected() {
  std::string().swap(collected_);
  held_.note(0);
}

void http_engine::finish_request() {
  tell_access();
  request_body_.begin({}, wire::http_framing::kind::none);
  drop_collected();
  const bool over = draining_ || (client_ended_ && from_client.empty());  // ends_soon_: with an answer that says so
  phase_ = keep_alive_ && !over ? phase::head : phase::closing;
}

}  // namespace fencegate::gate
