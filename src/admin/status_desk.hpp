// Collects what the status page shows: the gates' stats, once a second, what the board remembers, and the leases.
//
// All of it runs on its context's thread; the board and the stats are what other threads write.
#pragma once

#include "admin/status_board.hpp"
#include "admin/status_view.hpp"
#include "base/metrics.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace fencegate::admin {

class status_desk {
 public:
  // `gates`: in the order of the stats. `leases`: asked when a status is told, not all the time; limits::status_resources_max
  // of them are shown. Empty: there are none.
  // REQUIRES: stats and board live longer.
  status_desk(boost::asio::io_context& io, std::vector<gate_facts> gates, const metrics::process& stats,
              const status_board& board, std::function<lease_status()> leases);

  // From here on it tells of these.
  void show(std::vector<gate_facts> gates);

  // Looks at the stats once a second, from here on.
  void start();
  // What it does each time.
  void look();

  // What has changed behind `version`, which is moved on; 0: all that is known. The gates and leases are there always.
  [[nodiscard]] std::string json_since(std::uint64_t& version);

 private:
  // What was counted, and in each of the last seconds.
  struct counted {
    std::uint64_t admitted = 0, rejected = 0;
    traffic lately{};
  };
  [[nodiscard]] gate_status status_of(const gate_facts& facts, const metrics::gate& stats) const;
  [[nodiscard]] const lease_status& leases_now();

  boost::asio::steady_timer timer_;
  std::vector<gate_facts> facts_;
  const metrics::process& stats_;
  const status_board& board_;
  const std::function<lease_status()> leases_;
  const wall_time started_ = std::chrono::system_clock::now();
  std::map<std::string, counted, std::less<>> counted_;  // by the gate's name
  lease_status leased_;  // as it was asked last: there may be many, and several who watch
  std::chrono::steady_clock::time_point asked_{};
};

}  // namespace fencegate::admin
