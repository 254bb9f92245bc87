// One connection of the gate's own to one PostgreSQL database, by libpq in pipeline mode, without blocking. What is
// asked waits in line, one round trip each: a query, or a pipeline of statements. Each is answered with what the server
// said, or with why it said nothing. When the connection is lost, all that wait are answered so.
//
// All of it runs on its context's thread.
#pragma once

#include "base/result.hpp"
#include "wire/pg_message.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

struct pg_conn;    // libpq's PGconn
struct pg_result;  // libpq's PGresult

namespace fencegate::backend {

// nullopt is NULL.
using pg_rows = std::vector<std::vector<std::optional<std::string>>>;
// The error's SQLSTATE is "" when it does not come from the server.
using pg_result = boost::system::result<pg_rows, wire::pg_error>;
using pg_answer = std::function<void(const pg_result&)>;

struct pg_parameter {
  std::optional<std::string> value;  // nullopt is NULL; a text has no NUL byte
  bool binary = false;               // in the type's binary format, which is for bytea the bytes themselves
};

struct pg_statement {
  std::string sql;
  std::vector<pg_parameter> parameters{};
};

// All parameters are texts.
[[nodiscard]] pg_statement in_text(std::string sql, std::vector<std::string> arguments);

// What a statement answered, in text format.
struct pg_table {
  struct column {
    std::string name;
    std::uint32_t type = 0;  // its OID
  };
  std::vector<column> columns{};  // none: it returns no rows
  pg_rows rows{};
  std::string tag{};                        // of the command: "COMMIT", "INSERT 0 1"
  bool cut_off = false;                     // there were more rows than wanted
  std::optional<std::uint64_t> affected{};  // rows, by the command's tag; nullopt: it counts none
};
using pg_step = boost::system::result<pg_table, wire::pg_error>;

// What became of a pipeline.
struct pg_outcome {
  std::vector<pg_step> steps{};  // in their order, as far as they were answered; an error is the last
  std::string lost{};            // why the connection was lost before all was answered; "" = it was not
  bool sent = true;              // false: lost before a byte of it reached the server
  // The transaction that is open behind all of it, as the server says; unknown: it has not said.
  enum class block : std::uint8_t { unknown, none, open, failed } behind = block::unknown;
};
using pg_pipeline_answer = std::function<void(pg_outcome&)>;

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
  // Connected, and what is asked now is sent at once.
  [[nodiscard]] bool idle() const { return connected_ && line_.empty(); }
  // `done` is called once: later, or at once when there is no connection.
  void query(std::string sql, std::vector<std::string> arguments, pg_answer done);
  // The same for several statements in one transaction: the first error, or the last one's answer.
  void transaction(std::vector<pg_statement> statements, pg_answer done);
  // The same for several statements, sent at once. An error skips those behind it; what BEGIN opened stays open then.
  // Without a BEGIN they are one transaction. Rows beyond `row_bytes_max` are dropped.
  void pipeline(std::vector<pg_statement> statements, std::chrono::milliseconds patience, std::size_t row_bytes_max,
                pg_pipeline_answer done);
  void close(const std::string& why);

  // Called when a connection was closed, by whomever, after everything that waited was answered.
  void on_closed(std::function<void(const std::string& why)> tell) { tell_closed_ = std::move(tell); }
  // Called with the channel and the payload of what the session hears (LISTEN); until then it is dropped.
  void on_heard(std::function<void(const std::string& channel, const std::string& payload)> tell) {
    heard_ = std::move(tell);
  }
  // -1: none.
  [[nodiscard]] int socket() const;
  // libpq's buffers have grown, which it keeps until the connection ends.
  [[nodiscard]] bool grew() const { return grew_; }
  // Is true while bytes are read from the socket whose meaning is not known yet; nullptr: nobody asks.
  void doubts(std::shared_ptr<std::atomic<bool>> reading) { doubt_ = std::move(reading); }

 private:
  struct asked {
    std::vector<pg_statement> statements;
    std::chrono::milliseconds patience;
    std::size_t row_bytes_left;
    pg_pipeline_answer done;
  };

  void go_on_connecting();
  void watch(boost::asio::posix::stream_descriptor::wait_type until, void (pg_link::*then)());
  [[nodiscard]] boost::system::error_code take_socket(int socket);
  void let_socket_go();
  void send_next();
  bool send(const pg_statement& one);
  void flush();
  void receive();
  [[nodiscard]] bool tell_heard();
  [[nodiscard]] bool consume();
  [[nodiscard]] bool is_too_large(std::size_t bytes);  // and then closed
  [[nodiscard]] bool holds_more() const;
  void take(const ::pg_result* one);
  void add_rows(const ::pg_result* from);
  void answered();
  void read_on();
  void receive_again();
  void restart_deadline(std::chrono::milliseconds patience);

  boost::asio::io_context& context_;
  const std::chrono::milliseconds patience_;
  boost::asio::posix::stream_descriptor descriptor_;  // the link's own for libpq's socket
  boost::asio::steady_timer deadline_;
  pg_conn* connection_ = nullptr;
  bool connected_ = false;
  bool reading_ = false;
  bool sent_ = false;  // what is in front of the line
  bool grew_ = false;
  std::size_t unparsed_ = 0;   // about: bytes that came of a message that is not whole
  std::uint64_t parsed_ = 0;   // taken_bytes(), when there was none
  std::size_t row_bytes_ = 0;  // of the largest row of the result that is being read
  std::uint64_t era_ = 0;      // counts connections: callbacks of an older one are void
  std::string farewell_;       // what the server said before it ended an idle session
  std::shared_ptr<std::atomic<bool>> doubt_;
  std::function<void(const result<void>&)> on_connected_;
  std::function<void(const std::string&)> tell_closed_;
  std::function<void(const std::string&, const std::string&)> heard_;
  std::deque<asked> line_;
  pg_outcome outcome_;  // of what is in front, as far as it came
  pg_table table_;      // of the statement that is being answered
};

}  // namespace fencegate::backend
