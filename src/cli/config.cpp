#include "cli/config.hpp"

#include "backend/tls.hpp"
#include "backend/tls_files.hpp"
#include "backend/tls_server.hpp"
#include "base/name_text.hpp"
#include "cli/config_gate_common.hpp"
#include "cli/config_gates.hpp"
#include "cli/config_leases.hpp"
#include "cli/config_section.hpp"
#include "cli/config_url.hpp"
#include "cli/yaml_documents.hpp"
#include "fence/printable.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

// A configuration is written by hand; what is larger is some other file. Also bounds what yaml-cpp is given.
constexpr std::size_t config_bytes_max = 1024 * 1024;
constexpr std::size_t message_bytes_max = 200;
constexpr std::int64_t threads_most = 1024;
// One connection stays free for what raises and reads marks.
constexpr std::int64_t pool_least = 2, pool_most = 1000;

// Reads at most config_bytes_max + 1 bytes, so that a device or a huge file cannot fill the memory.
result<std::string> read_file(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text(config_bytes_max + 1, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || !in.is_open() || (in.fail() && !in.eof()))
    return error{errno != 0 ? std::strerror(errno) : "it cannot be read"};
  text.resize(static_cast<std::size_t>(in.gcount()));
  return {boost::system::in_place_value, std::move(text)};
}

void read_stores(report& to, const YAML::Node& node, std::vector<settings::store>& out) {
  section stores(to, node, "stores", {});
  for (const auto& entry : stores.entries()) {
    if (!is_name(entry.key)) to.add(entry.key_mark, "a store's name has 1 to 64 letters, digits, _ . and -");
    section store(to, entry.value.IsNull() ? YAML::Node(YAML::NodeType::Map) : entry.value, "store", keys::store);
    if (!store.has("url")) {
      to.add(entry.key_mark, "store needs the key \"url\"");
      continue;
    }
    const auto url = store.url("url");
    if (!url) continue;
    const auto shape = check_store_url(*url);
    settings::store read;
    read.name = entry.key;
    read.url = *url;
    if (const auto known = parse_store_url(read)) {
      check_files(to, store, "url", known->secured);
      if (store.has("password_file") && !known->control.password.empty())
        store.complain("password_file", "url has a password already: give one of them");
      if (is_redis_url(*url) && !store.has("password_file") && !known->control.user.empty() &&
          known->control.password.empty())
        store.complain("url", "url has a user without a password: add it, or give password_file");
    } else if (shape) {
      store.complain("url", "url: " + known.error().message);
    }
    read.password = read_secret(to, store, "password_file").value_or(secret());
    store.count("pool", read.pool, pool_least, pool_most);
    if (store.has("pool") && is_redis_url(*url))
      store.complain("pool", "pool is for postgres: all requests share one connection to Redis");
    if (shape)
      out.push_back(std::move(read));
    else
      store.complain("url", "url: " + shape.error().message);
  }
}

void read_process(report& to, const YAML::Node& root, settings::process& out) {
  section process(to, root, "the configuration", keys::process);
  if (!root.IsMap()) return;
  std::vector<listener> listeners;
  process.count_or_auto("threads", out.threads, 0, threads_most);
  process.count_or_auto("busy_poll_us", out.busy_poll_us, 0, 1000);
  process.choice("strict", out.strict, words::yes_or_no);
  process.duration("drain_timeout", out.drain_timeout, milliseconds(0));
  if (const auto node = process.node("admin")) {
    section admin(to, *node, "admin", keys::admin);
    out.admin_enabled = true;
    if (const auto listen = admin.address("listen")) out.admin = *listen;
    read_listener_tls(to, admin, out.admin, out.admin_shown);
    add_listener(to, listeners, {out.admin, "admin", admin.mark("listen")});
  }
  if (const auto node = process.node("log")) {
    section log(to, *node, "log", keys::log);
    log.choice("level", out.level, words::level);
    log.choice("format", out.format, words::format);
  }
  if (const auto node = process.node("stores")) read_stores(to, *node, out.stores);
  if (!process.has("leases")) process.require("gates");
  std::vector<lease_gate> leased;
  if (const auto node = process.node("gates")) leased = read_gates(to, *node, listeners, out);
  const auto leases = process.node("leases");
  if (leases) read_leases(to, *leases, listeners, out);
  check_lease_gates(to, leased, leases ? leases->Mark() : process.mark(), out);
}

