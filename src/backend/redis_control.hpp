// The gate's own connection to Redis, one per thread, with the gate's own user: it raises marks, reads the server's
// COMMAND table, watches over the server's fitness (role, eviction, cluster mode), and heals marks that went back.
//
// Rule kept: a raise is reported as done only after the reply that proves it was read. Whatever is missing, late or
// unexpected is `unavailable`.
#pragma once

#include "backend/mark_healing.hpp"
#include "backend/redis_state.hpp"
#include "backend/store.hpp"
#include "base/byte_queue.hpp"
#include "fence/tag.hpp"
#include "wire/resp_reply.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::backend {

struct raise_outcome {
  enum class kind : std::uint8_t {
    held,   // the mark equals the token now
    stale,  // the mark is higher
    jump,   // the token is more than max_step above the mark, or above one that only leases raise; nothing was raised
    unavailable,  // not known; the mark may or may not have been raised
  } what = kind::unavailable;
  bool raised = false;               // held only: it was lower before
  std::optional<fence::token> mark;  // what was found (stale, jump) or is set (held)
  std::string detail;                // unavailable; jump: "" = by more than max_step
};
using raise_callback = std::function<void(const raise_outcome&)>;

// A mark as it is in the backend. detail is set when it could not be read.
struct mark_reading {
  std::optional<fence::token> mark;
  std::string detail;
  bool leased = false;  // it has an issuer: only seals raise it
};

// Whose a seal is: the ids of an issuer, and of one of its grants, which is a secret.
struct lease_grant {
  std::string issuer, id;
};

class redis_control : public std::enable_shared_from_this<redis_control> {
 public:
  redis_control(boost::asio::io_context& context, std::shared_ptr<redis_state> state);

  // Keeps `unsettled` until it is known whether the server answers.
  void start(std::shared_ptr<void> unsettled);
  void stop();

  // Raises the mark of the cell's resource to `wanted` unless it is there already or higher. 0 = no step limit.
  // Callbacks run on this link's thread, later or (when the answer is known) at once.
  void raise(std::shared_ptr<mark_cell> cell, fence::token wanted, std::int64_t max_step, raise_callback done);

  // Why this connection proves nothing now; "" = it does. It is not for another thread's to say: that one may be down, or
  // lead to another server.
  [[nodiscard]] const std::string& problem() const { return problem_; }

  // Reads the mark; puts right a regression that it sees.
  void read(const std::shared_ptr<mark_cell>& cell, std::function<void(const mark_reading&)> done);

  // Runs a command in database 0 where these marks are at these tokens (backend/redis_scripts.hpp: checked_command,
  // whose errors are told as they come; or reply_too_large). False: not sent, as there is a problem(), and `done` is not
  // called. nullptr: the connection was lost with it, or `deadline` has passed.
  [[nodiscard]] bool run_checked(const std::vector<fence::claim>& claims, const std::vector<std::string>& command,
                                 std::chrono::steady_clock::time_point deadline,
                                 std::function<void(const wire::reply_value*)> done);

  // Raises marks to these tokens, all or none, and runs a command behind that unless it is empty
  // (backend/redis_scripts.hpp: raise_marks). The rest as above.
  [[nodiscard]] bool run_raising(const presented_claims& wanted, const std::vector<std::string>& command,
                                 std::chrono::steady_clock::time_point deadline,
                                 std::function<void(const wire::reply_value*)> done);

  // Seals marks with the tokens of a grant (backend/redis_scripts.hpp: seal_marks). The rest as above.
  // `though_full`: also where Redis is out of memory.
  [[nodiscard]] bool run_sealing(const std::vector<fence::claim>& claims, const lease_grant& grant, bool though_full,
                                 std::chrono::steady_clock::time_point deadline,
                                 std::function<void(const wire::reply_value*)> done);

  // Runs a script of leases (backend/redis_lease_scripts.hpp) with these keys and arguments behind the epoch. The rest as above.
  [[nodiscard]] bool run_leasing(std::string_view script, const std::vector<std::string>& keys,
                                 const std::vector<std::string>& arguments,
                                 std::chrono::steady_clock::time_point deadline,
                                 std::function<void(const wire::reply_value*)> done);

  // The random id of this Redis, for life; written when it has none.
  void identify(std::chrono::steady_clock::time_point deadline, std::function<void(const result<std::string>&)> done);

  // Asks whether these marks are at these tokens on a server that would let them rise, and the epoch is the known one
  // behind that. `true` is proven; false: something else, or it could not be told. The rest as above.
  [[nodiscard]] bool ask_marks(const std::vector<fence::claim>& claims, std::chrono::steady_clock::time_point deadline,
                               std::function<void(std::optional<bool>)> done);

