// The command line of fencegate.
#include "cli/commands.hpp"
#include "cli/config.hpp"
#include "cli/config_values.hpp"
#include "cli/copy_self.hpp"
#include "cli/doctor.hpp"
#include "cli/hold.hpp"
#include "cli/inject.hpp"
#include "cli/install.hpp"
#include "cli/lease.hpp"
#include "cli/marks.hpp"
#include "cli/serve.hpp"
#include "client/arguments.hpp"
#include "client/command_texts.hpp"
#include "hold/exit_status.hpp"

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace fencegate;

std::vector<client::manual_section> manual() {
  const auto statuses = client::statuses_of_hold();
  return {
      {statuses.title,
       "0\t\nDone.\n\n1\t\nIt was not done.\n\n2\t\nThe arguments or the configuration are wrong.\n\n" + statuses.text},
      {"ENVIRONMENT",
       "NOTIFY_SOCKET\t\nWhere serve tells that it is ready, and that it stops, as sd_notify(3) does.\n\n"
       "${NAME} in the configuration stands for the variable NAME."},
      {"FILES",
       "/etc/fencegate/fencegate.yaml\t\nThe configuration of the service.\n\n"
       "/run/fencegate/lease.sock\t\nWhere hold and lease ask, unless --api or -c says another place."},
      {"SEE ALSO", "fencegate-hold(1), fencegate.yaml(5)"}};
}

int serve_file(const std::string& path) {
  cli::configuration_file file(path, cli::process_environment());
  const auto config = file.read();
  if (config) return cli::serve(*config, file);
  cli::print_errors(config.error(), std::cerr);
  return cli::exit_bad_configuration;
}

