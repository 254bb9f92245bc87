#include "gate/http/http_marks.hpp"

#include "fence/header_tag.hpp"
#include "gate/http/http_messages.hpp"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace fencegate::gate {
namespace {

using fence::reason;
using fence::rejection;

http_marks_desk::answer told(const fence::problem& what) {
  return {what.status, std::string(fence::problem_media_type), fence::problem_json(what), {}};
}

http_marks_desk::answer refused(int status, std::string_view detail) {
  return told(problem_of_gateway(status, detail, fence::problem::effect::none));
}

const fence::claim* find(const claims_list& in, std::string_view resource) {
  const auto found = std::find_if(in.begin(), in.end(), [&](const auto& one) { return one.resource == resource; });
  return found == in.end() ? nullptr : &*found;
}

}  // namespace

request_claims read_claims(std::span<const header_field> fields, std::string_view token_header,
                           const std::string& resource, fence::attempt at, bool needed) {
  request_claims out;
  auto found = fence::read_token_header(fields, token_header, {&resource, 1});
  if (found.has_error()) {
    out.why = rejection{reason::malformed, resource, {}, {}, found.error().message};
  } else if (*found) {
    out.claims = std::move(**found);
    if (fence::find_unclaimed({&resource, 1}, out.claims) != nullptr)
      out.why = rejection{reason::missing, resource, {}, {}, "the request's tokens are for other resources", at};
  } else if (needed) {
    out.why = rejection{reason::missing, resource, {}, {}, "send it as " + std::string(token_header), at};
  }
  return out;
}

marks_question read_marks_question(std::string_view method, std::string_view path, std::span<const header_field> fields,
                                   std::string_view token_header) {
  constexpr std::string_view prefix = "/.fencegate/marks/";
  marks_question out;
  const auto refuse = [&out](int status, std::string_view detail) {
    out.refused = status;
    out.detail = detail;
    return out;
  };
  if (!path.starts_with(prefix)) return refuse(404, "there is nothing here");
  out.resource = path.substr(prefix.size());
  out.raises = method == "PUT";
  if (!out.raises && method != "GET" && method != "HEAD") return refuse(405, "GET and PUT are served here");
  if (!fence::is_resource_name(out.resource)) return refuse(400, "this is no name of a resource");
  if (out.raises) {
    auto read = read_claims(fields, token_header, out.resource, fence::attempt::raise, true);
    out.claims = std::move(read.claims);
    out.why = std::move(read.why);
  } else {
    out.claims = {{out.resource, fence::token{}}};
  }
  return out;
}

rejection marks_question::why_of(rejection found) const {
  if (found.resource.empty()) found.resource = resource;
  if (!raises)
    found.presented.reset();
  else if (const auto* one = find(claims, found.resource); one != nullptr && !found.presented)
    found.presented = one->presented;
  return found;
}

std::string marks_json(const marks_question& asked, const fence_answer& answered) {
  const auto* mark = find(answered.marks, asked.resource);
  if (mark == nullptr) return {};
  boost::json::object body{{"resource", asked.resource}, {"mark", mark->presented.value()}};
  if (asked.raises) body["raised"] = answered.raised;
  return boost::json::serialize(body);
}

void http_marks_desk::ask(const request& what, std::function<void(answer)> done) {
  wire::http_target target;
  if (const auto read = wire::parse_http_target(what.method, what.target, what.host, target); read.has_error())
    return done(refused(read.error().status, read.error().message));
  auto asked = read_marks_question(what.method, target.decoded, what.fields, gate_.token_header);
  if (asked.why) return done(rejected(*asked.why, what.client, what.method));
  if (asked.refused != 0) return done(refused(asked.refused, asked.detail));
  const auto foreign = plan_.foreign_claim(asked.claims, plan_.own_store);
  if (asked.raises && foreign) return done(rejected(*foreign, what.client, what.method));
  auto on_answer = [this, asked, client = std::string(what.client), method = std::string(what.method),
                    done = std::move(done)](const fence_answer& found) {
    if (found.why) return done(rejected(asked.why_of(*found.why), client, method));
    if (asked.raises)
      stats_.checks(found.raised ? metrics::check_outcome::raised : metrics::check_outcome::admitted).add();
    auto body = marks_json(asked, found);
    if (body.empty()) return done(refused(404, "this resource has no mark"));
    done({200, "application/json", std::move(body), marks_text(found.marks)});
  };
  if (asked.raises)
    stores_->raise(alive_, {}, asked.claims, std::move(on_answer));
  else
    stores_->look(alive_, {}, asked.claims, std::move(on_answer));
}

http_marks_desk::answer http_marks_desk::rejected(const rejection& why, std::string_view client,
                                                  std::string_view method) {
  stats_.checks(outcome_of(why.why)).add();
  rejections_.report(gate_.name, why, client, method, std::chrono::steady_clock::now(), false);
  auto out = told(fence::problem_of(why));
  if (!why.resource.empty() && why.mark) out.mark = why.mark->to_string();
  return out;
}

}  // namespace fencegate::gate
