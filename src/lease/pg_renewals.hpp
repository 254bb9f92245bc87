// Renewals of many leases in few statements: what is asked while one is under way goes together with the next.
//
// All of it runs on its context's thread.
#pragma once

#include "lease/issuer.hpp"
#include "lease/pg_caller.hpp"

#include <boost/asio/io_context.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace fencegate::lease {

class pg_renewals : public std::enable_shared_from_this<pg_renewals> {
 public:
  using answer = std::function<void(const result<renewal>&)>;

  pg_renewals(boost::asio::io_context& context, std::shared_ptr<pg_caller> by)
      : context_(context), caller_(std::move(by)) {}

  void renew(const term& held, answer done);

 private:
  struct waiting {
    term held;
    answer done;
  };
  using batch = std::vector<waiting>;

  void send_next();
  [[nodiscard]] batch next_batch();
  void on_answer(batch asked, const backend::pg_result& rows);

  boost::asio::io_context& context_;
  const std::shared_ptr<pg_caller> caller_;
  std::deque<waiting> waiting_;
  std::deque<batch> halves_;  // of one that failed
  bool busy_ = false;         // one is under way, or about to be
};

}  // namespace fencegate::lease