CLI::App* add_install(CLI::App& app, cli::install_request& to) {
  auto* install = app.add_subcommand("install", "Create or upgrade the schema of the fence in PostgreSQL");
  install->add_option("-c,--config", to.path, "The configuration file")->type_name("FILE")->required();
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

CLI::App* add_inject(CLI::App& app, cli::inject_request& to) {
  auto* inject = app.add_subcommand("inject", "Print a Kubernetes manifest with the sidecar in its pods");
  inject->add_option("-f,--file", to.path, "The manifest; -: standard input")->type_name("FILE")->capture_default_str();
  inject->add_option("--image", to.image, "The sidecar's image")->capture_default_str();
  inject->add_option("--config-map", to.config_map, "The ConfigMap that has fencegate.yaml")->capture_default_str();
  inject->add_option("--secret", to.secret, "A Secret, whose keys become files in /run/secrets/fencegate");
  inject->add_option("--env", to.env, "NAME=VALUE, for the sidecar; as often as needed")->expected(1)->take_all();
  return inject;
}

CLI::App* add_hold(CLI::App& app, cli::hold_request& to) {
  auto* hold = client::add_hold(app, to);
  auto* config =
      hold->add_option("-c,--config", to.path, "The configuration file, instead of a sidecar")->type_name("FILE");
  config->excludes(hold->get_option("--api"));
  hold->add_option("--issuer", to.issuer, "Who grants the lease; default: as the configuration says");
  return hold;
}

// What runs when one of its subcommands was given.
CLI::App* add_lease(CLI::App& app, cli::lease_question& to, bool& given, client::lease_words& words) {
  using kind = lease::operation::kind;
  auto* lease =
      app.add_subcommand("lease", "Who holds which lease; leases for scripts; what a writer tells its sidecar");
  lease->require_subcommand(1);
  client::add_lease_words(*lease, words);
  const auto add = [&](kind word, const char* what) {
    auto* one = lease->add_subcommand(std::string(name_of(word)), what);
    one->callback([&to, &given, word] {
      to.asked.what = word;
      given = true;
    });
    auto* api = client::add_api(*one, to.api);
    one->add_option("-c,--config", to.path, "The configuration file, instead of a sidecar")
        ->type_name("FILE")
        ->excludes(api);
    one->add_option("--issuer", to.asked.issuer, "Who grants the leases; default: as the configuration says");
    return one;
  };
  auto* show = add(kind::show, "Show the leases that were ever granted");
  show->add_option("RESOURCE", to.resources, "Only this one");
  show->add_flag("--json", to.json, "As JSON");
  show->add_flag("--watch", to.watch, "Again whenever that changes, until it is ended");
  const auto add_with_reason = [&](kind word, const char* what) {
    auto* one = add(word, what);
    one->add_option("RESOURCES", to.resources, "orders, or orders,payments")->required();
    one->add_option("--reason", to.asked.reason, "Why; others see it")->required();
  };
  add_with_reason(kind::break_lease, "Take a lease from its holder, seal it, and release it");
  add_with_reason(kind::freeze, "Take a lease from its holder, and let nobody have it until it is thawed");
  add(kind::thaw, "End what was frozen")->add_option("RESOURCE", to.resources, "Whose lease")->required();
  auto* move = add(kind::move, "Give resources another issuer");
  move->add_option("RESOURCES", to.resources, "orders, or orders,payments")->required();
  move->add_option("--to", to.asked.to, "The name of the new issuer")->required();
  auto* lost = move->add_flag("--from-lost", to.asked.from_lost, "The former issuer, or its data, is gone for good");
  client::add_duration(*move, "--wait", to.asked.wait, "For a holder to end; default: for ever")->excludes(lost);
  auto* forget = add(kind::forget_store, "Do not ask later holders to seal a store that is no more");
  forget->add_option("RESOURCE", to.resources, "Whose lease")->required();
  forget->add_option("STORE", to.asked.store, "Its id, as hold says it")->required();
  return lease;
}

// What runs when one of its subcommands was given.
CLI::App* add_marks(CLI::App& app, cli::marks_question& to) {
  using verb = cli::marks_question::verb;
  auto* marks =
      app.add_subcommand("marks", "Show, raise and lower the marks in the stores and gates of a configuration");
  marks->require_subcommand(1);
  const auto add = [&](const char* name, verb what, const char* does) {
    auto* one = marks->add_subcommand(name, does);
    one->callback([&to, what] { to.what = what; });
    one->add_option("-c,--config", to.path, "The configuration file")->type_name("FILE")->required();
    auto* store = one->add_option("--store", to.store, "Only those of this store");
    one->add_option("--gate", to.gate, "Only those of this gate")->excludes(store);
    return one;
  };
  add("list", verb::list, "Show all marks")->add_flag("--json", to.json, "As JSON");
  auto* get = add("get", verb::get, "Show the marks of one resource");
  get->add_option("RESOURCE", to.resources, "Whose marks")->required()->expected(1);
  get->add_flag("--json", to.json, "As JSON");
  auto* raise = add("raise", verb::raise, "Raise one mark, as a token does");
  raise->add_option("RESOURCE", to.resources, "Whose mark")->required()->expected(1);
  raise->add_option("--to", to.to, "To this token")->required();
  raise->add_flag("--force", to.force,
                  "Replaces a mark in Redis that is no number: tokens of older holders may be good again");
  auto* lower = add("lower", verb::lower, "Take back a mark that nobody should have raised");
  lower->add_option("RESOURCE", to.resources, "Whose mark")->required()->expected(1);
  lower->add_option("--to", to.to, "To this token")->required();
  lower->add_option("--reason", to.reason, "Why; it is kept beside the mark")->required();
  lower->add_flag(
      "--force", to.force,
      "Below what it was before, too, or in place of what is no number: tokens of older holders may be good again");
  auto* bump = add("bump", verb::bump, "Raise marks by a number, after a restored backup");
  bump->add_option("RESOURCES", to.resources, "Whose marks");
  bump->add_option("--by", to.by, "By so much")->required();
  bump->add_flag("--all", to.all, "All marks there");
  return marks;
}

int run(int argc, char** argv) {
  constexpr std::chrono::seconds healthcheck_patience{3}, reload_patience{60};
  CLI::App app("fencegate: a sidecar proxy that fences writes from superseded lock holders", "fencegate");
  app.set_version_flag("--version", "fencegate " FENCEGATE_VERSION);
  app.require_subcommand(1);

  std::string config_path;
  auto* serve = app.add_subcommand("serve", "Run the gates of a configuration");
  serve->add_option("-c,--config", config_path, "The configuration file")->type_name("FILE")->required();
  auto* check = app.add_subcommand("check", "Validate a configuration; exit code 2 when it has errors");
  check->add_option("-c,--config", config_path, "The configuration file")->type_name("FILE")->required();
  bool no_secrets = false;
  check->add_flag("--no-secrets", no_secrets,
                  "Where secrets are not: variables that are not set, and files that are missing, are right");
  bool json = false;
  auto* doctor = app.add_subcommand("doctor", "Look for hazards in the servers; exit code 1 when there are some");
  doctor->add_option("-c,--config", config_path, "The configuration file")->type_name("FILE")->required();
  doctor->add_flag("--json", json, "As JSON");

  constexpr auto* admin_words = "Its admin listener: HOST:PORT, unix:PATH, or https://HOST:PORT?cafile=FILE";
  std::string admin = "127.0.0.1:9180";
  bool ready = false;
  auto* healthcheck = app.add_subcommand("healthcheck", "Ask a running fencegate whether it lives; for exec probes");
  healthcheck->add_option("--admin", admin, admin_words)->capture_default_str();
  healthcheck->add_flag("--ready", ready, "Ask for readiness (/readyz) instead");
  unsigned wait_seconds = 60;
  auto* wait = app.add_subcommand("wait", "Wait until a fencegate listens; for programs that start beside it");
  wait->add_option("--admin", admin, admin_words)->capture_default_str();
  wait->add_option("--seconds", wait_seconds, "For how long at most")->capture_default_str();
  auto* quit = app.add_subcommand("quit", "Let a fencegate on this host drain and end; for Jobs");
  quit->add_option("--admin", admin, admin_words)->capture_default_str();

  auto* reload = app.add_subcommand("reload", "Let a fencegate on this host read its configuration again");
  reload->add_option("--admin", admin, admin_words)->capture_default_str();

  cli::install_request installing;
  const auto* install = add_install(app, installing);
  cli::lease_question asking;
  bool is_asked = false;
  client::lease_words words;
  const auto* lease_command = add_lease(app, asking, is_asked, words);
  cli::marks_question about_marks;
  const auto* marks = add_marks(app, about_marks);
  cli::hold_request holding;
  const auto* hold_command = add_hold(app, holding);

  std::string folder;
  auto* copy = app.add_subcommand("copy-self", "Copy fencegate-hold to a folder; for init containers");
  copy->add_option("DIR", folder, "Made where it is missing")->type_name("DIR")->required();

  cli::inject_request injecting;
  const auto* inject_command = add_inject(app, injecting);

  client::text_words texts;
  client::add_text_words(app, texts);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (app.exit(e) == 0) return cli::exit_ok;
    const bool as_hold = hold_command->parsed() || client::word_given(words);
    return as_hold ? hold::ending_of(hold::outcome::error).status : cli::exit_bad_configuration;
  }
  if (const auto text = client::text_asked(app, texts, manual())) {
    std::cout << *text;
    return cli::exit_ok;
  }
  if (check->parsed()) {
    auto from = cli::process_environment();
    if (no_secrets) from = cli::without_secrets(std::move(from), config_path);
    return cli::check(config_path, from, std::cout, std::cerr);
  }
  if (doctor->parsed()) return cli::doctor(config_path, json, cli::process_environment(), std::cout, std::cerr);
  if (install->parsed()) return cli::install(installing, cli::process_environment(), std::cout, std::cerr);
  if (inject_command->parsed()) return cli::inject(injecting, std::cin, std::cout, std::cerr);
  if (marks->parsed()) return cli::run_marks_word(about_marks, cli::process_environment(), std::cout, std::cerr);
  if (is_asked) return cli::run_lease_word(asking, cli::process_environment(), std::cout, std::cerr);
  if (lease_command->parsed()) return client::run_lease_word(words).value_or(cli::exit_failed);
  if (copy->parsed()) return cli::copy_self(folder, std::cerr);
  if (hold_command->parsed()) return cli::hold(holding, cli::process_environment(), std::cerr);
  if (healthcheck->parsed())
    return cli::healthcheck(admin, ready ? "/readyz" : "/livez", healthcheck_patience, std::cerr);
  if (wait->parsed()) return cli::wait_until_ready(admin, std::chrono::seconds(wait_seconds), std::cerr);
  if (reload->parsed()) return cli::reload(admin, reload_patience, std::cout, std::cerr);
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
