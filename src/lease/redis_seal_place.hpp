// Seals in a Redis that keeps marks for its own gate, or for HTTP gates.
#pragma once

#include "backend/redis_store.hpp"
#include "base/metrics.hpp"
#include "lease/issuer.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::lease {

class redis_seal_place final : public seal_place {
 public:
  // `patience`: for each answer.
  redis_seal_place(boost::asio::io_context& context, std::string name, const settings::mark_store& at,
                   std::chrono::milliseconds patience);
  ~redis_seal_place() override;

  [[nodiscard]] const std::string& name() const override { return name_; }
  void identify(std::function<void(const result<std::string>&)> done) override;
  void look(const std::vector<std::string>& resources,
            std::function<void(const result<std::vector<backend::looked_mark>>&)> done) override;
  void seal(const term& held, const std::string& issuer_id,
            std::function<void(const backend::store_result<void>&)> done) override;

 private:
  // Calls it when it is known whether the server answers.
  void when_settled(std::function<void()> call);
  [[nodiscard]] backend::store_caller caller() const;

  boost::asio::io_context& context_;
  const std::string name_;
  const std::chrono::milliseconds patience_;
  const std::shared_ptr<metrics::gate> figures_;
  const std::shared_ptr<backend::redis_store> store_;
  const std::shared_ptr<const int> session_ = std::make_shared<const int>(0);  // of store_caller: this object
  bool settled_ = false;
  std::vector<std::function<void()>> waiting_;
};

}  // namespace fencegate::lease
