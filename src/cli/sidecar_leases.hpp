// The leases of `fencegate serve`: those that it takes for its clients, and those that its gates hold for their writers.
#pragma once

#include "admin/admin_server.hpp"
#include "admin/lease_server.hpp"
#include "admin/status_view.hpp"
#include "base/metrics.hpp"
#include "base/result.hpp"
#include "cli/operators.hpp"
#include "cli/running_gates.hpp"
#include "fence/gate_settings.hpp"
#include "lease/gate_switch.hpp"
#include "lease/sidecar_desk.hpp"
#include "lease/term_record.hpp"
#include "lease/writers.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::cli {

class sidecar_leases : private lease::gate_switch {
 public:
  // REQUIRES: one thread runs `io`, and none yet; the others live longer.
  sidecar_leases(boost::asio::io_context& io, const settings::process& config, metrics::process& stats);
  ~sidecar_leases() override;
  sidecar_leases(const sidecar_leases&) = delete;
  sidecar_leases& operator=(const sidecar_leases&) = delete;

  // `gates`: they live until release(), and those with a lease are never exchanged. The error says why nothing can be served.
  [[nodiscard]] result<void> start(const running_gates& gates);
  // A gate met a mark above the token of a request, which may be that of the lease that it holds. Any thread.
  void superseded(std::string_view gate, const fence::rejection& why);
  // On `io`'s thread.
  [[nodiscard]] admin::lease_status status() const;
  // The process is about to end: nothing is taken any more.
  void drain() { writers_.drain(); }
  // No gate is left: gives back what they held, and runs `io` for it. REQUIRES: nobody else runs it.
  void release();

 private:
  [[nodiscard]] result<std::string_view> protocol_of(std::string_view gate) const override;
  void hand_over(std::string_view gate, int socket, fence::claims_list tag) override;
  [[nodiscard]] result<void> make_writers();
  [[nodiscard]] result<void> start_listeners();

  boost::asio::io_context& io_;
  const settings::process& config_;
  metrics::process& stats_;
  const running_gates* gates_ = nullptr;  // since start()
  boost::asio::thread_pool disk_{1};
  std::optional<lease::state_directory> state_;
  lease::lease_sources sources_;
  lease::writers writers_;
  std::optional<lease::sidecar_desk> desk_;
  std::optional<operators> operators_;
  std::optional<admin::lease_server> api_;
  std::optional<admin::admin_server> probes_;
};

}  // namespace fencegate::cli
