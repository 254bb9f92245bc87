#include "client/lease_words.hpp"

#include "base/json_text.hpp"
#include "base/limits.hpp"
#include "client/said.hpp"
#include "fence/tag.hpp"
#include "lease/api_issuer.hpp"
#include "wire/strict_json.hpp"

#include <boost/json/object.hpp>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>
#include <istream>
#include <iterator>
#include <ostream>
#include <utility>

namespace fencegate::client {
namespace {

using hold::outcome;
using std::chrono::milliseconds;

// For the answer to a renewal or a release.
constexpr milliseconds renewal_patience{5'000};

void add_times(json_object& to, lease::boot_clock::time_point stop_at, std::optional<milliseconds> stop) {
  const auto act_for = std::chrono::floor<milliseconds>(stop_at - lease::boot_clock::now());
  to.add("act_for_ms", std::max(act_for, milliseconds(0)).count());
  if (stop) to.add("stop_ms", stop->count());
}

// As the API answers it; its times count from now.
std::string lease_text(const lease::term& held, const lease::holder& until) {
  std::string out;
  json_object json(out);
  json.add("id", held.grant);
  json.name("tokens");
  json_object tokens(out);
  for (const auto& one : held.claims) tokens.add(one.resource, one.presented.value());
  tokens.end();
  json.add("tag", fence::write_tag(held.claims));
  add_times(json, until.stop_at(), std::chrono::floor<milliseconds>(until.deadline() - until.stop_at()));
  json.end();
  return out += '\n';
}

bool is_id(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// What acquire printed.
result<lease::term> read_lease(const std::string& text) {
  const error wrong{"this is not what lease acquire printed"};
  const auto read = wire::parse_strict_json(text, limits::lease_body_depth_max);
  if (!read || !read->is_object()) return wrong;
  const auto* id = read->get_object().if_contains("id");
  const auto* tag = read->get_object().if_contains("tag");
  if (id == nullptr || tag == nullptr || !id->is_string() || !tag->is_string()) return wrong;
  auto claims = fence::parse_tag(std::string(tag->get_string()));
  if (!claims || !is_id(std::string(id->get_string()))) return wrong;
  return lease::term{std::move(*claims), std::string(id->get_string())};
}

result<lease::term> term_of(const term_request& of, std::istream& in) {
  if (!of.file.empty()) {
    std::ifstream file;
    if (of.file != "-") file.open(of.file, std::ios::binary);
    auto& from = of.file == "-" ? in : file;
    std::string text(limits::lease_body_bytes_max, '\0');
    from.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(from.gcount()));
    if (text.empty()) return error{of.file + " is empty, or cannot be read"};
    auto term = read_lease(text);
    return term ? term : error{of.file + ": " + term.error().message};
  }
  if (of.id.empty()) return error{"which lease? Name its ID and --tokens, or --lease FILE"};
  if (!is_id(of.id)) return error{"an ID has 32 hexadecimal digits, in lower case"};
  auto claims = fence::parse_tag(of.tag);
  if (!claims) return error{"--tokens: " + claims.error().message};
  return lease::term{std::move(*claims), of.id};
}

// Asks the sidecar about a lease. `ask` is given what takes the answer.
template <class Answer>
using question = std::function<void(lease::issuer&, const lease::term&, std::function<void(const result<Answer>&)>)>;

struct failed_question {
  error why;
  outcome what;
};

template <class Answer>
std::optional<failed_question> ask(const term_request& of, std::istream& in, const question<Answer>& asked,
                                   Answer& out) {
  const auto api = read_api(of.api);
  if (!api) return failed_question{api.error(), outcome::error};
  const auto term = term_of(of, in);
  if (!term) return failed_question{term.error(), outcome::error};
  boost::asio::io_context io(1);
  lease::api_issuer by(io, *api, renewal_patience, milliseconds(0));
  std::optional<failed_question> failed;
  asked(by, *term, [&](const result<Answer>& answer) {
    if (answer)
      out = *answer;
    else
      failed = failed_question{answer.error(), outcome::unreachable};
  });
  io.run();
  return failed;
}

}  // namespace

int acquire(const lease_wish& wish, std::ostream& out, std::ostream& err) {
  const auto plan = plan_of(wish, plan_by_sidecar(wish));
  if (!plan) return say_and_end(err, plan.error().message, status_of(outcome::error));
  std::signal(SIGPIPE, SIG_IGN);  // else nobody would release a lease that nobody reads
  boost::asio::io_context io(1);
  std::shared_ptr<lease::keeper> keeper;
  int status = 0;
  lease::keeper_owner owner;
  owner.waits = [&](const std::string& what) { err << "fencegate lease: " << what << "; waiting" << std::endl; };
  owner.acquired = [&](const lease::term& held) {
    if (out << lease_text(held, keeper->holding()) << std::flush) return io.stop();
    status = say_and_end(err, "nobody takes the lease; it is released", status_of(outcome::error));
    keeper->stop(lease::release_patience, [&](const result<void>&) { io.stop(); });
  };
  owner.not_acquired = [&](const lease::keeper_failure& why) {
    if (why.what != lease::keeper_failure::kind::busy || !wish.busy_exit)
      err << "fencegate lease: " << why.message << '\n';
    status = ending_of(why, wish).status;
    io.stop();
  };
  auto [issuer, places] = plan->from(io);
  keeper = std::make_shared<lease::keeper>(io, std::move(issuer), std::move(places), plan->wanted, std::move(owner));
  keeper->start();
  io.run();
  return status;
}

int renew(const term_request& of, std::istream& in, std::ostream& out, std::ostream& err) {
  lease::renewal renewed;
  lease::boot_clock::time_point sent;
  const auto failed = ask<lease::renewal>(
      of, in,
      [&](auto& by, const auto& term, auto done) {
        sent = lease::boot_clock::now();
        by.renew(term, std::move(done));
      },
      renewed);
  if (failed) return say_and_end(err, failed->why.message, status_of(failed->what));
  if (renewed.claims.empty() || !renewed.act_for)
    return say_and_end(err, "the lease is lost", status_of(outcome::lost));
  std::string text;
  json_object json(text);
  add_times(json, sent + *renewed.act_for, std::nullopt);
  json.end();
  out << text << std::endl;
  return 0;
}

int release(const term_request& of, std::istream& in, std::ostream& err) {
  bool released = false;
  const auto failed = ask<bool>(
      of, in,
      [](auto& by, const auto& term, auto done) {
        by.release(term, false, [done](const result<void>& r) { done(r ? result<bool>(true) : r.error()); });
      },
      released);
  return failed ? say_and_end(err, failed->why.message, status_of(failed->what)) : 0;
}

}  // namespace fencegate::client
