#include "client/wish.hpp"

#include "base/address_text.hpp"
#include "base/limits.hpp"
#include "fence/printable.hpp"
#include "lease/api_issuer.hpp"
#include "lease/local_http.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace fencegate::client {

using std::chrono::milliseconds;

std::string name_of_this_process() {
  std::array<char, 150> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::string out(host.data());
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '.'; }, '_');
  return out + ":" + std::to_string(getpid());
}

result<std::vector<std::string>> read_resources(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= text.size();) {
    const auto end = std::min(text.find(',', at), text.size());
    std::string name(text.substr(at, end - at));
    if (!fence::is_resource_name(name))
      return error{fence::quoted(text) + ": a resource is 1 to 200 of the characters A-Z a-z 0-9 _ . : / -"};
    if (std::find(out.begin(), out.end(), name) != out.end()) return error{"the resource " + name + " stands twice"};
    out.push_back(std::move(name));
    at = end + 1;
  }
  if (out.size() > limits::tag_resources_max)
    return error{"more than " + std::to_string(limits::tag_resources_max) + " resources"};
  return {boost::system::in_place_value, std::move(out)};
}

result<settings::address> read_api(const std::string& text) {
  constexpr std::string_view http = "http://";
  std::string_view at = text.empty() ? "unix:/run/fencegate/lease.sock" : std::string_view(text);
  const bool is_url = at.starts_with(http);
  if (is_url) at.remove_prefix(http.size());
  if (is_url && at.ends_with('/')) at.remove_suffix(1);
  auto parsed = parse_address(at);
  if (!parsed || (parsed->is_unix() ? is_url : !is_url || parsed->port == 0))
    return error{"--api: " + fence::quoted(text) + " is neither unix:/path nor http://host:port"};
  if (const auto reachable = lease::needs_no_look_up(*parsed); !reachable)
    return error{"--api: " + reachable.error().message};
  return parsed;
}

result<lease::timing> checked_times(lease::timing times, std::optional<milliseconds> stop_grace) {
  times.stop_grace = stop_grace.value_or(times.stop_grace);
  if (const auto wrong = times.violated()) return error{*wrong};
  if (times.ttl > lease_time_most) return error{"the ttl is 24h at most"};
  return times;
}

lease::keeper_request keeper_request_of(const std::vector<std::string>& resources, const lease::timing& times) {
  lease::keeper_request out;
  out.resources = resources;
  out.holder = name_of_this_process();
  out.times = times;
  return out;
}

lease_planner plan_by_sidecar(const lease_wish& wish) {
  return [&wish](const std::vector<std::string>& resources) -> result<lease_plan> {
    const auto api = read_api(wish.api);
    if (!api) return api.error();
    const auto times = checked_times(lease::timing::of(wish.ttl.value_or(lease::timing().ttl)), wish.stop_grace);
    if (!times) return times.error();
    auto from = [api = *api, times = *times](boost::asio::io_context& io) {
      const auto by = std::make_shared<lease::api_issuer>(io, api, times.patience(), times.stop_grace);
      return std::pair(std::shared_ptr<lease::issuer>(by), std::vector<std::shared_ptr<lease::seal_place>>());
    };
    return lease_plan{std::move(from), keeper_request_of(resources, *times)};
  };
}

result<lease_plan> plan_of(const lease_wish& wish, const lease_planner& planner) {
  const auto resources = read_resources(wish.resources);
  if (!resources) return resources.error();
  if (wish.at_least > lease_time_most) return error{"--at-least is 24h at most"};
  auto plan = planner(*resources);
  if (!plan) return plan;
  plan->wanted.wait = wish.wait;
  plan->wanted.at_least = wish.at_least;
  return plan;
}

hold::ending ending_of(const lease::keeper_failure& why, const lease_wish& wish) {
  using kind = lease::keeper_failure::kind;
  if (why.what == kind::unreachable) return hold::ending_of(hold::outcome::unreachable);
  if (why.what != kind::busy) return hold::ending_of(hold::outcome::error);
  auto end = hold::ending_of(hold::outcome::busy);
  end.status = wish.busy_exit.value_or(end.status);
  return end;
}

}  // namespace fencegate::client
