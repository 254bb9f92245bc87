// What `hold` and `lease acquire` ask for, and who grants it: a sidecar by its API, or else what another planner knows.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "hold/exit_status.hpp"
#include "lease/issuer.hpp"
#include "lease/keeper.hpp"
#include "lease/timing.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::client {

// A lease, and its at_least, last no longer.
inline constexpr std::chrono::hours lease_time_most{24};

struct lease_wish {
  std::string api;        // where a sidecar answers: "unix:/path", "http://127.0.0.1:9181"; "": its default socket
  std::string resources;  // "orders" or "orders,payments"
  std::optional<std::chrono::milliseconds> ttl{};
  std::optional<std::chrono::milliseconds> wait{};  // nullopt: for ever
  std::optional<int> busy_exit{};
  std::chrono::milliseconds at_least{0};
  std::optional<std::chrono::milliseconds> stop_grace{};
};

// Who grants the lease, and where it is sealed.
using lease_source =
    std::function<std::pair<std::shared_ptr<lease::issuer>, std::vector<std::shared_ptr<lease::seal_place>>>(
        boost::asio::io_context&)>;

struct lease_plan {
  lease_source from;
  lease::keeper_request wanted;
};

using lease_planner = std::function<result<lease_plan>(const std::vector<std::string>& resources)>;

// REQUIRES: `wish` outlives it.
[[nodiscard]] lease_planner plan_by_sidecar(const lease_wish& wish);
// The plan of all that the wish says. Errors: what is wrong with it.
[[nodiscard]] result<lease_plan> plan_of(const lease_wish& wish, const lease_planner& planner);

// "orders" or "orders,payments". Errors: what is no name of a resource, one that stands twice, too many.
[[nodiscard]] result<std::vector<std::string>> read_resources(std::string_view text);

// Where a sidecar answers, as a command line has it. Errors: also a host that would have to be looked up.
[[nodiscard]] result<settings::address> read_api(const std::string& text);

// nullopt: that of `times`. Errors: times that do not fit each other.
[[nodiscard]] result<lease::timing> checked_times(lease::timing times,
                                                  std::optional<std::chrono::milliseconds> stop_grace);

// "host:4711", for people who ask who holds it.
[[nodiscard]] std::string name_of_this_process();

// By this process; waits for ever.
[[nodiscard]] lease::keeper_request keeper_request_of(const std::vector<std::string>& resources,
                                                      const lease::timing& times);

// How a process ends that did not get the lease.
[[nodiscard]] hold::ending ending_of(const lease::keeper_failure& why, const lease_wish& wish);

}  // namespace fencegate::client
