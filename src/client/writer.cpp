#include "client/writer.hpp"

#include "base/address_text.hpp"
#include "base/json_text.hpp"
#include "base/name_text.hpp"
#include "base/quantity_text.hpp"
#include "client/said.hpp"
#include "client/sidecar_words.hpp"
#include "client/wish.hpp"
#include "fence/printable.hpp"
#include "lease/clock.hpp"
#include "lease/local_http.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <ostream>
#include <thread>
#include <utility>

namespace fencegate::client {
namespace {

using hold::outcome;
using lease::boot_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds started_patience{30};
// For an answer of the sidecar, and between two questions. Kubelet's probes are given 5 s (docker/k8s/lease-gates.yaml).
constexpr milliseconds answer_patience{3'000}, ask_again{200};
enum class probe_status : std::uint8_t { ok = 0, failed = 1, not_executable = 126, not_found = 127 };
int exit_of(probe_status what) { return static_cast<int>(what); }

// An answer that is not to be asked for again, or what came last by `until`. Meanwhile the sidecar may be started anew.
template <typename Settled>
result<lease::local_answer> ask_until(boot_clock::time_point until, const settings::address& at,
                                      const lease::local_request& what, Settled is_settled) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(until - boot_clock::now());
    auto came = lease::local_http::ask_now(at, what, std::clamp(left, ask_again, answer_patience));
    if ((came && is_settled(*came)) || boot_clock::now() + ask_again >= until) return came;
    std::this_thread::sleep_for(ask_again);
  }
}

// Where the sidecar answers about a writer.
result<settings::address> api_of(const std::string& api, const std::string& writer) {
  if (!is_writer_name(writer))
    return error{fence::quoted(writer) + " is no name of a writer: 1 to 64 letters, digits, _ . and -"};
  auto at = read_api(api);
  // A port can be reached by other containers and users, to whom nobody listens about this.
  if (at && !at->is_unix()) return error{"--api: of writers the sidecar hears over its unix socket alone"};
  return at;
}

result<std::int64_t> start_of_process(pid_t pid) {
  const auto path = "/proc/" + std::to_string(pid) + "/stat";
  std::ifstream file(path, std::ios::binary);
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  if (stat.empty()) return error{path + " cannot be read: is there such a process?"};
  return start_of(stat, ::sysconf(_SC_CLK_TCK));
}

struct probe_url {
  settings::address at;
  std::string host, target;
};

result<probe_url> read_url(std::string_view text) {
  constexpr std::string_view http = "http://";
  const auto wrong = [&](const std::string& why) { return error{"--and: " + fence::quoted(text) + " " + why}; };
  if (!text.starts_with(http)) return wrong("is no http:// address; for anything else: -- PROBE");
  if (std::any_of(text.begin(), text.end(), [](char c) { return c <= ' ' || c > '~' || c == '#'; }))
    return wrong("has a character that no address has");
  text.remove_prefix(http.size());
  const auto end = std::min(text.find_first_of("/?"), text.size());
  const auto host = text.substr(0, end);
  if (host.empty()) return wrong("is not http://host:port/path");
  const bool has_port = host.rfind(':') != std::string_view::npos && !host.ends_with(']');
  auto at = parse_address(std::string(host) + (has_port ? "" : ":80"));
  if (!at || at->is_unix() || host.starts_with(':')) return wrong("is not http://host:port/path");
  if (const auto reachable = lease::needs_no_look_up(*at); !reachable)
    return error{"--and: " + reachable.error().message};
  const auto path = text.substr(end);
  return probe_url{*at, std::string(host), (path.starts_with('/') ? "" : "/") + std::string(path)};
}

// As an httpGet probe has it: what is not an error is a success; no redirection is followed.
int ask_url(const probe_url& url, std::ostream& err) {
  const lease::local_request what{
      .method = "GET", .target = url.target, .body = {}, .host = url.host, .answer_bytes_max = 0};
  const auto came = lease::local_http::ask_now(url.at, what, answer_patience);
  if (!came) return say_and_end(err, came.error().message, exit_of(probe_status::failed));
  if (came->status >= 200 && came->status < 400) return exit_of(probe_status::ok);
  return say_and_end(err, "http://" + url.host + url.target + ": status " + std::to_string(came->status),
                     exit_of(probe_status::failed));
}

int become_probe(const std::vector<std::string>& probe, std::ostream& err) {
  std::vector<char*> arguments;
  for (const auto& one : probe) arguments.push_back(const_cast<char*>(one.c_str()));  // exec() changes none
  arguments.push_back(nullptr);
  err.flush();
  ::execvp(arguments.front(), arguments.data());
  const int why = errno;
  return say_and_end(err, probe.front() + ": " + std::strerror(why),
                     exit_of(why == ENOENT ? probe_status::not_found : probe_status::not_executable));
}

}  // namespace

