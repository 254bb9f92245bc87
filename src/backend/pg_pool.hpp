// A limited number of connections to one PostgreSQL database, lent to one borrower at a time: in the order in which they
// asked, but to each owner in its turn, so that a storm of one keeps no other waiting. Long work (a forward that holds marks, a
// statement) may not take them all: some stay free for what raises and reads marks, or else forwards of an old holder could
// keep out the raise that ends them; and where there are some more, one owner leaves one to others. Statements that raise marks
// themselves (equal_token: reject) leave one.
//
// All of it runs on its context's thread.
#pragma once

#include "backend/fair_line.hpp"
#include "backend/pg_dial.hpp"
#include "base/metrics.hpp"

#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::backend {

class pg_pool : public std::enable_shared_from_this<pg_pool> {
 public:
  using clock = std::chrono::steady_clock;
  using lent = std::shared_ptr<pg_link>;  // always a connection; a new one is a new object

  enum class work : std::uint8_t {
    brief,    // raises and reads marks
    raising,  // a statement that raises first
    lengthy   // a statement, a hold
  };
  struct wish {
    work what = work::brief;
    std::string owner;                                // the resources that it is about; "" = of the gate itself
    clock::time_point deadline;                       // for the wait
    std::function<void(const lent&)> begin;           // either this,
    std::function<void(const std::string&)> give_up;  // or this, once
  };

  // `tell`: "" when a connection was made after there was none, or else why there is none. REQUIRES: `stats` live longer.
  pg_pool(boost::asio::io_context& context, pg_target to, std::size_t size, std::chrono::milliseconds connect_timeout,
          metrics::pool& stats, std::function<void(const std::string&)> tell);

  void start();
  void stop();

  void ask(wish one);
  // REQUIRES: lent, and outside of a transaction. One that is closed meanwhile need not be given back.
  void give_back(const lent& one);
  // It does not count any more, until it is given back: another one may be opened in its place. Where as many as the pool
  // has are set aside already, it goes on to count. REQUIRES: lent.
  void set_aside(const lent& one);
  // Called when the connection is closed while it is lent.
  void on_lost(const lent& one, std::function<void(const std::string&)> tell);

 private:
  struct member {
    lent link;
    bool connected = false;
    bool busy = false;
    bool aside = false;  // busy, and not counted
    work busy_with = work::brief;
    std::string owner{};  // of what it is busy with
    std::function<void(const std::string&)> tell_lost;
  };

  member* find(const pg_link* link);
  [[nodiscard]] bool may_begin(work what, const std::string& owner) const;
  [[nodiscard]] bool any_connected() const;
  [[nodiscard]] std::size_t aside() const;
  member* idle();
  void dispatch();
  void lend(member& to, wish next);
  void grow();
  void on_dialled(const lent& link, const result<void>& outcome);
  void remove(const pg_link* link, const std::string& why);
  void fail_all(const std::string& why);
  void tick();
  void show();

  boost::asio::io_context& context_;
  const pg_target to_;
  const std::size_t size_;
  const std::chrono::milliseconds connect_timeout_;
  metrics::pool& stats_;
  const std::function<void(const std::string&)> tell_;
  boost::asio::steady_timer ticker_;
  std::vector<std::unique_ptr<member>> members_;
  std::map<work, fair_line<wish>> waiting_;  // which work goes first stands first
  std::string problem_ = "it has not answered yet";
  int failures_ = 0;
  clock::time_point next_try_{};
  bool stopped_ = false;
};

}  // namespace fencegate::backend
