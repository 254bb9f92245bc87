// One connection of the gate's own to one PostgreSQL database, by libpq, without blocking. Queries wait in line; each is
// answered with its rows or with why there are none. When the connection is lost, all that wait are answered so.
//
// All of it runs on its context's thread.
#pragma once

#include "base/result.hpp"
#include "wire/pg_message.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

struct pg_conn;  // libpq's PGconn

namespace fencegate::backend {

// nullopt is NULL.
using pg_rows = std::vector<std::vector<std::optional<std::string>>>;
// The error's SQLSTATE is "" when it does not come from the server.
using pg_result = boost::system::result<pg_rows, wire::pg_error>;
using pg_answer = std::function<void(const pg_result&)>;

class pg_link : public std::enable_shared_from_this<pg_link> {
 public:
  // Keywords and values of libpq; host names must be resolved already (libpq would block).
  using parameters = std::vector<std::pair<std::string, std::string>>;

  // `patience`: for connecting, and for each answer.
  pg_link(boost::asio::io_context& context, std::chrono::milliseconds patience);
  ~pg_link();

  // Connects; `done` once, with the outcome. REQUIRES: not connected nor connecting.
  void connect(const parameters& how, std::function<void(const result<void>&)> done);
  [[nodiscard]] bool connected() const { return connected_; }
  // `done` is called once: later, or at once when there is no connection.
  void query(std::string sql, std::vector<std::string> arguments, pg_answer done);
  void close(const std::string& why);

 private:
  struct asked {
    std::string sql;
    std::vector<std::string> arguments;
    pg_answer done;
  };

  void go_on_connecting();
  void watch(boost::asio::posix::stream_descriptor::wait_type until, void (pg_link::*then)());
  void send_next();
  void flush();
  void receive();
  void restart_deadline();

  boost::asio::io_context& context_;
  const std::chrono::milliseconds patience_;
  boost::asio::posix::stream_descriptor descriptor_;
  boost::asio::steady_timer deadline_;
  pg_conn* connection_ = nullptr;
  bool connected_ = false;
  bool reading_ = false;
  bool sent_ = false;      // the query in front
  std::uint64_t era_ = 0;  // counts connections: callbacks of an older one are void
  std::function<void(const result<void>&)> on_connected_;
  std::deque<asked> line_;
  std::optional<pg_result> answer_;  // of the query in front, as far as it came
};

}  // namespace fencegate::backend
