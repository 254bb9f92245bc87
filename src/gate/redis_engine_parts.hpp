// What the session machine keeps account of: where the link stands, which replies are due, what a batch, a transaction or
// a streamed command has come to. Plain data, no decisions; the rules are redis_engine's.
#pragma once

#include "backend/command_table.hpp"
#include "backend/mark_memory.hpp"
#include "fence/rejection.hpp"
#include "gate/claims.hpp"
#include "gate/redis_engine_host.hpp"
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
struct redis_engine_parts {
  enum class phase : std::uint8_t {
    open,         // the link is outside MULTI; bare commands may be in flight
    arming,       // an arm was sent; its proof was not read yet
    armed,        // inside our MULTI, proof read; `batch_` may be filling
    batch,        // a batch and the arm behind it were sent
    transaction,  // inside the client's own MULTI
    finishing,    // the client's EXEC was sent
    single,       // a wrapped command was sent
    waiting,      // for the control link or the timer
    shared,       // the command at hand went to a link that others use, too
    barrier,      // a command that changes the connection was sent
    monitor,      // MONITOR: everything passes
  };
  // What the next reply of the backend is.
  enum class awaits : std::uint8_t {
    relay,    // the client's
    local,    // nothing: a text of ours takes its turn (locals_)
    ours_ok,  // must be +OK, else the link's state is unknown: close
    unwatch,
    select0,
    watch,
    marks,
    select_back,
    multi,         // an arm, in this order
    queued,        // +QUEUED of a batch's commands
    exec,          // the batch's EXEC
    state_change,  // barrier: the reply decides (on_state_reply)
    subscription,  // confirmations, `n` of them
    tx_queued,     // a command in the client's MULTI: queued or refused, but not run
    tx_exec,       // the client's EXEC
    single,        // a wrapped command
    held_read,     // a read that the client gets when the marks behind it are known
    marks_behind,  // MGET of these
    probe,         // PING: is this client authenticated?
    identity,      // INFO server: where does this link lead?
    peek_select0,
    peek,  // monitor mode: MGET of marks
    peek_select_back,
    close,  // nothing: the connection ends when its turn comes
  };
  struct expectation {
    awaits what;
    bool muted = false;
    std::uint32_t n = 1;
    bool may_block = false;    // a bare command that the server may answer only when somebody else has acted
    bool turned_away = false;  // local: its text is for `n` commands
  };
  // What Redis answers to EXEC with arguments, by which it ends a transaction.
  static constexpr std::string_view exec_with_arguments =
      "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n";
  // "-NOPERM no\r\n" without what frames it.
  [[nodiscard]] static std::string_view error_text(std::string_view reply) {
    if (reply.starts_with('-')) reply.remove_prefix(1);
    return reply.substr(0, reply.find("\r\n"));
  }

  static constexpr std::string_view marks_move = "the marks move all the time";

  enum class sink : std::uint8_t { client, drop, capture, hold };
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
  // SET key value begins so, its name ends behind so many bytes, and key and value are all that follows.
  static constexpr std::string_view set_head = "*3\r\n$3\r\n";
  static constexpr std::size_t set_head_bytes = set_head.size() + 5;
  // What a rule in monitor mode lets through, of one kind: booked under the outcome that the rule would have had, when it
  // was applied and the marks were looked at.
  struct noted {
    claim_mask claims;  // that it would need
    bool reads;
    std::string name;                          // of the command, in the log
    std::optional<fence::rejection> would_be;  // known before it was sent
    std::size_t times = 1;
  };
  static constexpr std::size_t noted_max = 64;  // kinds
  struct batched {
    std::size_t bytes;
    bool counts;  // as admitted, when it is applied; what a rule in monitor mode watches is booked by the batch's notes
    bool muted;
    bool keeps_oom;          // OOM is its answer: it needs memory itself, or may not run in the wrapper
    std::string error = {};  // Redis refused to queue it
  };
  struct batch {
    std::string bytes;  // the commands as received; empty when streamed
    std::vector<batched> commands;
    claim_mask required = 0;  // by its writes
    claim_mask needs = 0;     // by its reads, too
    bool streamed = false;
    std::string name;  // streamed: of its command, in the log
    std::vector<noted> notes;
    bool polled = false;
    std::size_t plain_sets = 0;  // of the commands: SET key value, whose reply is for the client
    bool merged = false;         // they were sent as one SET and one MSET
    bool merge_refused = false;  // Redis has not done the MSET
    std::size_t prefixed = 0;    // commands of ours in front (equal_token: reject)
    std::size_t queued_seen = 0;
    std::size_t elements_left = 0;
    std::size_t elements_seen = 0;
    enum class end : std::uint8_t { unknown, executed, nil, aborted } outcome = end::unknown;
    std::string abort_text;
    bool muted = false;  // some command's reply is not for the client

    // How many commands these are for Redis.
    [[nodiscard]] std::size_t sent() const { return merged ? 2 : commands.size(); }

    // Ready for the next one; keeps its memory unless it is large.
    void clear() {
      std::string kept = std::move(bytes);
      auto kept_commands = std::move(commands);
      *this = batch{};
      if (kept.capacity() > 16 * 1024) return;
      kept.clear();
      kept_commands.clear();
      bytes = std::move(kept);
      commands = std::move(kept_commands);
    }
  };
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
    std::size_t elements_left = 0, elements_seen = 0;
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
    bool batch = false;    // the batch is one blocking command
    bool in_vain = false;  // it found nothing, and is to be tried again
  };
  // A command in the wrapper script, or a read in front of its marks.
  struct wrapped {
    std::string raw;  // as received
    std::string name;
    std::vector<std::shared_ptr<backend::mark_cell>> cells;
    std::vector<std::string> tokens;
    std::string epoch;
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
  // The arm's bytes, and the reply to its MGET that proves all marks, as long as nothing of what they depend on moves.
  struct arm_tail {
    claim_mask mask = 0;
    claim_mask looks = 0;
    int database = -1;
    std::uint64_t claims = 0;
    std::string epoch;
    std::string bytes;
    std::string proof;  // "" when no single reply proves it (equal_token: reject)
  };
  // How others may be made like this link, as long as nothing of this moves.
  struct known_likeness {
    std::uint64_t claims = 0;
    int protocol = 0;
    int database = -1;
    int sign_ins = 0;
    likeness value;
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
