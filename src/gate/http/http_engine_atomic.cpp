// Routes that a backend carries out itself, and the marks as a resource of their own.
#include "base/limits.hpp"
#include "gate/http/http_engine.hpp"
#include "gate/http/http_marks.hpp"
#include "gate/http/http_messages.hpp"

#include <utility>

namespace fencegate::gate {
namespace {

constexpr std::string_view no_room_to_hold =
    "bodies of other requests, which are held for routes with sql or redis, leave no room for a large one: try again "
    "later";

}  // namespace

// The body is held whole: it becomes one value.
void http_engine::collect() {
  collected_.clear();
  const auto announced = framing_.what == wire::http_framing::kind::length ? framing_.length : 0;
  if (announced > gate_.body_held_bytes_max) return refuse(413, "the body is larger than body_held_max of this gate");
  if (!held_.take(announced)) return refuse(503, no_room_to_hold);
  if (hop_.expects_continue && !request_body_.complete() && from_client.empty())
    to_client += "HTTP/1.1 100 Continue\r\n\r\n";
  request_body_.begin(framing_, wire::http_framing::kind::length);
  phase_ = phase::collecting;
}

bool http_engine::step_collecting() {
  const auto how = request_body_.move(from_client, collected_);
  if (collected_.size() > gate_.body_held_bytes_max) {
    refuse(413, "the body is larger than body_held_max of this gate");
  } else if (framing_.what != wire::http_framing::kind::length && !held_.take(collected_.size())) {
    refuse(503, no_room_to_hold);
  } else if (how == http_body::progress::malformed) {
    keep_alive_ = false;
    stats_.protocol_errors(metrics::side::client).add();
    refuse(400, request_body_.what_is_malformed());
  } else if (how == http_body::progress::complete) {
    run();
  } else {
    return false;
  }
  return true;
}

void http_engine::run() {
  route_values values;
  for (const auto& one : plan_.routes[*route_].values)
    if (!add_value(one, values)) return;
  std::string().swap(collected_);  // the values have it, and it counts until they are not needed any more
  phase_ = phase::checking;
  auto on_answer = [this](const atomic_answer& answered) {
    switch (answered.what) {
      case atomic_answer::outcome::done:
        // A read is not below the marks, and raises none: where they are nobody has said.
        if (!claims_.empty()) note_admitted(is_read() ? claims_list{} : answered.marks, answered.raised);
        answer(answered.status, answered.content_type, answered.body);
        break;
      case atomic_answer::outcome::rejected: reject(answered.why); break;
      case atomic_answer::outcome::failed: answer(answered.status, fence::problem_media_type, answered.body); break;
      case atomic_answer::outcome::unknown: refuse_unknown(502, answered.detail); break;
    }
    pump();
  };
  host_.run(*route_, claims_, std::move(values), is_read(), std::move(on_answer));
}

// False: the request has not what it takes, and was told so.
bool http_engine::add_value(const fence::route_template& text, route_values& to) {
  using part = fence::route_template::part;
  std::string kept;
  std::string problem;
  auto find = [&](const part& p) -> std::optional<std::string_view> {
    if (p.what == part::kind::body) return collected_;
    if (p.what == part::kind::token) {
      if (!presented_) return std::nullopt;
      kept = presented_->to_string();
      return kept;
    }
    if (p.what == part::kind::header) {
      const auto* field = wire::find_field(request_.fields, p.text);
      if (field != nullptr && wire::count_fields(request_.fields, p.text) > 1) problem = p.text + " comes twice";
      return field == nullptr || !problem.empty() ? std::nullopt : std::optional(field->value);
    }
    auto value = wire::http_query_value(target_.query.value_or(""), p.text);
    if (value.has_error()) problem = std::string(value.error().message);
    if (value.has_error() || !*value) return std::nullopt;
    kept = std::move(**value);
    return kept;
  };
  to.push_back(text.expand(captures_, find));
  if (to.back() || (problem.empty() && text.optional())) return true;
  refuse(400, problem.empty() ? "the request lacks a value that this route needs" : problem);
  return false;
}

void http_engine::serve_marks() {
  if (gate_.seal != settings::http_seal::gate) return refuse(404, "there is nothing here");
  auto asked = read_marks_question(request_.method, target_.decoded, request_.fields, gate_.token_header);
  if (asked.why) return reject(*asked.why);
  if (asked.refused != 0) return refuse(asked.refused, asked.detail);
  if (asked.raises) claims_ = asked.claims;
  if (auto other = fence::disagreement(tag_, claims_); other && asked.raises)
    return reject({fence::reason::malformed, asked.resource, {}, {}, std::move(*other)});
  if (auto foreign = plan_.foreign_claim(claims_, plan_.own_store)) return reject(std::move(*foreign));
  phase_ = phase::checking;
  auto on_answer = [this, asked](const fence_answer& answered) {
    if (answered.why) {
      reject(asked.why_of(*answered.why));
    } else {
      if (asked.raises)
        note_admitted(answered.marks, answered.raised);
      else
        marks_ = answered.marks;
      const auto body = marks_json(asked, answered);
      if (body.empty())
        refuse(404, "this resource has no mark");
      else
        answer(200, "application/json", body);
    }
    pump();
  };
  if (asked.raises)
    host_.raise({}, claims_, std::move(on_answer));
  else
    host_.look({}, asked.claims, std::move(on_answer));
}

}  // namespace fencegate::gate