// Control characters, and bytes that UTF-8 never has: with them yaml-cpp would guess at another encoding, in which this is
// another text, with other lines.
bool is_text_byte(unsigned char c) {
  return (c >= 0x20 && c != 0x7f && c < 0xfe) || c == '\t' || c == '\n' || c == '\r';
}

// Complains about the first byte that is no text.
bool is_text(report& to, std::string_view bytes) {
  const auto bad = std::find_if_not(bytes.begin(), bytes.end(), is_text_byte);
  if (bad == bytes.end()) return true;
  YAML::Mark at;
  at.line = static_cast<int>(std::count(bytes.begin(), bad, '\n'));
  const auto before = bytes.substr(0, static_cast<std::size_t>(bad - bytes.begin()));
  at.column = static_cast<int>(before.size() - (before.rfind('\n') + 1));
  to.add(at, "a byte that is no text: a configuration is UTF-8 without control characters");
  return false;
}

// Complains about a second document, which YAML::Load would not even look at.
bool is_one_document(report& to, const std::string& text) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  document_starts starts;
  if (!parser.HandleNextDocument(starts) || !parser.HandleNextDocument(starts)) return true;
  to.add(starts.last, "a configuration is one YAML document; this would be another one");
  return false;
}

void read_document(report& to, std::string_view text, settings::process& out) {
  if (text.size() > config_bytes_max) {
    to.add(YAML::Mark::null_mark(), "the configuration is larger than 1 MiB");
    return;
  }
  if (!is_text(to, text)) return;
  try {
    const std::string owned(text);
    if (!is_one_document(to, owned)) return;
    const auto root = YAML::Load(owned);
    if (root.IsNull())
      to.add(YAML::Mark::null_mark(), "the configuration is empty: it needs the key \"gates\"");
    else
      read_process(to, root, out);
  } catch (const YAML::Exception& e) {
    to.add(e.mark, "not YAML: " + fence::printable(e.msg, message_bytes_max));
  }
}

}  // namespace

std::string config_error::to_string() const {
  if (line == 0) return file + ": " + message;
  return file + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + message;
}

void throw_exception_from_error(const config_errors& errors, const boost::source_location&) {
  throw std::logic_error("unchecked result: " + (errors.empty() ? std::string() : errors[0].to_string()));
}

environment process_environment() {
  return {[](const std::string& name) -> std::optional<std::string> {
            const char* value = std::getenv(name.c_str());
            return value ? std::optional<std::string>(value) : std::nullopt;
          },
          read_file,
          [](const std::string& path) -> result<void> {
            const auto found = read_file(path);
            return found ? result<void>() : found.error();
          },
          backend::tls_context::check,
          backend::tls_server_context::check,
          [](const std::string& path) {
            std::error_code failed;
            return std::filesystem::is_directory(path, failed);
          },
          [](const std::string& certificate) { return backend::validity_problem(certificate, std::time(nullptr)); }};
}

environment without_secrets(environment from, std::string config) {
  return {[variable = std::move(from.variable)](const std::string& name) -> std::optional<std::string> {
            return variable(name).value_or("1");
          },
          [file = std::move(from.file), config = std::move(config)](const std::string& path) -> result<std::string> {
            auto found = file(path);
            if (found || path == config) return found;
            return {boost::system::in_place_value, "none"};
          }};
}

bool serves_anything(const settings::process& config) {
  return !config.redis_gates.empty() || !config.postgres_gates.empty() || !config.http_gates.empty() ||
         !config.leased.listen.empty();
}

config_result read_config(std::string_view text, std::string_view file_name, const environment& from) {
  report found(file_name, from);
  settings::process out;
  read_document(found, text, out);
  if (!found.empty()) return found.take();
  out.warnings = found.take_warnings();
  return out;
}

config_result load_config(const std::string& path, const environment& from) {
  const auto text = from.file(path);
  if (!text) return config_errors{{path, 0, 0, "cannot read the file: " + text.error().message}};
  return read_config(*text, path, from);
}

}  // namespace fencegate::cli
