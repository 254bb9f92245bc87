#include "cli/lease.hpp"

#include "base/json_text.hpp"
#include "base/quantity_text.hpp"
#include "cli/commands.hpp"
#include "cli/lease_operations.hpp"
#include "client/sidecar_words.hpp"
#include "client/wish.hpp"
#include "fence/problem.hpp"
#include "hold/exit_status.hpp"
#include "lease/local_http.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <ostream>
#include <thread>
#include <utility>

namespace fencegate::cli {
namespace {

using lease::operation;
using lease::operation_outcome;
using lease::operation_result;

int fail(std::ostream& err, const std::string& why, int code = exit_failed) {
  err << "fencegate lease: " << why << '\n';
  return code;
}

// ── who does it ─────────────────────────────────────────────────────────────────────────────────────────────────────

using worker = std::function<operation_outcome(const operation&)>;

// A list of all leases may be long.
constexpr std::size_t answer_bytes_max = 256U << 20U;

// What is waited for has no end that is known here.
std::chrono::milliseconds patience_of(const operation& asked) {
  return asked.what == operation::kind::move ? std::chrono::hours(24 * 365) : std::chrono::minutes(2);
}

std::string body_of(const operation& asked) {
  std::string out;
  json_object body(out);
  if (!asked.resources.empty()) body.add_list("resources", asked.resources);
  for (const auto& [name, text] : {std::pair("issuer", asked.issuer), std::pair("reason", asked.reason),
                                   std::pair("store", asked.store), std::pair("to", asked.to)})
    if (!text.empty()) body.add(name, text);
  if (asked.from_lost) {
    body.name("from_lost");
    out += "true";
  }
  if (asked.wait) body.add("wait", write_duration(*asked.wait));
  if (asked.what != operation::kind::show) body.add("by", client::name_of_this_process());
  body.end();
  return out;
}

operation_outcome ask_sidecar(const settings::address& at, const operation& asked) {
  const auto came = lease::local_http::ask_now(at,
                                               {.method = "POST",
                                                .target = "/v1/operations/" + std::string(name_of(asked.what)),
                                                .body = body_of(asked),
                                                .answer_bytes_max = answer_bytes_max},
                                               patience_of(asked));
  if (!came) return unreachable(came.error().message);
  if (came->status == 200) {
    auto done = lease::read_operation_result(came->body);
    if (!done) return unreachable(done.error().message);
    return std::move(*done);
  }
  auto why = client::sidecar_words(came->body, fence::detail_bytes_max);
  if (why.empty()) why = "the sidecar answered with status " + std::to_string(came->status);
  if (came->status == 409) return lease::lease_refusal{lease::lease_refusal::kind::busy, std::move(why)};
  return refused(std::move(why));
}

// ── what it says ────────────────────────────────────────────────────────────────────────────────────────────────────

void print(const lease::moved_entry& one, std::ostream& out) {
  out << one.resource << ": " << one.place << ": " << one.what << std::endl;
}

void print_json(const operation_result& shown, std::ostream& out) {
  out << '[';
  for (std::size_t i = 0; i < shown.leases.size(); ++i)
    out << (i == 0 ? "\n" : ",\n") << json_of(shown.leases[i], shown.places);
  out << "\n]\n";
}

int show(const worker& work, const lease_question& about, const operation& asked, std::ostream& out,
         std::ostream& err) {
  std::vector<lease::lease_entry> before;
  for (bool first = true;; first = false) {
    auto shown = work(asked);
    if (!shown) return fail(err, shown.error().message);
    if (first || differ(shown->leases, before)) {
      about.json ? print_json(*shown, out) : print_leases(*shown, out);
      if (about.watch && !about.json) out << '\n';
      out.flush();
    }
    if (!about.watch || !out) return exit_ok;
    before = std::move(shown->leases);
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

void print(const operation& asked, const operation_result& done, const std::string& resources, std::ostream& out) {
  const bool freezes = asked.what == operation::kind::freeze;
  for (const auto& one : done.marks)
    out << one.resource << (freezes ? ": frozen" : ": broken") << "; its mark is " << one.presented.to_string()
        << " now, and " << (freezes ? "nobody gets its lease until lease thaw\n" : "its lease is free\n");
  if (asked.what == operation::kind::thaw) out << resources << ": thawed; its lease is free\n";
  if (asked.what == operation::kind::forget_store)
    out << resources << ": later holders need not seal " << asked.store << '\n';
  if (asked.what == operation::kind::move)
    out << "The issuer of " << resources << " is " << asked.to << " now: every configuration has to say so.\n";
}

int run(const worker& work, const lease_question& about, std::ostream& out, std::ostream& err) {
  auto asked = about.asked;
  if (!about.resources.empty()) {
    auto resources = client::read_resources(about.resources);
    if (!resources) return fail(err, resources.error().message, exit_bad_configuration);
    asked.resources = std::move(*resources);
  }
  if (is_of_one(asked.what) && asked.resources.size() > 1)
    return fail(err, "name one resource", exit_bad_configuration);
  if (asked.what == operation::kind::show) return show(work, about, asked, out, err);
  const auto done = work(asked);
  if (!done)
    return fail(err, done.error().message,
                done.error().what == lease::lease_refusal::kind::busy ? hold::ending_of(hold::outcome::busy).status
                                                                      : exit_failed);
  print(asked, *done, about.resources, out);
  return exit_ok;
}

}  // namespace

int run_lease_word(const lease_question& about, const environment& from, std::ostream& out, std::ostream& err) {
  if (about.path.empty()) {
    const auto api = client::read_api(about.api);
    if (!api) return fail(err, api.error().message, exit_bad_configuration);
    const auto by_sidecar = [&](const operation& asked) {
      auto done = ask_sidecar(*api, asked);
      if (done)
        for (const auto& one : done->moved) print(one, out);
      return done;
    };
    return run(by_sidecar, about, out, err);
  }
  const auto config = load_config(about.path, from);
  if (!config) {
    print_errors(config.error(), err);
    return exit_bad_configuration;
  }
  operation_told told;
  told.waits = [&](const std::string& what) { err << "fencegate lease: " << what << "; waiting" << std::endl; };
  told.moved = [&](const lease::moved_entry& one) { print(one, out); };
  const auto by_configuration = [&](const operation& asked) {
    operation_run alone;
    return perform(alone, *config, asked, told);
  };
  return run(by_configuration, about, out, err);
}

}  // namespace fencegate::cli
