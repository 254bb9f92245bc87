// Leases of a PostgreSQL database, and seals in one (src/backend/schema/5_leases.sql).
#pragma once

#include "lease/issuer.hpp"
#include "lease/pg_caller.hpp"
#include "lease/pg_renewals.hpp"
#include "lease/release_listeners.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::lease {

class pg_issuer final : public issuer {
 public:
  // `patience`: for connecting, and for the answer to a renewal. `connections`: for all but
  // renewals, at most; 1: these, too, go over it.
  pg_issuer(boost::asio::io_context& context, const backend::pg_target& at, std::chrono::milliseconds patience,
            std::size_t connections = 1);
  ~pg_issuer() override;

  void identify(std::function<void(const answer<std::string>&)> done) override;
  void acquire(const grant_request& wanted, std::function<void(const grant_answer&)> done) override;
  void renew(const term& held, std::function<void(const result<renewal>&)> done) override;
  void release(const term& held, bool unused, std::function<void(const result<void>&)> done) override;
  void forget_store(const std::string& resource, const std::string& store,
                    std::function<void(const result<bool>&)> done) override;
  void thaw(const std::string& resource, std::function<void(const result<bool>&)> done) override;
  [[nodiscard]] std::shared_ptr<void> on_release(std::function<void(const std::string& resource)> tell) override;
  void note_waiter(const waiter_note& note) override;
  void list(std::function<void(const result<std::vector<lease_entry>>&)> done) override;

 private:
  pg_callers callers_;  // the first one hears of releases
  std::shared_ptr<pg_caller> renewing_;
  std::shared_ptr<pg_renewals> renewals_;
  release_listeners listeners_;
  bool hears_ = false;
};

class pg_seal_place final : public seal_place {
 public:
  // `cut`: how long a seal waits for the end of older sessions; the database's own limit holds, too.
  pg_seal_place(boost::asio::io_context& context, std::string name, const backend::pg_target& at,
                std::chrono::milliseconds patience, std::chrono::milliseconds cut, std::size_t connections = 1);

  [[nodiscard]] const std::string& name() const override { return name_; }
  void identify(std::function<void(const answer<std::string>&)> done) override;
  void look(const std::vector<std::string>& resources,
            std::function<void(const answer<std::vector<backend::looked_mark>>&)> done) override;
  void seal(const term& held, const std::string& issuer_id,
            std::function<void(const backend::store_result<void>&)> done) override;
  void move(const std::string& resource, const std::string& from, const std::string& to,
            std::function<void(const result<std::string>&)> done) override;
  void list_marks(const std::optional<std::string>& only,
                  std::function<void(const result<std::vector<listed_mark>>&)> done) override;
  void lower(const lowering_wish& wish, std::function<void(const result<void>&)> done) override;
  [[nodiscard]] std::size_t raised_at_once() const override { return 32; }  // fencegate.check_claims
  void raise(const fence::claims_list& to, std::function<void(const backend::store_result<void>&)> done) override;

 private:
  const std::string name_;
  const std::chrono::milliseconds patience_, cut_;
  pg_callers callers_;
};

}  // namespace fencegate::lease
