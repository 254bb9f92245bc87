// RESP2 and RESP3 replies as a proxy must follow them: where does this reply end, what is its first line; the bytes
// themselves pass through untouched. The backend is trusted no more than a client.
#pragma once

#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::wire {

// The first line of a value: `+OK`, `$5`, `*3`, `>4`, `|1` ….
struct reply_head {
  char type = 0;               // one of + - : $ * _ , # ( ! = % ~ > |
  std::string_view line = {};  // the text behind the type byte, without CRLF; valid until the input moves
  std::int64_t count = 0;      // $ ! = : length, * ~ > : elements, % | : pairs; −1 for the nulls `$-1` and `*-1`
  std::size_t bytes = 0;       // the head's size, CRLF included

  [[nodiscard]] bool is_error() const { return type == '-' || type == '!'; }
  [[nodiscard]] bool is_null() const { return type == '_' || ((type == '$' || type == '*') && count < 0); }
  [[nodiscard]] bool is_array() const { return type == '*' && count >= 0; }
  [[nodiscard]] bool is_ok() const { return type == '+' && line == "OK"; }
};

enum class head_status : std::uint8_t { complete, need_more, malformed };

// Reads one head from the start of `input`. Malformed: an unknown type byte, a simple string or error over
// simple_line_bytes_max, a bare CR or LF, a number that is not canonical or out of range, a null of any other type than
// `$-1` and `*-1`, a verbatim string without its format. A big number may be any text: Redis passes on what a script calls
// one. RESP3 streamed types (`$?`, `*?`) are never sent by Redis and are malformed. Lengths and counts go up to
// reply_count_max, since replies can exceed any request (DUMP of a large hash): never allocate from them.
[[nodiscard]] head_status read_head(std::string_view input, reply_head& out);

inline constexpr std::size_t simple_line_bytes_max = 1024 * 1024;
inline constexpr std::int64_t reply_count_max = std::int64_t{1} << 48;  // also of pairs: doubling does not overflow

// Follows one value, nested ones included, through the input. A push or an attribute inside of an aggregate is not one
// of its elements and is followed in passing. At the top level each is a value of its own: begin() with a `|` head
// follows the attribute alone, and the reply that it belongs to comes next.
class value_scanner {
 public:
  enum class status : std::uint8_t { more, complete, malformed };
  struct step {
    status what = status::more;
    std::size_t consumed = 0;  // bytes that belong to the value; may be less than given while a head is incomplete
  };

  // Starts with a value whose head was read and consumed already. May be complete at once (a simple type, an empty
  // aggregate): check done().
  void begin(const reply_head& head);
  // REQUIRES: !done(), and after a step that left bytes over, that `input` starts with them. Malformed: as in read_head,
  // no CRLF behind a bulk, more than limits::resp_relayed_depth_max levels. A level takes eight bytes, which are kept for the
  // next value unless the levels were many.
  [[nodiscard]] step advance(std::string_view input);
  [[nodiscard]] bool done() const { return done_; }

 private:
  bool take(const reply_head& head);                           // false: nested too deep
  bool take_payload(std::string_view input, std::size_t& at);  // false: no CRLF
  void close_finished();

  std::vector<std::int64_t> left_;  // values still to come at each level
  std::int64_t payload_left_ = 0;   // bytes of a bulk, its CRLF included
  bool done_ = true;
};

// A small reply held whole, for the gate's own commands (marks, COMMAND). Depth and size are bounded by the caller's
// buffer. `text` is a view into the input.
struct reply_value {
  char type = 0;
  std::string_view text = {};  // simple types: the line; bulk types: the payload
  bool null = false;
  std::vector<reply_value> elements;  // aggregates; maps flattened to key, value, key, value
};

// Parses one whole reply at the start of `input` into a tree, and says how many bytes it took. Attributes are skipped,
// and pushes inside of aggregates; a push at the top level is returned as a value. nullopt: incomplete. Error: malformed.
// Starts from the beginning at each call, and a tree takes up to 30 times the bytes of its text: not for large replies.
[[nodiscard]] result<std::optional<std::pair<reply_value, std::size_t>>> parse_value(std::string_view input);

}  // namespace fencegate::wire
