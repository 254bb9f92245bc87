// guard: transaction: what it refuses, whatever the token is, and what has to be known of a session for that. One table for two
// machines: gate/postgres/pg_guarded.hpp refuses by it, gate/postgres/pg_unguarded.hpp (mode: monitor) says what would be refused. Pure.
#pragma once

#include "gate/postgres/pg_statement_kind.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fencegate::gate {

// Whether the client's session at the server is its own.
enum class pg_session_kind : std::uint8_t { direct, pooled };

// The machine's own prepared statement and portal; no client makes any whose name begins so. SQL of the client, or a pooler,
// could put something else under that name: what goes under it is parsed each time.
inline constexpr std::string_view pg_own_name = "_fencegate";

class pg_guard_rules {
 protected:
  using kind = pg_statement_kind;

  // What the client sends up to a Sync.
  struct segment {
    bool open = false;
    bool guarded = false;  // a guard holds in the transaction that the next message is in
    bool block = false;    // it is in a transaction block
    bool unsure = false;   // … as far as one knows
    bool failed = false;   // the block has failed
    bool own = false;      // the block is the machine's
  };
  struct statement {
    kind what = kind::unsure;
    std::uint64_t transaction = 0;  // in which it was prepared
  };

  static constexpr std::string_view unknown_statement = "the statement bound here is not known: send its Parse with it";
  static constexpr std::string_view too_large_to_split =
      "several statements in one message of more than 16 MiB: send them in several messages";
  // Prepared statements that one client may have: what is beyond is not known.
  static constexpr std::size_t names_max = 10'000;

  explicit pg_guard_rules(pg_session_kind at) : at_(at) {}
  ~pg_guard_rules() = default;

  // ── what is refused; each says why, or "": it is not
  // A statement, as the segment stands; `several`: it is one of a Query's.
  [[nodiscard]] std::string_view refusal_of(kind what, bool several) const;
  // The names of a Parse and a Bind, by wire::pg_name_key().
  [[nodiscard]] static std::string_view refusal_to_parse(const std::string& key, kind what);
  [[nodiscard]] std::string_view refusal_to_bind(const std::string& portal_key, const std::string& key) const;
  // A Query of several statements.
  [[nodiscard]] static std::string_view refusal_of_several(std::string_view sql);
  // A function call.
  [[nodiscard]] std::string_view refusal_to_call() const;

  // ── the segment
  void open_segment(char status, bool guarded);
  [[nodiscard]] bool in_known_block() const { return segment_.block && !segment_.unsure; }
  // It writes nothing by itself, or ends what is open: no guard has to stand in front.
  [[nodiscard]] bool goes_bare(kind what) const;
  // It runs in a block of the machine's where there is none.
  [[nodiscard]] bool needs_block(kind what, bool several) const;
  void begin_own_block();
  // It was sent. true: perhaps the transaction of the last guard is over.
  bool run(kind what);

  // ── names
  // The string at the start of a body, which is taken off; nullopt: it does not end there.
  [[nodiscard]] static std::optional<std::string_view> take_string(std::string_view& body);
  // What Describe and Close are about: 'S' for a statement, 'P' for a portal, and its name; nullopt: it does not end there.
  [[nodiscard]] static std::optional<std::pair<char, std::string_view>> take_target(std::string_view body);
  void note_parse(const std::string& key, kind what);
  void note_bind(const std::string& portal_key, kind what);
  void note_close(char of, std::string_view name);
  // What a Describe may run.
  [[nodiscard]] kind note_describe(char of, std::string_view name);
  // nullopt: it was not prepared here; or in another transaction of a pooler's, whose sessions others use, too.
  [[nodiscard]] std::optional<kind> kind_of_name(const std::string& key) const;
  [[nodiscard]] kind kind_of_portal(const std::string& key) const;

  const pg_session_kind at_;
  segment segment_;
  // By wire::pg_name_key(). Statements of this segment, which the server may skip: nullopt, its Close was sent.
  std::map<std::string, std::optional<kind>, std::less<>> new_statements_;
  // Portals of this segment; statements whose ParseComplete was seen, and no CloseComplete.
  std::map<std::string, kind, std::less<>> portals_;
  std::map<std::string, statement, std::less<>> statements_;
  std::string fresh_;  // 'S' or 'P' and the key of what the last message has made
  std::uint64_t transaction_ = 0;
};

}  // namespace fencegate::gate
