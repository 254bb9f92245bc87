// The command line of fencegate-hold: one static file for the image of a job or a writer. It asks a sidecar, and knows no
// other servers and no passwords.
#include "client/arguments.hpp"
#include "client/command_texts.hpp"
#include "hold/exit_status.hpp"

#include <exception>
#include <iostream>
#include <vector>

namespace {

using namespace fencegate;

const int failed = hold::ending_of(hold::outcome::error).status;

// Words that are fencegate's alone are known, to say so.
void refuse_configuration(CLI::App& in) {
  auto refuse = [](const CLI::results_t&) -> bool {
    throw CLI::ValidationError("-c", "fencegate-hold asks a sidecar; use fencegate hold -c");
  };
  in.add_option("-c,--config,--issuer", std::move(refuse))->group("");
}

std::vector<client::manual_section> manual() {
  return {client::statuses_of_hold(),
          {"FILES", "/run/fencegate/lease.sock\t\nWhere the sidecar answers, unless --api says another place."},
          {"SEE ALSO", "fencegate(1), fencegate.yaml(5)"}};
}

int run(int argc, char** argv) {
  CLI::App app("fencegate-hold: runs programs under leases that a sidecar grants", "fencegate-hold");
  app.set_version_flag("--version", "fencegate-hold " FENCEGATE_VERSION);
  app.require_subcommand(1);
  client::hold_request holding;
  auto* hold = client::add_hold(app, holding);
  refuse_configuration(*hold);
  auto* lease = app.add_subcommand("lease", "Leases for scripts, and what a writer tells the sidecar");
  lease->require_subcommand(1);
  client::lease_words words;
  client::add_lease_words(*lease, words);
  for (auto* one : {words.acquire, words.renew, words.release}) refuse_configuration(*one);
  client::text_words texts;
  client::add_text_words(app, texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : failed;
  }
  if (const auto text = client::text_asked(app, texts, manual())) {
    std::cout << *text;
    return 0;
  }
  if (hold->parsed()) return client::hold(holding, client::plan_by_sidecar(holding), std::cerr);
  return client::run_lease_word(words).value_or(failed);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << "fencegate-hold: " << e.what() << '\n';
    return failed;
  }
}
