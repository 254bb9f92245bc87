#include "cli/config_gate_common.hpp"

#include <limits>
#include <string>
#include <utility>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

}  // namespace

std::optional<secret> read_secret(report& to, section& in, std::string_view key) {
  constexpr std::size_t secret_bytes_max = 64 * 1024;
  const auto path = in.text(key);
  if (!path) return std::nullopt;
  auto text = to.from.file(*path);
  if (!text) {
    in.complain(key, std::string(key) + ": cannot read the file: " + text.error().message);
    return std::nullopt;
  }
  // Editors and `echo` end a file with a line end that is no part of the secret.
  if (text->ends_with('\n')) text->pop_back();
  if (text->ends_with('\r')) text->pop_back();
  if (!text->empty() && text->size() <= secret_bytes_max) return secret::of_file(std::move(*text));
  in.complain(key, std::string(key) + ": the file " + (text->empty() ? "is empty" : "is too long for a secret"));
  return std::nullopt;
}

void read_policy(section& policy, fence::policy& out) {
  policy.choice("mode", out.mode, words::mode);
  policy.choice("missing_token", out.missing, words::missing_token);
  policy.choice("equal_token", out.equal, words::equal_token);
  policy.choice("reads", out.read, words::reads);
  policy.count("max_step", out.max_step, 0, std::numeric_limits<std::int64_t>::max());
}

void read_timeouts(report& to, const YAML::Node& node, settings::timeouts& out) {
  section timeouts(to, node, "timeouts", keys::timeouts);
  timeouts.duration("connect", out.connect, milliseconds(1));
  timeouts.duration("head", out.head, milliseconds(0));
  timeouts.duration("idle", out.idle, milliseconds(0));
  timeouts.duration("write", out.write, milliseconds(0));
}

std::optional<upstream> read_upstream(report& to, section& gate, url_parser* parse) {
  const auto text = gate.url("upstream");
  const auto password = read_secret(to, gate, "password_file");
  if (!text) return std::nullopt;
  auto url = parse(*text);
  if (!url) {
    gate.complain("upstream", "upstream: " + url.error().message);
    return std::nullopt;
  }
  if (gate.has("password_file") && !url->control.password.empty())
    gate.complain("password_file", "upstream has a password already: give one of them");
  if (password) url->control.password = *password;
  return std::move(*url);
}

namespace {

void warn_of_validity(const report& to, section& in, std::string_view key, const std::string& certificate) {
  if (certificate.empty() || !to.from.validity) return;
  if (auto problem = to.from.validity(certificate); !problem.empty()) in.warn(key, certificate + ": " + problem);
}

}  // namespace

void check_files(report& to, section& in, std::string_view key, const settings::tls& secured) {
  const auto check = [&](std::string_view parameter, const std::string& path) {
    if (path.empty() || !to.from.readable) return;
    if (const auto found = to.from.readable(path); !found)
      in.complain(key, std::string(key) + ": cannot read " + std::string(parameter) + ": " + found.error().message);
  };
  const auto complaints = to.size();
  check(secured.called.authorities, secured.authorities);
  check(secured.called.certificate, secured.certificate);
  check(secured.called.key, secured.key);
  check(secured.called.revoked, secured.revoked);
  if (!secured.wanted() || complaints != to.size() || !to.from.proof_to_server) return;
  if (const auto usable = to.from.proof_to_server(secured); !usable)
    in.complain(key, std::string(key) + ": " + usable.error().message);
  warn_of_validity(to, in, key, secured.certificate);
}

namespace {

// The path of a file that can be read, or "".
std::string read_path(report& to, section& in, std::string_view key) {
  const auto path = in.text(key);
  if (!path) return "";
  if (!path->starts_with('/') || path->find('\0') != std::string::npos)
    in.complain(key, std::string(key) + " is the absolute path of a PEM file");
  else if (const auto found = to.from.readable ? to.from.readable(*path) : result<void>(); !found)
    in.complain(key, std::string(key) + ": cannot read the file: " + found.error().message);
  return *path;
}

std::vector<std::string> read_names(report& to, const YAML::Node& list) {
  std::vector<std::string> out;
  if (list.IsScalar()) {
    if (auto name = text_of(to, list, "client_name")) out.push_back(std::move(*name));
    return out;
  }
  if (!is_list(to, list, "client_name")) return out;
  for (const auto& node : list)
    if (auto name = text_of(to, node, "a name")) out.push_back(std::move(*name));
  if (out.empty()) to.add(list.Mark(), "client_name is empty: no client would be let in");
  return out;
}

}  // namespace

void read_listener_tls(report& to, section& gate, const settings::address& listen, settings::listener_tls& out) {
  const auto node = gate.node("tls");
  if (!node) return;
  const auto complaints = to.size();
  section tls(to, *node, "tls", keys::tls);
  tls.require("cert");
  tls.require("key");
  out.certificate = read_path(to, tls, "cert");
  out.key = read_path(to, tls, "key");
  out.client_ca = read_path(to, tls, "client_ca");
  out.client_crl = read_path(to, tls, "client_crl");
  tls.choice("client_certificate", out.client_required, words::client_certificate);
  if (const auto names = tls.node("client_name")) out.client_name = read_names(to, *names);
  for (const auto* key : {"client_crl", "client_certificate", "client_name"})
    if (tls.has(key) && !tls.has("client_ca"))
      tls.complain(key, std::string(key) + " needs client_ca, by which the certificates of clients are signed");
  if (tls.has("client_name") && !out.client_required)
    tls.complain("client_name", "client_name needs client_certificate: required: a client without one has no name");
  if (complaints == to.size() && to.from.proof_to_clients)
    if (const auto usable = to.from.proof_to_clients(out); !usable) tls.complain("cert", usable.error().message);
  if (complaints == to.size()) warn_of_validity(to, tls, "cert", out.certificate);
  if (listen.is_unix()) gate.complain("tls", "there is no TLS on a unix socket: leave tls out, or listen on a port");
}

bool is_list(report& to, const YAML::Node& node, std::string_view what) {
  if (node.IsSequence()) return true;
  to.add(node.Mark(), std::string(what) + " must be a list");
  return false;
}

}  // namespace fencegate::cli