result<std::int64_t> start_of(std::string_view stat, long ticks_per_second) {
  // The second field is the program's name in parentheses, which may have any of them in it. The third follows.
  constexpr int start_field = 22;
  constexpr std::int64_t second = 1000;
  const error wrong{"what /proc says of the process is not understood"};
  const auto name_end = stat.rfind(')');
  if (name_end == std::string_view::npos || ticks_per_second <= 0) return wrong;
  auto rest = stat.substr(name_end + 1);
  for (int field = 3;; ++field) {
    if (!rest.starts_with(' ')) return wrong;
    rest.remove_prefix(1);
    const auto end = std::min(rest.find_first_of(" \n"), rest.size());
    if (field == start_field) {
      const auto ticks = parse_count(rest.substr(0, end), 0, std::numeric_limits<std::int64_t>::max() / second);
      if (!ticks) return wrong;
      return *ticks * second / ticks_per_second;
    }
    rest.remove_prefix(end);
  }
}

int tell_started(const started_request& what, std::ostream& err) {
  const auto api = api_of(what.api, what.writer);
  if (!api) return say_and_end(err, api.error().message, status_of(outcome::error));
  const auto started = start_of_process(what.pid);
  if (!started) return say_and_end(err, started.error().message, status_of(outcome::error));
  lease::local_request request{.method = "POST", .target = "/v1/writers/" + what.writer + "/started"};
  json_object body(request.body);
  body.add("started_ms", *started);
  if (!what.container.empty()) body.add("container", what.container);
  body.end();
  const auto came = ask_until(boot_clock::now() + started_patience, *api, request,
                              [](const lease::local_answer& answer) { return answer.status < 500; });
  if (came && came->status == 204) return 0;
  const auto why = came ? sidecar_words(came->body) : came.error().message;
  const auto told = why.empty() ? "the sidecar answered with status " + std::to_string(came->status) : why;
  if (!came || came->status >= 500) return say_and_end(err, told, status_of(outcome::unreachable));
  return say_and_end(err, told, came->status == 409 ? 1 : status_of(outcome::error));
}

int heartbeat(const heartbeat_request& what, std::ostream& err) {
  const auto api = api_of(what.api, what.writer);
  if (!api) return say_and_end(err, api.error().message, status_of(outcome::error));
  std::optional<probe_url> url;
  if (!what.url.empty()) {
    auto read = read_url(what.url);
    if (!read) return say_and_end(err, read.error().message, status_of(outcome::error));
    url = std::move(*read);
  }
  const lease::local_request request{
      .method = "POST", .target = "/v1/writers/" + what.writer + "/heartbeat" + (what.holding ? "?holding" : "")};
  const auto came =
      ask_until(boot_clock::now() + answer_patience, *api, request, [](const lease::local_answer&) { return true; });
  if (!came) return say_and_end(err, came.error().message, exit_of(probe_status::failed));
  const auto state = sidecar_words(came->body);
  err << "fencegate lease: writer " << what.writer << ": "
      << (state.empty() ? "status " + std::to_string(came->status) : state) << '\n';
  if (came->status != 200) return exit_of(probe_status::failed);
  if (url) return ask_url(*url, err);
  return what.probe.empty() ? 0 : become_probe(what.probe, err);
}

}  // namespace fencegate::client
