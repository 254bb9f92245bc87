#include "lease/api_issuer.hpp"

#include "base/json_text.hpp"
#include "base/limits.hpp"
#include "wire/strict_json.hpp"

#include <boost/json/object.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace fencegate::lease {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

// The longest that the sidecar is asked to wait at a time: a connection that is dead shows so.
constexpr milliseconds wait_most{10'000};

std::string text_of(milliseconds time) { return std::to_string(time.count()) + "ms"; }

std::optional<std::int64_t> number_in(const json::object& of, std::string_view name) {
  const auto* value = of.if_contains({name.data(), name.size()});
  return value != nullptr && value->is_int64() ? std::optional(value->get_int64()) : std::nullopt;
}

std::string text_in(const json::object& of, std::string_view name) {
  const auto* value = of.if_contains({name.data(), name.size()});
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

error unexpected() { return {"the sidecar answered something unexpected"}; }

std::string target_of(const term& held) { return "/v1/leases/" + held.grant; }

}  // namespace

std::string tokens_body(const fence::claims_list& claims) {
  std::string out;
  json_object body(out);
  body.name("tokens");
  json_object tokens(out);
  for (const auto& one : claims) tokens.add(one.resource, one.presented.value());
  tokens.end();
  body.end();
  return out;
}

struct api_issuer::reply {
  unsigned status = 0;
  json::object body;

  [[nodiscard]] error trouble() const {
    const auto detail = text_in(body, "detail");
    return {detail.empty() ? "the sidecar answered with status " + std::to_string(status) : detail};
  }
  // For a holder who needs so long to stop; nullopt: it does not say.
  [[nodiscard]] std::optional<milliseconds> act_for(milliseconds stop_grace) const {
    const auto act = number_in(body, "act_for_ms"), stop = number_in(body, "stop_ms");
    if (!act || !stop || *act < 0 || *stop < 0) return std::nullopt;
    return milliseconds(std::max<std::int64_t>(std::min(*act, *act + *stop - stop_grace.count()), 0));
  }
};

api_issuer::api_issuer(boost::asio::io_context& context, settings::address at, milliseconds patience,
                       milliseconds stop_grace)
    : context_(context), at_(std::move(at)), patience_(patience), stop_grace_(stop_grace) {}

std::shared_ptr<local_http> api_issuer::ask(const char* method, const std::string& target, std::string body,
                                            milliseconds patience, reply_callback done) {
  auto read = [done = std::move(done)](const result<local_answer>& came) {
    if (!came) return done(came.error());
    reply out{came->status, {}};
    if (came->body.empty()) return done(out);
    auto parsed = wire::parse_strict_json(came->body, limits::lease_body_depth_max);
    if (!parsed || !parsed->is_object()) return done(unexpected());
    out.body = std::move(parsed->get_object());
    done(out);
  };
  return local_http::ask(context_, at_, {.method = method, .target = target, .body = std::move(body)}, patience,
                         std::move(read));
}

void api_issuer::identify(std::function<void(const answer<std::string>&)> done) {
  done({boost::system::in_place_value, std::string()});
}

void api_issuer::acquire(const grant_request& wanted, std::function<void(const grant_answer&)> done) {
  const auto wait = std::min(wanted.wait, wait_most);
  std::string body;
  json_object wish(body);
  wish.add("id", wanted.id);
  wish.name("resources");
  for (std::size_t i = 0; i < wanted.resources.size(); ++i) {
    body += i == 0 ? '[' : ',';
    append_json_string(body, wanted.resources[i]);
  }
  body += ']';
  wish.add("ttl", text_of(wanted.ttl));
  wish.add("stop_grace", text_of(stop_grace_));
  wish.add("at_least", text_of(wanted.at_least));
  wish.add("wait", text_of(wait));
  wish.add("holder", wanted.holder);
  wish.end();
  auto answered = [wanted, stop_grace = stop_grace_, done = std::move(done)](const result<reply>& came) {
    using kind = grant_answer::kind;
    grant_answer out;
    if (!came) {
      out.detail = came.error().message;
      return done(out);
    }
    out.detail = came->trouble().message;
    switch (came->status) {
      case 409:
        out.what = kind::held;
        out.waited = wanted.wait > milliseconds(0);
        out.resource = text_in(came->body, "resource");
        out.by = text_in(came->body, "holder");
        out.left = milliseconds(number_in(came->body, "left_ms").value_or(0));
        return done(out);
      case 410: out.what = kind::over; return done(out);
      case 201: break;
      default:
        // What the sidecar itself cannot do at this moment, it may later.
        if (came->status < 500) out.what = kind::refused;
        return done(out);
    }
    const auto* tokens = came->body.if_contains("tokens");
    out.id = text_in(came->body, "id");
    out.act_for = came->act_for(stop_grace);
    for (const auto& name : wanted.resources) {
      const auto token =
          tokens != nullptr && tokens->is_object() ? number_in(tokens->get_object(), name) : std::nullopt;
      // Success must enable: each resource has its token.
      if (!token || *token < 1 || out.id.empty() || !out.act_for) {
        out.detail = unexpected().message;
        return done(out);
      }
      out.claims.push_back({name, fence::token(*token)});
    }
    out.what = kind::granted;
    done(out);
  };
  acquiring_ = ask("POST", "/v1/leases", std::move(body), wait + patience_, std::move(answered));
}

void api_issuer::give_up() {
  if (const auto one = acquiring_.lock()) one->give_up();
}

void api_issuer::renew(const term& held, std::function<void(const result<renewal>&)> done) {
  auto answered = [held, stop_grace = stop_grace_, done = std::move(done)](const result<reply>& came) {
    if (!came) return done(came.error());
    if (came->status == 410) return done(renewal{});
    const auto act_for = came->act_for(stop_grace);
    if (came->status != 200 || !act_for) return done(came->trouble());
    done(renewal{held.claims, {}, act_for});
  };
  ask("PUT", target_of(held), tokens_body(held.claims), patience_, std::move(answered));
}

void api_issuer::release(const term& held, bool /*unused*/, std::function<void(const result<void>&)> done) {
  auto answered = [done = std::move(done)](const result<reply>& came) {
    if (!came) return done(came.error());
    done(came->status == 204 ? result<void>() : result<void>(came->trouble()));
  };
  ask("DELETE", target_of(held), tokens_body(held.claims), patience_, std::move(answered));
}

void api_issuer::forget_store(const std::string& /*resource*/, const std::string& /*store*/,
                              std::function<void(const result<bool>&)> done) {
  done(error{"the API of a sidecar forgets no store: name a configuration"});
}

void api_issuer::list(std::function<void(const result<std::vector<lease_entry>>&)> done) {
  done(error{"the API of a sidecar tells its own leases only: name a configuration"});
}

}  // namespace fencegate::lease
