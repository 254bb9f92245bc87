// Seals in a Redis that keeps marks for its own gate, or for HTTP gates.
#pragma once

#include "lease/issuer.hpp"
#include "lease/redis_caller.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace fencegate::lease {

class redis_seal_place final : public seal_place {
 public:
  // `patience`: for each answer.
  redis_seal_place(boost::asio::io_context& context, std::string name, const settings::mark_store& at,
                   std::chrono::milliseconds patience);

  [[nodiscard]] const std::string& name() const override { return name_; }
  void identify(std::function<void(const answer<std::string>&)> done) override;
  void look(const std::vector<std::string>& resources,
            std::function<void(const answer<std::vector<backend::looked_mark>>&)> done) override;
  void seal(const term& held, const std::string& issuer_id,
            std::function<void(const backend::store_result<void>&)> done) override;
  void move(const std::string& resource, const std::string& from, const std::string& to,
            std::function<void(const result<std::string>&)> done) override;

 private:
  const std::string name_;
  redis_caller caller_;
};

}  // namespace fencegate::lease
