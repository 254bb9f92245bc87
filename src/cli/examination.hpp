// Looks for hazards in all that a configuration names: its listeners, and the servers that keep marks (backend/hazards.hpp).
// All are asked at once, without blocking, each with the patience that it gives a connection.
#pragma once

#include "backend/hazards.hpp"
#include "base/result.hpp"
#include "fence/gate_settings.hpp"

#include <boost/asio/io_context.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::cli {

struct examined {
  std::string
      where;  // "gate:cache", "store:ledger"; several that are one server, one user and one database: "gate:db, store:ledger"
  std::string at;  // its address
  backend::findings found;
};

struct hazard_report {
  std::vector<examined> all;

  [[nodiscard]] std::size_t hazards() const;
  [[nodiscard]] std::size_t unknown() const;
  // What the servers that could not be asked at all are; "" = all could.
  [[nodiscard]] std::string unreached() const;
};

// What is hazardous in its listeners.
[[nodiscard]] std::vector<examined> examine_listeners(const settings::process& config);
// Certificates that have expired, are not valid yet, or expire soon.
[[nodiscard]] std::vector<examined> examine_certificates(const settings::process& config);

class examination : public std::enable_shared_from_this<examination> {
 public:
  // REQUIRES: both live longer.
  examination(boost::asio::io_context& context, const settings::process& config) : context_(context), config_(config) {}

  // `done` once, later, on the context's thread, unless this is dropped before.
  void start(std::function<void(const hazard_report&)> done);

 private:
  void ask(const std::string& place, std::size_t row);
  void answered(std::size_t row, const backend::findings& found);

  boost::asio::io_context& context_;
  const settings::process& config_;
  std::vector<std::shared_ptr<void>> questions_;
  std::size_t unanswered_ = 0;
  hazard_report report_;
  std::function<void(const hazard_report&)> done_;
};

// Blocks until all have been asked.
[[nodiscard]] hazard_report examine(const settings::process& config);

// What strict: true makes of it. Errors: there is a hazard, or a server could not be asked.
[[nodiscard]] result<void> judge_strictly(const hazard_report& report);

// A line for each, of level warn; what is not known is of level info.
void log_hazards(const hazard_report& report);

}  // namespace fencegate::cli
