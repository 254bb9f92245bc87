#include "cli/lease.hpp"

#include "cli/asked.hpp"
#include "cli/commands.hpp"
#include "cli/config_leases.hpp"
#include "cli/config_values.hpp"
#include "cli/lease_places.hpp"
#include "client/wish.hpp"

#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

int fail(std::ostream& err, const std::string& why, int code = exit_failed) {
  err << "fencegate lease: " << why << '\n';
  return code;
}

// Asks the issuer that the configuration names; `ask` is given it, and what takes the answer.
template <class Answer>
result<Answer> ask_issuer(const settings::process& config, const lease_question& about,
                          const std::function<void(lease::issuer&, std::function<void(const result<Answer>&)>)>& ask) {
  const auto plan = plan_lease(config, {about.resource.empty() ? "any" : about.resource}, about.issuer);
  if (!plan) return plan.error();
  boost::asio::io_context io(1);
  const auto issuer = make_issuer(io, config, *plan, timing_of(config.leased, config.leased.ttl));
  return asked(io, result<Answer>(error{"there was no answer"}), [&](auto done) { ask(*issuer, done); });
}

}  // namespace

int run_lease_word(lease_word word, const lease_question& about, const environment& from, std::ostream& out,
                   std::ostream& err) {
  const auto config = load_config(about.path, from);
  if (config) return word(*config, about, out, err);
  print_errors(config.error(), err);
  return exit_bad_configuration;
}

int forget_store(const settings::process& config, const lease_question& about, std::ostream& out, std::ostream& err) {
  const auto answer = ask_issuer<bool>(config, about, [&](auto& issuer, auto done) {
    issuer.forget_store(about.resource, about.store, std::move(done));
  });
  if (!answer) return fail(err, answer.error().message);
  if (!*answer) return fail(err, "no former holder of " + about.resource + " sealed the store " + about.store);
  out << about.resource << ": later holders need not seal " << about.store << '\n';
  return exit_ok;
}

int thaw_lease(const settings::process& config, const lease_question& about, std::ostream& out, std::ostream& err) {
  const auto answer =
      ask_issuer<bool>(config, about, [&](auto& issuer, auto done) { issuer.thaw(about.resource, std::move(done)); });
  if (!answer) return fail(err, answer.error().message);
  if (!*answer) return fail(err, about.resource + " is not frozen");
  out << about.resource << ": thawed; its lease is free\n";
  return exit_ok;
}

namespace {

// Takes a lease from its holder, and seals it everywhere.
int take_lease(const settings::process& config, const lease_question& about, lease::taking how, std::ostream& out,
               std::ostream& err) {
  const bool freezes = how == lease::taking::freezing;
  const auto resources = client::read_resources(about.resource);
  if (!resources) return fail(err, resources.error().message, exit_bad_configuration);
  const auto plan = plan_lease(config, *resources, about.issuer);
  if (!plan) return fail(err, plan.error().message, exit_bad_configuration);
  const auto times = timing_of(config.leased, config.leased.ttl);
  boost::asio::io_context io(1);
  auto wanted = keeper_request_of(config, *plan, *resources, times);
  wanted.holder = (freezes ? "lease freeze: " : "lease break: ") + about.reason;
  wanted.holder.resize(std::min<std::size_t>(wanted.holder.size(), 200));
  wanted.wait = milliseconds(0);
  wanted.how = how;
  std::shared_ptr<lease::keeper> keeper;
  int outcome = exit_failed;
  lease::keeper_owner owner;
  owner.acquired = [&](const lease::term& held) {
    for (const auto& one : held.claims)
      out << one.resource << (freezes ? ": frozen" : ": broken") << "; its mark is " << one.presented.to_string()
          << " now, and " << (freezes ? "nobody gets its lease until lease thaw\n" : "its lease is free\n");
    outcome = exit_ok;
    if (freezes) return io.stop();  // and does not release it
    keeper->stop(lease::release_patience, [&](const result<void>&) { io.stop(); });
  };
  owner.not_acquired = [&](const lease::keeper_failure& why) {
    const bool frozen = why.what == lease::keeper_failure::kind::busy;  // else it would not have been asked
    outcome = fail(err, frozen ? why.resource + " is frozen (" + why.by + "): thaw it before" : why.message);
    io.stop();
  };
  keeper = std::make_shared<lease::keeper>(io, make_issuer(io, config, *plan, times), make_places(io, config, *plan),
                                           wanted, std::move(owner));
  keeper->start();
  io.run();
  return outcome;
}

}  // namespace

int break_lease(const settings::process& config, const lease_question& about, std::ostream& out, std::ostream& err) {
  return take_lease(config, about, lease::taking::by_force, out, err);
}

int freeze_lease(const settings::process& config, const lease_question& about, std::ostream& out, std::ostream& err) {
  return take_lease(config, about, lease::taking::freezing, out, err);
}

}  // namespace fencegate::cli
