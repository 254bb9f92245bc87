// The desk of a sidecar: one keeper for each lease, which renews when the client asks.
//
// Rule kept: what a client is told that it may do counts from when its request arrived, and so ends no later than what the
// issuer has confirmed behind that.
#pragma once

#include "base/metrics.hpp"
#include "base/result.hpp"
#include "lease/desk.hpp"
#include "lease/issuer.hpp"
#include "lease/keeper.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::lease {

// Who grants some resources, and where they are sealed.
struct lease_source {
  std::shared_ptr<issuer> by;
  std::vector<std::shared_ptr<seal_place>> places;
  keeper_request request;  // for these resources
};
// `ttl`, `stop_grace`: nullopt: the configuration's. An error: it cannot be had so.
using lease_sources = std::function<result<lease_source>(const std::vector<std::string>& resources,
                                                         std::optional<std::chrono::milliseconds> ttl,
                                                         std::optional<std::chrono::milliseconds> stop_grace)>;

class sidecar_desk final : public desk {
 public:
  sidecar_desk(boost::asio::io_context& context, lease_sources sources, metrics::leases& stats);
  ~sidecar_desk() override;  // what is held ends by itself: its clients may go on with it

  [[nodiscard]] call acquire(const lease_wish& wanted, clock_reading arrived, answer done) override;
  void told(const std::string& id) override;
  void not_told(const std::string& id, const fence::claims_list& tokens) override;
  void renew(const std::string& id, const fence::claims_list& tokens, clock_reading arrived, answer done) override;
  void release(const std::string& id, const fence::claims_list& tokens,
               std::function<void(const std::optional<lease_refusal>&)> done) override;
  [[nodiscard]] std::vector<lease_seen> list() const override;
  [[nodiscard]] call watch(const std::string& id, std::function<void(const lease_event&)> tell) override;

 private:
  class state;
  std::shared_ptr<state> state_;
};

}  // namespace fencegate::lease
