// The command line of fencegate.
#include "cli/commands.hpp"
#include "cli/config.hpp"
#include "cli/install.hpp"
#include "cli/serve.hpp"

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
  if (config) return cli::serve(*config);
  cli::print_errors(config.error(), std::cerr);
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

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? cli::exit_ok : cli::exit_bad_configuration;
  }
  if (check->parsed()) return cli::check(config_path, cli::process_environment(), std::cout, std::cerr);
  if (install->parsed()) return cli::install(installing, cli::process_environment(), std::cout, std::cerr);
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
