// What an armed link keeps account of: which replies are due, what a batch has come to, what an arm consists of. Plain
// data, no decisions; the rules are armed_link's.
#pragma once

#include "gate/redis/claims.hpp"
#include "wire/resp_reply.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::gate {

// What the next reply of the backend is.
enum class awaits : std::uint8_t {
  relay,    // the client's
  local,    // nothing: a text of the user's takes its turn (link_user::on_turn)
  ours_ok,  // must be +OK, else the link's state is unknown: close
  unwatch,
  select0,
  watch,
  marks,
  select_back,
  multi,   // an arm, in this order
  queued,  // +QUEUED of a batch's commands
  exec,    // the batch's EXEC
  look_select0,
  look,  // monitor mode: MGET of marks
  look_select_back,
  // The user's:
  state_change,    // the reply decides what the connection is
  subscription,    // confirmations, `n` of them
  tx_queued,       // a command in the client's MULTI: queued or refused, but not run
  tx_exec,         // the client's EXEC
  single,          // a wrapped command
  held_read,       // a read that the client gets when the marks behind it are known
  marks_behind,    // MGET of these
  probe,           // PING: is this client authenticated?
  identity,        // INFO server: where does this link lead?
  greeting,        // what makes the link like others
  renewal,         // SPUBLISH: WAIT counts what went over other links
  renewal_of_aof,  // SET: so does WAITAOF
  close,           // nothing: the connection ends when its turn comes
};

struct expectation {
  awaits what;
  bool muted = false;
  std::uint32_t n = 1;
  bool may_block = false;    // a bare command that the server may answer only when somebody else has acted
  bool turned_away = false;  // local: its text is for `n` commands
};

// Where the bytes of a reply go.
enum class sink : std::uint8_t {
  answers,  // to the client
  drop,
  capture,  // they are read when the reply is whole
  hold,     // the user keeps them
};

// What a rule in monitor mode lets through, of one kind: booked under the outcome that the rule would have had, when it
// was applied and the marks were looked at.
struct noted {
  claim_mask claims;  // that it would need
  bool reads;
  std::string name;                          // of the command, in the log
  std::optional<fence::rejection> would_be;  // known before it was sent
  std::size_t times = 1;
};

struct batched {
  std::size_t bytes;
  bool counts;  // as admitted, when it is applied; what a rule in monitor mode watches is booked by the batch's notes
  bool muted;
  bool keeps_oom;          // OOM is its answer: it needs memory itself, or may not run in the wrapper
  bool plain_set = false;  // SET key value, whose reply is for the client
  std::string error = {};  // Redis refused to queue it

  // It may be tried alone: Redis, out of memory, refuses everything inside MULTI.
  [[nodiscard]] bool goes_alone() const { return error.starts_with("OOM") && !keeps_oom; }
};

// SET key value begins so, its name ends behind so many bytes, and key and value are all that follows.
inline constexpr std::string_view set_head = "*3\r\n$3\r\n";
inline constexpr std::size_t set_head_bytes = set_head.size() + 5;

struct write_batch {
  std::string bytes;  // the commands as received; empty when streamed
  std::vector<batched> commands;
  claim_mask required = 0;  // by its writes
  claim_mask needs = 0;     // by its reads, too
  bool streamed = false;
  std::string name;  // streamed: of its command, in the log
  std::vector<noted> notes;
  bool polls = false;   // it is one blocking command
  bool polled = false;  // which is tried again when it has found nothing
  std::size_t plain_sets = 0;
  bool merged = false;         // they were sent as one SET and one MSET
  bool merge_refused = false;  // Redis has not done the MSET
  std::size_t prefixed = 0;    // commands of ours in front (equal_token: reject)
  std::size_t suffixed = 0;    // or behind, where only the end of a value tells what it needs
  std::size_t queued_seen = 0;
  enum class end : std::uint8_t { unknown, executed, nil, aborted } outcome = end::unknown;
  std::string abort_text;
  bool muted = false;  // some command's reply is not for the client

  [[nodiscard]] bool empty() const { return commands.empty(); }
  // REQUIRES: its bytes were appended.
  void add(batched one) {
    plain_sets += one.plain_set ? 1 : 0;
    muted = muted || one.muted;
    commands.push_back(std::move(one));
  }
  // How many commands these are for Redis.
  [[nodiscard]] std::size_t sent() const { return merged ? 2 : commands.size(); }
  // The command in this place is one of ours.
  [[nodiscard]] bool is_ours(std::size_t at) const { return at < prefixed || at >= prefixed + sent(); }
  // How many of them Redis has done.
  [[nodiscard]] std::size_t applied() const {
    if (outcome != end::executed) return 0;
    return merge_refused ? 1 : commands.size();
  }
  // Redis has refused to queue some of them.
  [[nodiscard]] bool refused() const {
    if (merge_refused) return true;
    for (const auto& one : commands)
      if (!one.error.empty()) return true;
    return false;
  }

  // Ready for the next one; keeps its memory unless it is large.
  void clear() {
    std::string kept = std::move(bytes);
    auto kept_commands = std::move(commands);
    *this = write_batch{};
    if (kept.capacity() > 16 * 1024) return;
    kept.clear();
    kept_commands.clear();
    bytes = std::move(kept);
    commands = std::move(kept_commands);
  }
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

}  // namespace fencegate::gate
