#include "cli/commands.hpp"

#include "cli/admin_client.hpp"

#include <boost/json/parse.hpp>

#include <optional>
#include <ostream>
#include <string_view>
#include <thread>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Between two questions of `wait`, and for one of them.
constexpr milliseconds wait_pause{100};
constexpr milliseconds answer_patience{1'000};

}  // namespace

void print_errors(const config_errors& errors, std::ostream& err) {
  for (const auto& e : errors) err << e.to_string() << '\n';
}

int check(const std::string& path, const environment& from, std::ostream& out, std::ostream& err) {
  const auto config = load_config(path, from);
  if (!config) {
    print_errors(config.error(), err);
    return exit_bad_configuration;
  }
  for (const auto& one : config->warnings) err << one << '\n';
  const auto gates = config->redis_gates.size() + config->postgres_gates.size() + config->http_gates.size();
  out << path << ": OK, " << gates << (gates == 1 ? " gate" : " gates")
      << (serves_anything(*config) ? "\n" : "; for hold, lease and marks: there is nothing for serve\n");
  return exit_ok;
}

namespace {

// Exit code 0 when the answer had status 200; else why not stands on `err`.
int judge(const std::string& asked, const std::string& path, const result<int>& status, std::ostream& err) {
  const auto admin = asked.substr(0, asked.find('?'));
  if (!status)
    err << "fencegate: " << admin << path << ": " << status.error().message << '\n';
  else if (*status != 200)
    err << "fencegate: " << admin << path << ": status " << *status << '\n';
  return status && *status == 200 ? exit_ok : exit_failed;
}

std::optional<admin_address> address_of(const std::string& admin, std::ostream& err) {
  auto address = parse_admin_address(admin);
  if (address) return std::move(*address);
  err << "fencegate: --admin: " << address.error().message << '\n';
  return std::nullopt;
}

}  // namespace

int healthcheck(const std::string& admin, const std::string& path, milliseconds patience, std::ostream& err) {
  const auto address = address_of(admin, err);
  if (!address) return exit_bad_configuration;
  return judge(admin, path, admin_status(*address, "GET " + path, steady_clock::now() + patience), err);
}

int wait_until_ready(const std::string& admin, milliseconds patience, std::ostream& err) {
  const auto address = address_of(admin, err);
  if (!address) return exit_bad_configuration;
  const auto deadline = steady_clock::now() + patience;
  for (;;) {
    const auto status = admin_status(*address, "GET /readyz", steady_clock::now() + answer_patience);
    if ((status && *status == 200) || steady_clock::now() + wait_pause >= deadline)
      return judge(admin, "/readyz", status, err);
    std::this_thread::sleep_for(wait_pause);
  }
}

namespace {

std::string text_at(const boost::json::object& of, std::string_view name) {
  const auto* const found = of.if_contains(name);
  return found != nullptr && found->is_string() ? std::string(found->as_string()) : std::string();
}

std::int64_t number_at(const boost::json::object& of, std::string_view name) {
  const auto* const found = of.if_contains(name);
  return found != nullptr && found->is_int64() ? found->as_int64() : 0;
}

// "  changed: cache, db": nothing where there are none.
void print_names(const boost::json::object& of, const char* name, std::ostream& out) {
  const auto* const found = of.if_contains(name);
  if (found == nullptr || !found->is_array() || found->as_array().empty()) return;
  std::string names;
  for (const auto& one : found->as_array())
    if (one.is_string()) names += (names.empty() ? "" : ", ") + std::string(one.as_string());
  out << "  " << name << ": " << names << '\n';
}

void print_errors(const boost::json::object& problem, std::ostream& err) {
  const auto* const errors = problem.if_contains("errors");
  if (errors == nullptr || !errors->is_array()) {
    err << "fencegate: " << text_at(problem, "title") << ": " << text_at(problem, "detail") << '\n';
    return;
  }
  err << "fencegate: " << text_at(problem, "title") << '\n';
  for (const auto& each : errors->as_array()) {
    if (!each.is_object()) continue;
    const auto& one = each.as_object();
    const config_error shown{text_at(one, "file"), static_cast<int>(number_at(one, "line")),
                             static_cast<int>(number_at(one, "column")), text_at(one, "message")};
    err << (shown.file.empty() ? shown.message : shown.to_string()) << '\n';
  }
}

}  // namespace

int reload(const std::string& admin, milliseconds patience, std::ostream& out, std::ostream& err) {
  const auto address = address_of(admin, err);
  if (!address) return exit_bad_configuration;
  const auto answered = admin_ask(*address, "POST /reload", steady_clock::now() + patience);
  if (!answered) return judge(admin, "/reload", answered.error(), err);
  boost::system::error_code failed;
  const auto body = boost::json::parse(answered->body, failed);
  if (failed || !body.is_object()) return judge(admin, "/reload", answered->status, err);
  const auto& told = body.as_object();
  if (answered->status != 200) return print_errors(told, err), exit_failed;
  out << "the configuration is " << text_at(told, "outcome") << ", generation " << number_at(told, "generation")
      << '\n';
  for (const auto* name : {"added", "changed", "removed", "passwords"}) print_names(told, name, out);
  return exit_ok;
}

int quit(const std::string& admin, milliseconds patience, std::ostream& err) {
  const auto address = address_of(admin, err);
  if (!address) return exit_bad_configuration;
  return judge(admin, "/quit", admin_status(*address, "POST /quit", steady_clock::now() + patience), err);
}

}  // namespace fencegate::cli
