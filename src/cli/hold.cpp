#include "cli/hold.hpp"

#include "cli/commands.hpp"
#include "cli/lease_places.hpp"

#include <ostream>
#include <utility>

namespace fencegate::cli {

int hold(const hold_request& request, const environment& from, std::ostream& err) {
  if (request.path.empty() && request.issuer.empty())
    return client::hold(request, client::plan_by_sidecar(request), err);
  std::optional<settings::process> config;
  const auto plan = [&](const std::vector<std::string>& resources) -> result<client::lease_plan> {
    if (request.private_gate)
      return error{"--private-gate is opened by a sidecar, which is asked where there is no -c: see --api"};
    if (request.path.empty()) return error{"--issuer is for a configuration: the sidecar's says who grants"};
    auto read = load_config(request.path, from);
    if (!read) {
      print_errors(read.error(), err);
      return error{"nothing can be held by this configuration"};
    }
    config = std::move(*read);
    const auto by = plan_lease(*config, resources, request.issuer);
    if (!by) return by.error();
    const auto times = times_of(config->leased, request.ttl, request.stop_grace);
    if (!times) return times.error();
    auto source = [&config = *config, plan = *by, times = *times](boost::asio::io_context& io) {
      return std::pair(make_issuer(io, config, plan, times), make_places(io, config, plan));
    };
    return client::lease_plan{std::move(source), keeper_request_of(*config, *by, resources, *times)};
  };
  return client::hold(request, plan, err);
}

}  // namespace fencegate::cli
