// Raises of marks in one database on connections of the gate's own, each resource for itself: a raise that waits for the
// end of somebody's transaction keeps only those of its own resources waiting, and them not for ever. Where connections
// become few, raises that wait take turns.
//
// Rule kept: only an answer of the server ends a turn: it has raised nothing then.
//
// All of it runs on its context's thread.
#pragma once

#include "backend/pg_link.hpp"
#include "backend/raise_line.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::backend {

class pg_raises : public std::enable_shared_from_this<pg_raises> {
 public:
  using claims = raise_line::claims;
  using has_left = raise_line::has_left;
  // How to connect now; nullopt: the server's address is not known.
  using address = std::function<std::optional<pg_link::parameters>()>;
  // For how long a raise stands in line at most; and then waits for those who hold its marks, all turns together; and for an
  // answer of the server.
  struct patience {
    std::chrono::milliseconds in_line;
    std::chrono::milliseconds for_holders;
    std::chrono::milliseconds for_answer;
  };
  using raise_statements = decltype(raise_line::wish::statements);

  pg_raises(boost::asio::io_context& context, patience most, address how);

  // Runs the statements in one transaction, when no raise of one of these resources is under way or in front. `done` is
  // called once: later, or at once where there is no server; never when its client had left before it began.
  void raise(const claims& wanted, raise_statements statements, has_left left, pg_answer done);
  void close(const std::string& why);

 private:
  struct worker {
    std::shared_ptr<pg_link> link;
    std::optional<raise_line::wish> under_way{};  // nullopt: it is free
    bool connecting = true;
  };

  void go_on();
  void begin(const std::shared_ptr<worker>& by, raise_line::wish one);
  void on_answered(raise_line::wish one, bool turn_is_over, const pg_result& rows);
  [[nodiscard]] bool few_are_left() const;
  void add_worker();
  void on_connected(const std::shared_ptr<worker>& by, const result<void>& outcome);
  void let_go();
  void fail_all(const std::string& why);
  void watch_time();

  boost::asio::io_context& context_;
  const patience most_;
  const address how_;
  boost::asio::steady_timer timer_;
  std::vector<std::shared_ptr<worker>> workers_;
  raise_line line_;
  bool watched_ = false;  // the time of those in line
  bool closed_ = false;
};

}  // namespace fencegate::backend
