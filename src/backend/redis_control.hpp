// The gate's own connection to Redis, one per thread, with the gate's own user: it raises marks, reads the server's
// COMMAND table, watches over the server's fitness, and heals marks that went back. It only joins two parts: redis_client
// moves the bytes, and marks_keeper, a machine without I/O, says what is sent and when the server is trusted.
#pragma once

#include "backend/control_link.hpp"
#include "backend/mark_raising.hpp"
#include "backend/marks_keeper.hpp"
#include "backend/redis_client.hpp"
#include "backend/redis_state.hpp"
#include "backend/store.hpp"
#include "fence/tag.hpp"
#include "wire/resp_reply.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::backend {

// Whose a seal is: the ids of an issuer, and of one of its grants, which is a secret.
struct lease_grant {
  std::string issuer, id;
};

class redis_control : public std::enable_shared_from_this<redis_control>, private control_link {
 public:
  redis_control(boost::asio::io_context& context, std::shared_ptr<redis_state> state);

  // Keeps `unsettled` until it is known whether the server answers.
  void start(std::shared_ptr<void> unsettled);
  void stop();

  // Raises the mark of the cell's resource to `wanted` unless it is there already or higher. 0 = no step limit.
  // Callbacks run on this link's thread, later or (when the answer is known) at once.
  void raise(std::shared_ptr<mark_cell> cell, fence::token wanted, std::int64_t max_step, raise_callback done) {
    keeper_.raise(std::move(cell), wanted, max_step, std::move(done));
  }

  // Why this connection proves nothing now; "" = it does. It is not for another thread's to say: that one may be down, or
  // lead to another server.
  [[nodiscard]] const std::string& problem() const { return keeper_.problem(); }

  // Reads the mark; puts right a regression that it sees.
  void read(const std::shared_ptr<mark_cell>& cell, std::function<void(const mark_reading&)> done) {
    keeper_.read(cell, std::move(done));
  }

  // Runs a command in database 0 where these marks are at these tokens (backend/redis_scripts.hpp: checked_command,
  // whose errors are told as they come; or reply_too_large). Returns of which lowerings of marks this is sent with knowledge
  // (mark_memory::moment); nullopt: not sent, as there is a problem(), and `done` is not called. nullptr: the connection was
  // lost with it, or `deadline` has passed.
  using sent = std::optional<std::uint64_t>;
  [[nodiscard]] sent run_checked(const std::vector<fence::claim>& claims, const std::vector<std::string>& command,
                                 std::chrono::steady_clock::time_point deadline, reply_callback done);

  // Raises marks to these tokens, all or none, and runs a command behind that unless it is empty
  // (backend/redis_scripts.hpp: raise_marks). The rest as above.
  [[nodiscard]] sent run_raising(const presented_claims& wanted, const std::vector<std::string>& command,
                                 std::chrono::steady_clock::time_point deadline, reply_callback done);

  // Seals marks with the tokens of a grant (backend/redis_scripts.hpp: seal_marks). The rest as above.
  // `though_full`: also where Redis is out of memory.
  [[nodiscard]] sent run_sealing(const std::vector<fence::claim>& claims, const lease_grant& grant, bool though_full,
                                 std::chrono::steady_clock::time_point deadline, reply_callback done);

  // Runs a script of leases (backend/redis_lease_scripts.hpp) with these keys and arguments behind the epoch. The rest as above.
  [[nodiscard]] bool run_leasing(std::string_view script, const std::vector<std::string>& keys,
                                 const std::vector<std::string>& arguments,
                                 std::chrono::steady_clock::time_point deadline, reply_callback done);

  // The random id of this Redis, for life; written when it has none.
  void identify(std::chrono::steady_clock::time_point deadline, std::function<void(const result<std::string>&)> done);

  // Asks whether these marks are at these tokens on a server that would let them rise, and the epoch is the known one
  // behind that. `true` is proven; false: something else, or it could not be told. The rest as above.
  [[nodiscard]] sent ask_marks(const std::vector<fence::claim>& claims, std::chrono::steady_clock::time_point deadline,
                               std::function<void(std::optional<bool>)> done);

  // The keys of a command by COMMAND GETKEYS; nullopt when the server could not tell.
  void keys_of(const std::vector<std::string>& arguments,
               std::function<void(std::optional<std::vector<std::string>>)> done);

  // Looks at the server again (epoch, role) because a session saw something that does not fit, then calls back.
  void recheck(std::function<void()> done) { keeper_.recheck(std::move(done)); }

 private:
  // control_link, for the machines: what they asked for keeps this alive.
  void send(const std::vector<std::string_view>& command, reply_callback done) override;
  void drop(const std::string& why) override { client_->lose(why); }
  [[nodiscard]] time_point now() const override { return std::chrono::steady_clock::now(); }

  void connect();
  void on_connected(const std::vector<stream::endpoint>& endpoints);
  void on_lost(const std::string& why);
  void tick();
  // The snapshot whose epoch commands run behind; nullopt: this connection proves nothing.
  [[nodiscard]] std::optional<redis_state::snapshot> proven() const;

  std::shared_ptr<redis_state> state_;
  std::shared_ptr<redis_client> client_;
  marks_keeper keeper_;
  boost::asio::steady_timer ticker_;
  boost::asio::steady_timer retry_;
  bool stopped_ = false;
};

}  // namespace fencegate::backend
