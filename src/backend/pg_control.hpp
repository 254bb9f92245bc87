// What a PostgreSQL gate knows of its server, and its own connections to it: one to each database that its clients use, and
// one more where marks rise. It says why a session was ended, reads marks, raises them, puts marks right that went back,
// and sweeps dead registrations.
//
// Lives on one thread; the functions marked so may be called from any.
#pragma once

#include "backend/ended_registration.hpp"
#include "backend/found_mark.hpp"
#include "backend/lost_marks.hpp"
#include "backend/mark_memory.hpp"
#include "backend/pg_link.hpp"
#include "backend/pg_raised.hpp"
#include "backend/pg_raises.hpp"
#include "backend/upstream_address.hpp"
#include "base/log.hpp"
#include "base/metrics.hpp"
#include "fence/gate_settings.hpp"

#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::backend {

class pg_control : public std::enable_shared_from_this<pg_control> {
 public:
  using endpoint = upstream_address::endpoint;
  using claims = std::vector<fence::claim>;
  using ended_callback = std::function<void(std::optional<std::vector<ended_registration>>)>;
  using raise_callback = std::function<void(pg_raise_result)>;
  using look_callback = std::function<void(std::optional<found_marks>)>;

  // REQUIRES: gate and stats live longer.
  pg_control(boost::asio::io_context& context, const settings::postgres_gate& gate, metrics::gate& stats);

  // Keeps `unsettled` until it is known where the server is.
  void start(std::shared_ptr<void> unsettled);
  void stop();

  // Any thread; the callback runs on the thread of `reply_to`. nullopt: the server cannot be asked.
  void ended(boost::asio::io_context& reply_to, const std::string& database, std::int32_t pid, ended_callback done);
  void look(boost::asio::io_context& reply_to, const std::string& database, const claims& of, look_callback done);
  // The marks rise to these tokens, all or none, without a session being armed; older sessions end first. Waits for other
  // raises of its own resources only. Is not begun, nor answered, once the client `has_left`.
  void raise(boost::asio::io_context& reply_to, const std::string& database, const claims& wanted,
             pg_raises::has_left left, raise_callback done);
  // The same on the other connection, behind nobody, so that a raise that waits for sessions to end keeps nobody from
  // asking why they did. An error without SQLSTATE where it is not free.
  void raise_ahead(boost::asio::io_context& reply_to, const std::string& database, const claims& wanted,
                   raise_callback done);
  // Any thread. What this process has seen of a mark; and something it now has.
  [[nodiscard]] std::optional<fence::token> seen(const std::string& database, const std::string& resource) const;
  void saw(const std::string& database, const found_mark& found);
  // Any thread, before what it raised was seen. Somebody's raise to this has put right a mark that had gone back: unless an
  // operator had lowered it.
  void went_back(const std::string& database, const found_mark& to);
  // Any thread. Of the server; empty until its name was resolved, then why_unresolved() says what is wrong.
  [[nodiscard]] std::vector<endpoint> endpoints() const { return address_->endpoints(); }
  [[nodiscard]] std::string why_unresolved() const { return address_->why_unresolved(); }

 private:
  using clock = std::chrono::steady_clock;
  struct connection {
    std::shared_ptr<pg_link> link;
    bool connecting = false;
    int failures = 0;
    clock::time_point next_try{};
  };
  struct looked_after {
    std::string name;
    connection own;
    connection raising;  // no link: there was nothing to raise ahead yet
    std::shared_ptr<pg_raises> raises{};
    clock::time_point next_look{};
    clock::time_point next_sweep{};
    std::size_t unanswered = 0;  // of the last look and its raises, behind which others would wait for theirs
    lost_marks lost{};
    std::optional<mark_memory::walk> compared{};  // where the marks stand that are compared next
    std::optional<std::string> problem;           // of `own`, as it was logged last, "" = it is up
  };

  mark_memory& marks(const std::string& database);
  [[nodiscard]] log::event about(const std::string& database) const;
  void tick();
  looked_after* at(const std::string& name);  // nullptr: one more is too many
  [[nodiscard]] connection unconnected();
  void keep_connected(looked_after& to, connection& by);
  [[nodiscard]] std::optional<pg_link::parameters> how_to_connect(const std::string& database) const;
  void ask(const std::string& name, std::vector<pg_statement> statements, pg_answer done);
  [[nodiscard]] static pg_raises::raise_statements raise_statements(const claims& wanted, std::int64_t max_step);
  void look_after(looked_after& one);
  void compare_marks(looked_after& one, const lost_marks::seen_marks& seen, const pg_rows& rows);
  void note_loss(const looked_after& one, const std::string& resource, std::optional<fence::token> found);
  void note_problem(looked_after& one, const std::string& problem);

  const std::shared_ptr<const void> whole_;  // of which the settings and stats are parts
  boost::asio::io_context& context_;
  const settings::postgres_gate& gate_;
  metrics::gate& stats_;
  boost::asio::steady_timer ticker_;
  const std::shared_ptr<upstream_address> address_;
  std::map<std::string, looked_after> databases_;
  bool stopped_ = false;

  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<mark_memory>> memories_;
};

}  // namespace fencegate::backend
