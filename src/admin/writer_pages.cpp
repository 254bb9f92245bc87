#include "admin/writer_pages.hpp"

#include "admin/lease_body.hpp"
#include "base/json_text.hpp"

#include <ctime>
#include <iomanip>
#include <sstream>
#include <string>
#include <utility>

namespace fencegate::admin {
namespace {

using lease::writer_phase;

// RFC 3339, in UTC.
std::string text_of(std::chrono::system_clock::time_point at) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::ostringstream out;
  out << std::put_time(&parts, "%Y-%m-%dT%H:%M:%SZ");
  return out.str();
}

std::string json_of(const lease::writer_view& seen) {
  std::string out;
  json_object object(out);
  object.add("writer", seen.writer);
  object.add("state", name_of(seen.phase));
  object.add("since", text_of(seen.since));
  object.add_list("resources", seen.resources);
  if (!seen.claims.empty()) add_lease_tokens(out, object, seen.claims);
  if (!seen.held_by.empty()) object.add("held_by", seen.held_by);
  object.add("detail", seen.detail);
  object.end();
  return out;
}

bool is_well(const lease::writer_view& seen, bool holding_only) {
  return seen.phase == writer_phase::holding || (seen.phase == writer_phase::standby && !holding_only);
}

lease_answer shown(const std::optional<lease::writer_view>& seen, bool holding_only = false) {
  if (!seen) return lease_problem(404, "nothing here holds a lease for a writer under this name");
  return {is_well(*seen, holding_only) ? 200U : 503U, json_of(*seen)};
}

lease_answer started(const lease_request& request, std::string_view writer, lease::writer_desk& writers) {
  using report = lease::writer::report;
  if (auto wrong = refuse_type(request)) return std::move(*wrong);
  const auto told = read_writer_start(request.body);
  if (!told) return lease_problem(400, told.error().message);
  const auto outcome = writers.started(writer, told->container, told->at);
  if (!outcome) return lease_problem(404, "no gate here holds a lease for a writer of this name");
  switch (*outcome) {
    case report::counted: return lease_released();
    case report::early:
      return lease_problem(409,
                           "too early: it was started before the lease was lost, or before this sidecar was started");
    case report::ahead:
      return lease_problem(409, "this start is still to come: it is no time of this machine's CLOCK_BOOTTIME");
    case report::stranger: break;
  }
  return lease_problem(404, "the configuration of this writer names its containers: name one of them");
}

// What stands between the two, if it is one word.
std::optional<std::string_view> between(std::string_view path, std::string_view front, std::string_view end) {
  if (path.size() <= front.size() + end.size() || !path.starts_with(front) || !path.ends_with(end)) return std::nullopt;
  path.remove_prefix(front.size());
  path.remove_suffix(end.size());
  if (path.find('/') != std::string_view::npos) return std::nullopt;
  return path;
}

constexpr std::string_view gates = "/v1/gates/", of_writer = "/writer", writers_path = "/v1/writers/";

lease_answer of_unix_socket(const lease_request& request, std::string_view path, std::string_view query,
                            lease::writer_desk& writers) {
  const bool post = request.head.method == "POST";
  if (const auto name = between(path, writers_path, "/started")) {
    if (!query.empty()) return lease_problem(400, "there is no query here");
    return post ? started(request, *name, writers) : lease_wrong_method("POST");
  }
  const auto name = between(path, writers_path, "/heartbeat");
  if (!name) return lease_problem(404, "there are /v1/writers/{writer}/started and /v1/writers/{writer}/heartbeat");
  if (!post) return lease_wrong_method("POST");
  if (!query.empty() && query != "?holding") return lease_problem(400, "the only query here is ?holding");
  return shown(writers.heard(*name), !query.empty());
}

}  // namespace

std::optional<lease_answer> answer_about_writers(const lease_request& request, const settings::address& listen,
                                                 lease::writer_desk& writers) {
  const auto& head = request.head;
  const auto path = head.target.substr(0, head.target.find('?'));
  const auto query = head.target.substr(path.size());
  if (!path.starts_with(gates) && !path.starts_with(writers_path)) return std::nullopt;
  if (auto why = why_stranger("the API of leases", head, listen)) return lease_problem(403, *why);
  if (path.starts_with(writers_path)) {
    // Every container of a pod reaches its ports: a writer's start is reported where the file's rights say who may.
    if (!listen.is_unix()) return lease_problem(403, "what a writer tells is heard on unix sockets only");
    return of_unix_socket(request, path, query, writers);
  }
  const auto gate = between(path, gates, of_writer);
  if (!gate) return lease_problem(404, "there is /v1/gates/{gate}/writer");
  if (head.method != "GET") return lease_wrong_method("GET");
  return shown(writers.of_gate(*gate));
}

std::optional<page_answer> answer_probe(const page_request& request, lease::writer_desk& writers) {
  const auto path = request.target.substr(0, request.target.find('?'));
  const auto gate = between(path, gates, of_writer);
  if (!gate || (request.method != "GET" && request.method != "HEAD")) return std::nullopt;
  auto answer = shown(writers.heard_of_gate(*gate));
  page_answer out;
  out.status = answer.status;
  out.body = std::move(answer.body);
  out.content_type = answer.content_type;
  return out;
}

}  // namespace fencegate::admin
