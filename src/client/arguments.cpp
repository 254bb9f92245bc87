#include "client/arguments.hpp"

#include <iostream>
#include <limits>
#include <string>

namespace fencegate::client {
namespace {

void add_wish(CLI::App& to, lease_wish& wish) {
  to.add_option("RESOURCES", wish.resources, "What it works on: orders, or orders,payments")->required();
  add_api(to, wish.api);
  add_duration(to, "--ttl", wish.ttl, "Of the lease; default: 30s, or as the configuration of -c says");
  auto* wait = add_duration(to, "--wait", wish.wait, "For another holder to end; default: for ever");
  to.add_flag_callback(
        "--no-wait", [&wish] { wish.wait = std::chrono::milliseconds(0); }, "Do not wait")
      ->excludes(wait);
  to.add_option("--busy-exit", wish.busy_exit, "The exit status when another holds it; default: 75")
      ->check(CLI::Range(0, 255));
  add_duration(to, "--at-least", wish.at_least, "Nobody else gets the lease sooner, however short the work is");
  add_duration(to, "--stop-grace", wish.stop_grace, "From SIGTERM to SIGKILL; default: 5s, or a sixth of the TTL");
}

}  // namespace

CLI::Option* add_api(CLI::App& to, std::string& api) {
  return to.add_option(
      "--api", api, "The sidecar's API: unix:/path or http://127.0.0.1:9181; default: unix:/run/fencegate/lease.sock");
}

CLI::App* add_hold(CLI::App& app, hold_request& to) {
  auto* hold = app.add_subcommand("hold", "Run an unchanged command under a lease, its token in the environment");
  add_wish(*hold, to);
  hold->add_option("COMMAND", to.command, "Behind --: the command and its arguments")->required();
  add_duration(*hold, "--max-run", to.max_run, "End the command after this, with status 124");
  add_duration(*hold, "--grace", to.grace,
               "Where the lease cannot be renewed: stop the command at the deadline, and go on when it is had again");
  auto* elect = hold->add_flag("--elect", to.elect, "Stay a candidate: wait again when the lease was lost");
  for (const auto* other : {"--wait", "--no-wait", "--busy-exit"}) elect->excludes(hold->get_option(other));
  hold->add_option("--warm-up", to.warm_up, "With --elect: run this by sh before the lease is asked for")->needs(elect);
  hold->add_option("--private-gate", to.private_gate,
                   "A gate of the sidecar, on a unix socket for this command alone: each connection has its token");
  hold->add_option("--result", to.result_file, "Write how it ended to this file, as JSON")->type_name("FILE");
  return hold;
}

void add_lease_words(CLI::App& lease, lease_words& to) {
  to.acquire = lease.add_subcommand("acquire", "Take a lease, and print it as JSON; it ends unless it is renewed");
  add_wish(*to.acquire, to.acquiring);

  const auto add_term = [&](const char* name, const char* what) {
    auto* one = lease.add_subcommand(name, what);
    add_api(*one, to.keeping.api);
    auto* id = one->add_option("ID", to.keeping.id, "Of the lease");
    auto* tokens = one->add_option("--tokens", to.keeping.tag, "Of the lease: orders=35, or orders=35,payments=12");
    auto* file = one->add_option("--lease", to.keeping.file, "A file with what acquire printed; -: standard input")
                     ->type_name("FILE");
    id->needs(tokens);
    tokens->needs(id);
    file->excludes(id);
    return one;
  };
  to.renew = add_term("renew", "Renew a lease; status 79: it is lost");
  to.release = add_term("release", "Release a lease");

  to.restarted = lease.add_subcommand("restarted", "Tell the sidecar that a writer has been started anew");
  add_api(*to.restarted, to.starting.api);
  to.restarted->add_option("WRITER", to.starting.writer, "Its name in the configuration")->required();
  to.restarted->add_option("--pid", to.starting.pid, "The writer's process; default: process 1 of this container")
      ->check(CLI::Range(1, std::numeric_limits<int>::max()));
  to.restarted->add_option("--container", to.starting.container, "Which one of the writer's containers this is");

  to.writer = lease.add_subcommand("writer", "Whether a writer may go on: a liveness probe, and its heartbeat");
  add_api(*to.writer, to.beating.api);
  to.writer->add_option("WRITER", to.beating.writer, "Its name in the configuration")->required();
  to.writer->add_flag("--holding", to.beating.holding, "Only while it holds the lease: for readiness");
  auto* url = to.writer->add_option("--and", to.beating.url, "Ask this http:// address, too, as an httpGet probe does");
  to.writer->add_option("PROBE", to.beating.probe, "Behind --: run this, too, as an exec probe does")->excludes(url);
}

bool word_given(const lease_words& in) {
  return in.acquire->parsed() || in.renew->parsed() || in.release->parsed() || in.restarted->parsed() ||
         in.writer->parsed();
}

std::optional<int> run_lease_word(const lease_words& given) {
  if (given.acquire->parsed()) return acquire(given.acquiring, std::cout, std::cerr);
  if (given.renew->parsed()) return renew(given.keeping, std::cin, std::cout, std::cerr);
  if (given.release->parsed()) return release(given.keeping, std::cin, std::cerr);
  if (given.restarted->parsed()) return tell_started(given.starting, std::cerr);
  if (given.writer->parsed()) return heartbeat(given.beating, std::cerr);
  return std::nullopt;
}

}  // namespace fencegate::client
