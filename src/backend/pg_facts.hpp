// Asks a PostgreSQL database what hazards.hpp judges, with the rights of the gate's own user. It only reads.
//
// All of it runs on its context's thread.
#pragma once

#include "backend/hazards.hpp"
#include "backend/pg_dial.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace fencegate::backend {

class pg_facts_question : public std::enable_shared_from_this<pg_facts_question> {
 public:
  // `patience`: for connecting, and for each answer; three times that for all of it.
  pg_facts_question(boost::asio::io_context& context, pg_target at, std::chrono::milliseconds patience);
  ~pg_facts_question();

  // `done` once, unless it is dropped before.
  void ask(std::function<void(const findings&)> done);

 private:
  void ask_all();
  template <class Read>
  void query(std::string sql, Read read);
  void finish(const findings& all);

  boost::asio::io_context& context_;
  const pg_target at_;
  const std::chrono::milliseconds patience_;
  boost::asio::steady_timer deadline_;
  std::shared_ptr<pg_link> link_;
  std::size_t unanswered_ = 0;
  pg_facts found_;
  std::function<void(const findings&)> done_;
};

}  // namespace fencegate::backend
