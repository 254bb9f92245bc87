// Watches over the marks in one Redis, on one connection: is the server fit to keep them, does it have those that it had,
// who puts back what was lost? A machine: events in, commands out by a control_link; no sockets, no clock of its own.
//
// Rule kept: the server is said to be ready only behind a look that has shown that it may keep marks, that its epoch is the
// known one, and that everything of an older epoch was put back. Whatever is missing, late or unexpected closes.
#pragma once

#include "backend/control_link.hpp"
#include "backend/mark_healing.hpp"
#include "backend/mark_memory.hpp"
#include "backend/mark_raising.hpp"
#include "backend/redis_state.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::backend {

class marks_keeper {
 public:
  using time_point = control_link::time_point;

  // Others put their marks back before the first opens for all: nobody was at work for so long. Meanwhile each of them
  // looks at the server (inspection_interval, the wait before another connection, a tick, some round trips). Of the time
  // between two looks this much counts at most: who cannot look cannot say anything either.
  static constexpr std::chrono::milliseconds quiet_least{3'500}, quiet_of_a_look{500};
  // How long a process that has just started waits for others to put marks back. One that is later than this puts the rest
  // back under the new epoch.
  static constexpr std::chrono::seconds healing_wait{15};
  static constexpr std::chrono::milliseconds inspection_interval{2'000};

  // `shared`: by all connections to this server. REQUIRES: both live longer.
  marks_keeper(redis_state& shared, control_link& link);
  marks_keeper(const marks_keeper&) = delete;
  marks_keeper& operator=(const marks_keeper&) = delete;

  // ── events
  void on_connected();
  // Before those who wait for replies learn it.
  void on_lost(const std::string& why);
  // Several times a second.
  void on_tick();
  // The last one: nothing is said of the server any more.
  void end(const std::string& why);
  // Looks at the server again (epoch, role), then calls back: something was seen that does not fit.
  void recheck(std::function<void()> done);
  // Calls back when a look, or a lost connection, has told something. REQUIRES: nothing has happened yet.
  void settled(std::function<void()> done) { rechecks_.push_back(std::move(done)); }

  // Marks, behind the epoch. raise: by what any connection has seen; read: by this one.
  void raise(std::shared_ptr<mark_cell> cell, fence::token wanted, std::int64_t max_step, raise_callback done) {
    raising_.raise(std::move(cell), wanted, max_step, std::move(done));
  }
  void read(const std::shared_ptr<mark_cell>& cell, std::function<void(const mark_reading&)> done);

  // This connection proves something: the last look has shown it.
  [[nodiscard]] bool proves() const { return state_ == state::serving || state_ == state::looking_again; }
  // Why not; "" = it does.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  // Of connections and looks, since it last proved something.
  [[nodiscard]] int failures() const { return failures_; }

 private:
  enum class state : std::uint8_t {
    down,           // no connection
    looking,        // proves nothing; a look is under way
    unfit,          // proves nothing, by the last look; the next tick looks again
    healing,        // proves nothing; marks are put back behind an epoch that others have written
    at_work,        // proves nothing; marks are put back while there is no epoch, and each tick says so to others
    serving,        // proves
    looking_again,  // proves, and another look is under way
    ended           // for good
  };
  [[nodiscard]] bool connected() const { return state_ != state::down && state_ != state::ended; }
  [[nodiscard]] bool looks() const { return connected() && state_ != state::unfit && state_ != state::serving; }

  // For how long nobody was at work, by looks, one after the other, on one connection.
  class quiet_time {
   public:
    // `busy`: what the look has shown of who is at work. Whether that has stayed the same for long enough.
    [[nodiscard]] bool is_enough(const std::string& busy, time_point now) {
      const auto since = std::min<time_point::duration>(now - std::exchange(looked_, now), quiet_of_a_look);
      lasted_ = std::exchange(busy_, busy) == busy ? lasted_ + since : time_point::duration::zero();
      return lasted_ >= quiet_least;
    }
    void begin_anew() { lasted_ = {}; }

   private:
    std::string busy_;
    time_point looked_{};
    time_point::duration lasted_{};
  };
  // What the keys of the epoch hold (backend/redis_scripts.hpp); "" = nothing.
  struct epoch_keys {
    std::string epoch, healing, busy;
  };
  struct comparison;

  void look();
  void on_info(const wire::reply_value& info);
  [[nodiscard]] std::string unfitness(const wire::reply_value& info) const;
  [[nodiscard]] bool only_busy(const wire::reply_value* reply);
  // `known`: the epoch before. Where another thread has seen one since, it is looked at anew.
  void healthy(const std::string& epoch, const std::string& known);
  void unfit(std::string problem);
  void not_ready(std::string problem);
  void answer_rechecks();

  void check_epoch();
  void on_epoch(const epoch_keys& found, const std::string& known, bool quiet);
  void follow_lowerings(const std::string& known);
  void on_server_put_back(const std::string& epoch, const std::string& known);
  void renew_epoch_of(const epoch_guard& guard);
  void on_loss(const epoch_keys& found, const std::string& known, bool quiet);
  [[nodiscard]] bool waited_for(const std::string& healing);
  void settle_epoch(const epoch_keys& found);

  void compare_all(const std::string& epoch);
  void compare_some(const std::string& epoch);
  void compare_more(const std::shared_ptr<comparison>& c);
  void compare_asked(const std::shared_ptr<comparison>& c);
  void compared(comparison& c);

  void begin_healing();
  void announce_healing(reply_callback done);
  void heal_all(epoch_guard guard);
  void heal_late();
  void heal_more(const std::shared_ptr<mark_healing>& healing);
  void on_put_back(const std::shared_ptr<mark_healing>& healing, std::uint64_t connection,
                   const std::shared_ptr<mark_cell>& cell, const raise_outcome& outcome);
  void healed(const mark_healing& healing);
  void all_put_back(const std::string& healing);

  redis_state& shared_;
  control_link& link_;
  mark_raising raising_;

  state state_ = state::down;
  std::string problem_ = "the backend has not answered yet";  // why it proves nothing
  std::string not_put_back_;                                  // why marks could not be, as said last
  std::vector<std::function<void()>> rechecks_;
  std::uint64_t connection_ = 0;  // counts connections: what was put back on an older one says nothing
  int failures_ = 0;
  time_point next_look_{};

  bool server_empty_ = false;   // no key in any database, as INFO said last
  std::string inspected_;       // which server it is, and which history of its data, as INFO said last
  std::string proven_;          // and when it was healthy last
  bool doubted_ = false;        // since then the epoch was another one, or a mark had gone back
  mark_memory::walk compared_;  // where the marks stand that are compared next
  std::string put_back_;        // on which server, and under which text, all of them were
  quiet_time quiet_;
  std::string waits_for_;  // another process, that puts marks back under this text
  time_point waits_since_{};
};

}  // namespace fencegate::backend