  // The keys of a command by COMMAND GETKEYS; nullopt when the server could not tell.
  void keys_of(const std::vector<std::string>& arguments,
               std::function<void(std::optional<std::vector<std::string>>)> done);

  // Looks at the server again (epoch, role) because a session saw something that does not fit, then calls back.
  void recheck(std::function<void()> done);

 private:
  using time_point = std::chrono::steady_clock::time_point;
  using reply_callback = std::function<void(const wire::reply_value*)>;  // nullptr: the connection was lost
  struct sent {
    reply_callback done;   // empty: it was told already that there was no answer in time
    time_point answer_by;  // until then whoever asked waits
    time_point deadline;   // until then the connection is taken to be alive
  };
  struct attempt;
  struct comparison;

  void connect();
  void connect_to(std::vector<stream::endpoint> endpoints);
  void greet();
  void inspect();
  void check_epoch();
  void begin_healing();
  void announce_healing(reply_callback done);
  [[nodiscard]] bool quiet_by(const std::string& busy);
  [[nodiscard]] bool waited_for(const std::string& healing);
  void compare_all(const std::string& epoch);
  void compare_some(const std::string& epoch);
  void compare_more(const std::shared_ptr<comparison>& c);
  void compare_asked(const std::shared_ptr<comparison>& c);
  void compared(comparison& c);
  void heal_all(epoch_guard guard);
  void heal_late();
  void heal_more(const std::shared_ptr<mark_healing>& healing);
  void healed(const mark_healing& healing);
  void all_put_back(const std::string& healing);
  void settle_epoch(const std::string& healing, const std::string& busy);
  [[nodiscard]] bool only_busy(const wire::reply_value* reply);
  void healthy(std::string epoch);
  void unfit(std::string problem);
  void not_ready(std::string problem);
  void answer_rechecks();
  void lose(const std::string& why);
  void tick();

  void send(const std::vector<std::string_view>& arguments, reply_callback done,
            time_point answer_by = time_point::max());
  void flush();
  void wait_readable();
  void read_some();
  [[nodiscard]] bool take_reply();
  void give_up_waiting(time_point now);

  void try_raise(const std::shared_ptr<attempt>& a);
  void on_raise_reply(const std::shared_ptr<attempt>& a, const wire::reply_value* reply);
  void judge(const std::shared_ptr<attempt>& a, std::optional<std::string_view> found);  // nullopt: no mark
  void broken(const attempt& a);
  void note_regression(const attempt& a, std::optional<fence::token> found);

  boost::asio::io_context& context_;
  std::shared_ptr<redis_state> state_;
  stream::socket socket_;
  boost::asio::ip::tcp::resolver resolver_;
  boost::asio::steady_timer ticker_;
  boost::asio::steady_timer retry_;

  byte_queue in_;
  wire::value_scanner scanner_;  // of the reply that is coming
  std::size_t scanned_ = 0;      // of it, in in_
  bool dropped_ = false;         // it is too large, and what came of it so far is gone
  std::string out_;
  std::size_t out_sent_ = 0;
  bool writing_ = false;   // waits for the socket
  bool flushing_ = false;  // will be sent before the loop waits again
  std::deque<sent> pending_;
  std::vector<std::function<void()>> rechecks_;
  std::uint64_t connection_ = 0;                              // counts connections: callbacks of an older one are void
  bool up_ = false;                                           // greeted and fit
  std::string problem_ = "the backend has not answered yet";  // why it is not up
  std::string not_put_back_;                                  // why marks could not be, as said last
  bool connected_ = false;
  bool inspecting_ = false;     // until healthy() or unfit(), be it that marks are put back first
  bool server_empty_ = false;   // no key in any database, as INFO said last
  std::string inspected_;       // which server it is, and which history of its data, as INFO said last
  std::string proven_;          // and when it was healthy last
  bool doubted_ = false;        // since then the epoch was another one, or a mark had gone back
  mark_memory::walk compared_;  // where the marks stand that are compared next
  bool at_work_ = false;        // puts marks back while there is no epoch
  std::string put_back_;        // on which server, and under which text, all of them were
  std::string busy_;            // what the last look has shown of who is at work
  std::chrono::steady_clock::time_point looked_{};
  std::chrono::steady_clock::duration quiet_{};  // for how long it has stayed the same
  std::string waits_for_;                        // another process, that puts marks back under this text
  std::chrono::steady_clock::time_point waits_since_{};
  bool stopped_ = false;
  int failures_ = 0;
  std::chrono::steady_clock::time_point connect_deadline_{};
  std::chrono::steady_clock::time_point next_inspection_{};
};

}  // namespace fencegate::backend
