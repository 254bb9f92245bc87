// What the session machine keeps account of: what its client is at, and what a transaction, a wrapped or a streamed command
// has come to. Plain data, no decisions; the rules are redis_engine's.
#pragma once

#include "backend/command_table.hpp"
#include "backend/mark_memory.hpp"
#include "fence/rejection.hpp"
#include "gate/redis/armed_link_state.hpp"
#include "gate/redis/claims.hpp"
#include "gate/redis/pubsub.hpp"
#include "gate/redis/redis_engine_host.hpp"
#include "wire/resp_request.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::gate {

// A base only for its names, which all belong to redis_engine.
struct redis_engine_state {
  // What the client is at. Where the link stands is armed_link's.
  enum class phase : std::uint8_t {
    ready,           // for its next command
    transaction,     // inside its own MULTI
    finishing,       // its EXEC was sent
    single,          // a wrapped command was sent
    waiting,         // for the control link or the timer
    shared,          // the command at hand went to a link that others use, too
    barrier,         // a command that changes the connection was sent
    monitor_stream,  // behind MONITOR: everything passes
  };
  // The connection as the server sees it, but for where its link stands (armed_link).
  struct connection_state {
    int protocol = 2;
    bool watching = false;    // keys of the client's
    bool watch_lost = false;  // we have ended a watch of the client's, or refused it: its EXEC answers nil
    bool authenticated = false;
    bool caching = false;
    bool reads_reserved = false;     // the client has read keys of the fence, and is told when they change
    std::size_t stream_replies = 0;  // PING and RESET behind MONITOR that were not answered yet
    bool stream_ends = false;        // RESET is the last of them
    std::int64_t subscriptions = 0;
    int subscribing = 0;  // (un)subscriptions that were not confirmed yet
    pubsub::subscription_counts channels;
    bool reply_off = false, skip_next = false;  // CLIENT REPLY, emulated
    std::string sign_in;                        // AUTH, as the client has signed in; "" = as nobody

    // As RESET does.
    void reset() { *this = {}; }
  };

  // What Redis answers to EXEC with arguments, by which it ends a transaction.
  static constexpr std::string_view exec_with_arguments =
      "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n";
  static constexpr std::string_view marks_move = "the marks move all the time";

  enum class progress : std::uint8_t { taken, blocked };

  // A command that is to be processed again, with what is known about it by now.
  struct replayed {
    enum class route : std::uint8_t {
      normal,
      answer,   // answer `text`: Redis refused it when it was queued
      alone,    // not inside MULTI (OOM refuses everything there): bare, or through the wrapper
      give_up,  // a fenced command is answered as unavailable, detail `text`
    } how = route::normal;
    bool muted = false;
    std::string text = {};
  };
  static constexpr std::size_t noted_max = 64;  // kinds
  struct transaction {
    bool adopted = false;  // it is our MULTI, with proven marks
    claim_mask required = 0;
    claim_mask written = 0;  // of these, what its writes need
    std::optional<fence::rejection> rejected;
    std::size_t admitted = 0;  // commands to be counted so
    std::vector<noted> notes;
    std::size_t suffixed = 0;    // commands of ours behind the client's (equal_token: reject)
    claim_mask armed = 0;        // what its MULTI was armed for
    std::string why_not;         // it is not adopted because
    bool link_refused = false;   // that is what the server said
    bool link_said_why = false;  // and the rejection is about that
    bool client_watched = false;
    bool executed = false;
    bool left = false;  // it must not run: the server's part was discarded, the client does not know yet
    std::vector<std::pair<std::size_t, int>> selects;  // position in the transaction, database
    std::size_t commands = 0;
    bool tailed = false;  // an arm follows its EXEC
    bool nil = false;
    bool muted = false;
    std::string last_command;
  };
  // The answer of a read waits for the marks behind it, up to this size.
  static constexpr std::size_t held_read_bytes_max = 1024 * 1024;
  // Of a blocking write, which is tried again and again.
  struct poll {
    std::optional<std::chrono::steady_clock::time_point> since;
    std::chrono::milliseconds delay{0};
    std::optional<std::chrono::milliseconds> timeout;  // 0 = for ever
    std::vector<std::string> keys;
    bool sleeps = false;   // until the timer, or until something comes
    bool in_vain = false;  // it found nothing, and is to be tried again
  };
  // A command in the wrapper script, or a read in front of its marks.
  struct wrapped {
    std::string raw;  // as received
    std::string name;
    std::vector<std::shared_ptr<backend::mark_cell>> cells;
    std::vector<std::string> tokens;
    std::vector<fence::token> presented;  // the same
    std::string epoch;
    backend::mark_memory::moment asked;
    std::string answer;       // of the read
    bool too_large = false;   // it was dropped
    bool null_array = false;  // what the script says is nil is *-1
    bool polled = false;      // it waits, and is tried again when it has found nothing
    std::vector<noted> notes;
    replayed::route how = replayed::route::normal;
    bool muted = false;
    bool mark_moved = false;
    std::string error;  // of the script: the command did not run
  };
  struct large {
    explicit large(const wire::request_decoder& limits) : request(limits) {}
    wire::large_request request;
    enum class route : std::uint8_t { undecided, bare, fenced, transaction, swallow } how = route::undecided;
    const backend::command_spec* spec = nullptr;
    std::string name;           // in the log
    claims::verdict verdict;    // of a write, by all its keys
    std::string answer;         // swallow: what the client gets at its end
    bool replaces = false;      // swallow: inside a transaction, which the answer spoils
    std::size_t inspected = 0;  // bytes at the front of from_client that were inspected, not yet sent
    std::size_t sent = 0;
    bool complete = false;
    bool counted = false;
    bool muted = false;
    std::shared_ptr<const backend::command_table> table;  // keeps spec alive
  };
  // How others may be made like this link, as long as nothing of this moves.
  struct known_profile {
    std::uint64_t claims = 0;
    int protocol = 0;
    int database = -1;
    int sign_ins = 0;
    session_profile value;
  };
  // The command that a barrier waits for.
  struct change {
    backend::command_role role = backend::command_role::other;
    int database = 0;
    int protocol = 2;
    int protocol_before = 2;
    bool authenticates = false;
    std::optional<std::string> name;
    std::vector<std::string> other_words;  // where a tag does not bind
    std::string sign_in;                   // the user and password that it carries, as AUTH
    std::string why_not;                   // multi: why the gate does not adopt it
    bool link_refused = false;             // which the server said
    bool error = false;
    bool muted = false;
    bool inside = false;  // the client's own MULTI, which goes on when the server refuses the command
  };
};

}  // namespace fencegate::gate
