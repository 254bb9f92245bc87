// Calls of the fence's functions in one PostgreSQL database, one transaction each, over one connection that is made when it
// is needed and again when it was lost. A call that was lost is not repeated: nobody knows whether it was applied.
//
// All of it runs on its context's thread.
#pragma once

#include "backend/pg_dial.hpp"
#include "backend/pg_link.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::lease {

class pg_caller : public std::enable_shared_from_this<pg_caller> {
 public:
  // The rows of the statement, which has committed.
  using answer = std::function<void(const backend::pg_result&)>;

  // `patience`: for connecting, and for each answer.
  pg_caller(boost::asio::io_context& context, backend::pg_target to, std::chrono::milliseconds patience);

  void call(backend::pg_statement one, answer done);
  // The same with a patience of its own.
  void call(backend::pg_statement one, std::chrono::milliseconds patience, answer done);
  // Connects, where it is not connected, so that the next call need not wait for that.
  void warm();
  // Whether nothing that was called waits for its answer.
  [[nodiscard]] bool idle() const { return unanswered_ == 0; }
  // Tells what the connection hears on that channel, as long as there is one. REQUIRES: called once; a plain name.
  void listen(std::string channel, std::function<void(const std::string& payload)> tell);
  void close();

 private:
  struct waiting {
    backend::pg_statement statement;
    std::chrono::milliseconds patience;
    answer done;
  };

  void connect();
  void on_connected(const std::shared_ptr<backend::pg_link>& link, const result<void>& outcome);
  void send(waiting one);
  void begin_to_hear(backend::pg_link& on);

  boost::asio::io_context& context_;
  const backend::pg_target to_;
  const std::chrono::milliseconds patience_;
  std::shared_ptr<backend::pg_link> link_;
  std::vector<waiting> waiting_;  // for the connection
  std::size_t unanswered_ = 0;
  std::string channel_;  // "": it hears nothing
  std::function<void(const std::string&)> heard_;
};

// Some of them: a call that waits for a lock does not keep others waiting.
class pg_callers {
 public:
  // `most`: at least 1.
  pg_callers(boost::asio::io_context& context, backend::pg_target to, std::chrono::milliseconds patience,
             std::size_t most);
  ~pg_callers();
  pg_callers(const pg_callers&) = delete;
  pg_callers& operator=(const pg_callers&) = delete;

  // One that is idle, if there can be one.
  [[nodiscard]] pg_caller& any();
  // It comes first where several are idle.
  [[nodiscard]] const std::shared_ptr<pg_caller>& first() const { return all_.front(); }

 private:
  boost::asio::io_context& context_;
  const backend::pg_target to_;
  const std::chrono::milliseconds patience_;
  const std::size_t most_;
  std::vector<std::shared_ptr<pg_caller>> all_;
  std::size_t next_ = 0;  // where all are busy
};

}  // namespace fencegate::lease
