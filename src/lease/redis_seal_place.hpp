// Seals in a Redis that keeps marks for its own gate, or for HTTP gates.
#pragma once

#include "lease/issuer.hpp"
#include "lease/redis_caller.hpp"
#include "lease/redis_mark_listing.hpp"

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

  [[nodiscard]] const std::string& name() const override { return name_; }
  void identify(std::function<void(const answer<std::string>&)> done) override;
  void look(const std::vector<std::string>& resources,
            std::function<void(const answer<std::vector<backend::looked_mark>>&)> done) override;
  void seal(const term& held, const std::string& issuer_id,
            std::function<void(const backend::store_result<void>&)> done) override;
  void move(const std::string& resource, const std::string& from, const std::string& to,
            std::function<void(const result<std::string>&)> done) override;
  // One list at a time.
  void list_marks(const std::optional<std::string>& only,
                  std::function<void(const result<std::vector<listed_mark>>&)> done) override;
  void replace(const replacement_wish& wish, std::function<void(const result<void>&)> done) override;
  void lower(const lowering_wish& wish, std::function<void(const result<void>&)> done) override;
  [[nodiscard]] std::size_t raised_at_once() const override { return 256; }  // one script: Redis serves none meanwhile
  void raise(const fence::claims_list& to, std::function<void(const backend::store_result<void>&)> done) override;

 private:
  boost::asio::io_context& context_;
  const std::string name_;
  const settings::mark_store at_;
  const std::chrono::milliseconds patience_;
  redis_caller caller_;
  std::shared_ptr<redis_mark_listing> listing_;
};

}  // namespace fencegate::lease
