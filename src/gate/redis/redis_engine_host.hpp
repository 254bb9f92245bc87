// The world around a session machine: marks, the server's snapshot, a timer, the log. redis_session is it; tests have
// their own.
#pragma once

#include "backend/redis_control.hpp"
#include "backend/redis_state.hpp"
#include "fence/rejection.hpp"
#include "fence/tag.hpp"
#include "gate/redis/armed_link_state.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::gate {

// CLIENT LIST shows it, and behind it the tags that the link is bound to.
inline constexpr std::string_view shared_link_name = "fencegate-shared";

// What makes a new link to Redis like that of a connection: the same user, protocol and database, and the same server; and the
// tag that it brings.
struct session_profile {
  std::string bytes;         // of the commands; the last is INFO server
  std::size_t commands = 0;  // each is answered once
  std::string server;        // what INFO must say: its run_id; "": it was not asked yet
  fence::claims_list tag;    // whose marks are proven
  int database = 0;
  std::size_t own_bytes = 0;  // of `bytes`: what is said to any server. Those that are alike in this may share.

  [[nodiscard]] std::string_view group() const { return std::string_view(bytes).substr(0, own_bytes); }
};

// Where a link leads, by INFO server.
struct server_identity {
  std::string run_id;  // "": its links are not to be shared
  // WAIT counts the replicas that have the last write of its own connection: what went over another link is not seen before
  // the server has propagated something for this one, as a message.
  bool notes_own_writes = false;
};
[[nodiscard]] server_identity server_in(std::string_view info);

// What a client is told for which there is no room; Redis' own words.
[[nodiscard]] inline std::string too_many_clients(const std::string& why) {
  return "-ERR max number of clients reached (" + why + ")\r\n";
}

// What the engine asks of the world. Callbacks arrive on the session's thread, never after the session's end, and may
// come before the call returns.
class engine_host {
 public:
  virtual ~engine_host() = default;
  [[nodiscard]] virtual const backend::redis_state::snapshot& snapshot() const = 0;
  virtual void raise(std::shared_ptr<backend::mark_cell> cell, fence::token wanted, std::int64_t max_step,
                     backend::raise_callback done) = 0;
  virtual void read_mark(std::shared_ptr<backend::mark_cell> cell,
                         std::function<void(const backend::mark_reading&)> done) = 0;
  virtual void keys_of(const std::vector<std::string>& arguments,
                       std::function<void(std::optional<std::vector<std::string>>)> done) = 0;
  virtual void recheck(std::function<void()> done) = 0;
  // Nothing was found under these keys. True: on_key() comes when that may have changed, at the latest soon behind it.
  [[nodiscard]] virtual bool wait_for_keys(int /*database*/, const std::vector<std::string>& /*keys*/) { return false; }
  // on_timer() comes once, after the delay.
  virtual void set_timer(std::chrono::milliseconds delay) = 0;
  [[nodiscard]] virtual std::chrono::steady_clock::time_point now() const = 0;
  // Whether a small write should go over a link that others use, too. False, here or in share(): it goes over the client's
  // own, and own_write_answered() is to tell when it is over. `at_once`: it has waited for nothing since it was read.
  [[nodiscard]] virtual bool sharing_pays(const session_profile& /*mine*/, bool /*at_once*/) { return false; }
  virtual void own_write_answered() {}
  // One whole write, to be sent behind the same proof on that link. True: on_shared() tells what became of it, and is not
  // called before this returns. REQUIRES: sharing_pays(), and it is known where the own link leads.
  [[nodiscard]] virtual bool share(const session_profile& /*mine*/, std::string_view /*command*/,
                                   const batched& /*as*/) {
    return false;
  }
  // So many answers wait for the client, which does not read, that nothing more is done for it at all.
  [[nodiscard]] virtual bool turns_away() const { return false; }
  // So many that nothing more is to be done for it before it reads some.
  [[nodiscard]] virtual bool holds_back() const { return false; }
  // The client brings this tag. Why there is no room for its connection, which then has to end.
  [[nodiscard]] virtual std::optional<std::string> take_room(const fence::claims_list& /*tag*/) { return std::nullopt; }
  // One line in the log, and counted.
  virtual void report(const fence::rejection& why, std::string_view command, bool monitor) = 0;
};

}  // namespace fencegate::gate
