// The command line of fencegate.
#include "cli/commands.hpp"
#include "cli/config.hpp"
#include "cli/config_values.hpp"
#include "cli/hold.hpp"
#include "cli/install.hpp"
#include "cli/lease.hpp"
#include "cli/serve.hpp"
#include "hold/exit_status.hpp"

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

namespace {

using namespace fencegate;

int serve_file(const std::string& path) {
  const auto config = cli::load_config(path, cli::process_environment());
  if (!config) {
    cli::print_errors(config.error(), std::cerr);
    return cli::exit_bad_configuration;
  }
  if (!config->redis_gates.empty() || !config->postgres_gates.empty() || !config->http_gates.empty())
    return cli::serve(*config);
  std::cerr << "fencegate: " << path << ": there are no gates to serve\n";
  return cli::exit_bad_configuration;
}

CLI::App* add_install(CLI::App& app, cli::install_request& to) {
  auto* install = app.add_subcommand("install", "Create or upgrade the schema of the fence in PostgreSQL");
  install->add_option("-c,--config", to.path, "The configuration file")->required();
  install->add_option("--gate", to.gate, "Only where this gate goes");
  install->add_option("--store", to.store, "Only in this store");
  install->add_option("--database", to.databases, "Databases, instead of those in the URLs")->expected(1)->take_all();
  install->add_flag("--print", to.print, "Show the SQL (for psql -v ON_ERROR_STOP=1) and touch nothing");
  // Else a switch without its table would take the next switch for one.
  const CLI::Validator is_table(
      [](const std::string& name) { return name.starts_with('-') ? "a table is missing in front of " + name : ""; },
      "TABLE");
  install->add_option("--protect", to.protect, "Tables whose writes are refused to sessions without a token")
      ->check(is_table);
  install->add_option("--unprotect", to.unprotect, "Tables to lift that from")->check(is_table);
  install->add_option("--resource", to.resource, "What --protect asks a token for; default: any resource");
  return install;
}

// A duration as the configuration has it: "30s".
template <class Out>
CLI::Option* add_duration(CLI::App& to, const std::string& name, Out& out, const std::string& what) {
  auto read = [&out, name](const CLI::results_t& given) {
    const auto value = parse_duration(given.front());
    if (!value) throw CLI::ValidationError(name, value.error().message);
    out = *value;
    return true;
  };
  return to.add_option(name, std::move(read), what)->type_name("DURATION")->expected(1);
}

CLI::App* add_hold(CLI::App& app, cli::hold_request& to) {
  auto* hold = app.add_subcommand("hold", "Run an unchanged command under a lease, its token in the environment");
  hold->add_option("RESOURCES", to.resources, "What it works on: orders, or orders,payments")->required();
  hold->add_option("COMMAND", to.command, "Behind --: the command and its arguments")->required();
  auto* config = hold->add_option("-c,--config", to.path, "The configuration file, with a section leases");
  hold->add_option("--api", to.api,
                   "The sidecar's API, instead of a configuration: unix:/path or http://127.0.0.1:9181; default: "
                   "unix:/run/fencegate/lease.sock")
      ->excludes(config);
  hold->add_option("--issuer", to.issuer, "Who grants the lease; default: as the configuration says");
  add_duration(*hold, "--ttl", to.ttl, "Of the lease; default: as the configuration says, or 30s");
  auto* wait = add_duration(*hold, "--wait", to.wait, "For another holder to end; default: for ever");
  hold->add_flag_callback(
          "--no-wait", [&to] { to.wait = std::chrono::milliseconds(0); }, "Do not wait")
      ->excludes(wait);
  hold->add_option("--busy-exit", to.busy_exit, "The exit status when another holds it; default: 75")
      ->check(CLI::Range(0, 255));
  add_duration(*hold, "--at-least", to.at_least, "Nobody else gets the lease sooner, however short the command is");
  add_duration(*hold, "--max-run", to.max_run, "End the command after this, with status 124");
  add_duration(*hold, "--stop-grace", to.stop_grace, "From SIGTERM to SIGKILL; default: 5s, or a sixth of the TTL");
  hold->add_option("--result", to.result_file, "Write how it ended to this file, as JSON");
  return hold;
}

// What runs when one of its subcommands was given.
using lease_word = int (*)(const cli::lease_question&, const cli::environment&, std::ostream&, std::ostream&);

CLI::App* add_lease(CLI::App& app, cli::lease_question& to, lease_word& word) {
  auto* lease = app.add_subcommand("lease", "Who holds which lease; and take one from a holder that hangs");
  lease->require_subcommand(1);
  const auto add = [&](const char* name, lease_word run, const char* what) {
    auto* one = lease->add_subcommand(name, what);
    one->callback([&word, run] { word = run; });
    one->add_option("-c,--config", to.path, "The configuration file")->required();
    one->add_option("--issuer", to.issuer, "Who grants the leases; default: as the configuration says");
    return one;
  };
  auto* show = add("show", cli::show_leases, "Show the leases that were ever granted");
  show->add_option("RESOURCE", to.resource, "Only this one");
  show->add_flag("--json", to.json, "As JSON");
  const auto add_with_reason = [&](const char* name, lease_word run, const char* what) {
    auto* one = add(name, run, what);
    one->add_option("RESOURCES", to.resource, "orders, or orders,payments")->required();
    one->add_option("--reason", to.reason, "Why; others see it")->required();
  };
  add_with_reason("break", cli::break_lease, "Take a lease from its holder, seal it, and release it");
  add_with_reason("freeze", cli::freeze_lease, "Take a lease from its holder, and let nobody have it until it is thawed");
  add("thaw", cli::thaw_lease, "End what was frozen")->add_option("RESOURCE", to.resource, "Whose lease")->required();
  auto* forget = add("forget-store", cli::forget_store, "Do not ask later holders to seal a store that is no more");
  forget->add_option("RESOURCE", to.resource, "Whose lease")->required();
  forget->add_option("STORE", to.store, "Its id, as hold says it")->required();
  return lease;
}

int run(int argc, char** argv) {
  constexpr std::chrono::seconds healthcheck_patience{3};
  CLI::App app("fencegate: a sidecar proxy that fences writes from superseded lock holders", "fencegate");
  app.set_version_flag("--version", "fencegate " FENCEGATE_VERSION);
  app.require_subcommand(1);

  std::string config_path;
  auto* serve = app.add_subcommand("serve", "Run the gates of a configuration");
  serve->add_option("-c,--config", config_path, "The configuration file")->required();
  auto* check = app.add_subcommand("check", "Validate a configuration; exit code 2 when it has errors");
  check->add_option("-c,--config", config_path, "The configuration file")->required();

  std::string admin = "127.0.0.1:9180";
  bool ready = false;
  auto* healthcheck = app.add_subcommand("healthcheck", "Ask a running fencegate whether it lives; for exec probes");
  healthcheck->add_option("--admin", admin, "Its admin listener")->capture_default_str();
  healthcheck->add_flag("--ready", ready, "Ask for readiness (/readyz) instead");
  unsigned wait_seconds = 60;
  auto* wait = app.add_subcommand("wait", "Wait until a fencegate listens; for programs that start beside it");
  wait->add_option("--admin", admin, "Its admin listener")->capture_default_str();
  wait->add_option("--seconds", wait_seconds, "For how long at most")->capture_default_str();
  auto* quit = app.add_subcommand("quit", "Let a fencegate on this host drain and end; for Jobs");
  quit->add_option("--admin", admin, "Its admin listener")->capture_default_str();

  cli::install_request installing;
  const auto* install = add_install(app, installing);
  cli::lease_question asking;
  lease_word lease = nullptr;
  add_lease(app, asking, lease);
  cli::hold_request holding;
  const auto* hold_command = add_hold(app, holding);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (app.exit(e) == 0) return cli::exit_ok;
    return hold_command->parsed() ? hold::ending_of(hold::outcome::error).status : cli::exit_bad_configuration;
  }
  if (check->parsed()) return cli::check(config_path, cli::process_environment(), std::cout, std::cerr);
  if (install->parsed()) return cli::install(installing, cli::process_environment(), std::cout, std::cerr);
  if (lease != nullptr) return lease(asking, cli::process_environment(), std::cout, std::cerr);
  if (hold_command->parsed()) return cli::hold(holding, cli::process_environment(), std::cerr);
  if (healthcheck->parsed())
    return cli::healthcheck(admin, ready ? "/readyz" : "/livez", healthcheck_patience, std::cerr);
  if (wait->parsed()) return cli::wait_until_ready(admin, std::chrono::seconds(wait_seconds), std::cerr);
  if (quit->parsed()) return cli::quit(admin, healthcheck_patience, std::cerr);
  return serve_file(config_path);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << "fencegate: " << e.what() << '\n';
    return cli::exit_failed;
  }
}
