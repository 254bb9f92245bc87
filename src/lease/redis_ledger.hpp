// Leases of a Redis (backend/redis_lease_scripts.hpp). Not of a Redis Cluster, where a lease and the epoch lie in two slots.
//
// Rule kept: whoever has met one issuer here never acts under another: when this Redis lost its leases, with the issuer's id,
// nothing is granted or renewed any more.
#pragma once

#include "lease/issuer.hpp"
#include "lease/redis_caller.hpp"
#include "lease/release_listeners.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::lease {

class redis_issuer final : public issuer {
 public:
  // `patience`: for the answer to a renewal.
  redis_issuer(boost::asio::io_context& context, const settings::mark_store& at, std::chrono::milliseconds patience);

  void identify(std::function<void(const answer<std::string>&)> done) override;
  void acquire(const grant_request& wanted, std::function<void(const grant_answer&)> done) override;
  void renew(const term& held, std::function<void(const result<renewal>&)> done) override;
  void release(const term& held, bool unused, std::function<void(const result<void>&)> done) override;
  void forget_store(const std::string& resource, const std::string& store,
                    std::function<void(const result<bool>&)> done) override;
  void thaw(const std::string& resource, std::function<void(const result<bool>&)> done) override;
  // It hears of those that went through here.
  [[nodiscard]] std::shared_ptr<void> on_release(std::function<void(const std::string& resource)> tell) override {
    return listeners_->add(std::move(tell));
  }
  void note_waiter(const waiter_note& note) override;
  void list(std::function<void(const result<std::vector<lease_entry>>&)> done) override;

 private:
  using words = std::vector<std::string>;
  using word_callback = std::function<void(const result<words>&)>;
  struct listing;

  // A script with these keys and arguments behind those that all have.
  void run(const std::string& script, words keys, words arguments, std::chrono::milliseconds patience,
           word_callback done);
  void list_more(const std::shared_ptr<listing>& l);

  const std::chrono::milliseconds patience_, grant_patience_;
  redis_caller caller_;
  std::string id_;  // "" until it was told
  const std::shared_ptr<release_listeners> listeners_ = std::make_shared<release_listeners>();
};

}  // namespace fencegate::lease
