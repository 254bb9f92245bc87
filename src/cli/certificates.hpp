// The certificates that a configuration names: the process tells in time when one expires.
#pragma once

#include "base/metrics.hpp"
#include "fence/gate_settings.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::cli {

struct named_certificate {
  std::string where;  // "admin", "gate:cache", "store:ledger"
  std::string path;
};
// Those that listeners show their clients, and that gates and stores show their servers. By path, each once.
[[nodiscard]] std::vector<named_certificate> certificates_of(const settings::process& config);

// Looks at the files once a minute: the metric tells when each expires, and the log once a day, for two weeks before.
class certificate_watch {
 public:
  // REQUIRES: the context and the stats live longer.
  certificate_watch(boost::asio::io_context& io, metrics::process& stats) : stats_(stats), timer_(io) {}

  // From now on those of this configuration.
  void show(const settings::process& config);

 private:
  void look();

  metrics::process& stats_;
  boost::asio::steady_timer timer_;
  std::vector<named_certificate> all_;
  std::map<std::string, std::time_t> told_;  // by path
};

}  // namespace fencegate::cli
