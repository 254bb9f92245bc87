// RESP requests as a proxy must read them: arrays of bulk strings and inline commands (https://redis.io/docs/reference/
// protocol-spec), decoded in place from the client's input buffer.
//
// Stricter than Redis: exact CRLF everywhere (Redis checks neither the LF of a header nor the CRLF behind a bulk) and
// canonical lengths, because what was inspected must be what is forwarded. Nothing is allocated from a declared length.
#pragma once

#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::wire {

// A decoded command: views into the input, valid until the input moves.
struct request {
  std::vector<std::string_view> arguments;  // arguments[0] is the command's name; never empty for a whole command
  std::string_view raw;                     // the bytes of the command as received
  bool inlined = false;                     // an inline command: forward encode_command(arguments), not raw

  [[nodiscard]] std::string_view name() const { return arguments.empty() ? std::string_view{} : arguments[0]; }
};

enum class request_status : std::uint8_t {
  complete,   // one command; `consumed` bytes belong to it
  empty,      // bytes that are neither a command nor have a reply (`*0`, `*-1`, an empty inline line)
  need_more,  // an incomplete command; nothing consumed
  large,      // an incomplete RESP command that is (declared or already) larger than `buffered_max`: see large_request
  malformed,  // protocol error: answer `-ERR Protocol error: <message>` and close
};

struct decoded_request {
  request_status status = request_status::need_more;
  std::size_t consumed = 0;       // complete and empty only
  std::string_view message = {};  // malformed only; static storage
};

// Decodes the command at the start of `input`. On `complete`, `out` holds it; nothing is allocated per command once the
// vectors have grown. A command is `large` as soon as the declared length of its next bulk would end beyond
// `buffered_max` bytes from the command's start, or when `buffered_max` bytes have come and the next length is not among
// them; everything before that bulk was received whole. So a caller that holds `buffered_max` bytes (or a longest inline
// line, if that is more) never needs room for more. Inline commands are never large: their line is limited to
// limits::resp_line_bytes_max.
// Malformed: non-canonical or out-of-range numbers ("invalid multibulk length", "invalid bulk length"), more digits than
// a number has ("too big mbulk count string", "too big bulk count string"), anything but `$` before an argument
// ("expected '$', got 'x'"), no CRLF behind an argument ("missing CRLF after bulk string"), and in inline commands
// "unbalanced quotes in request", "NUL in inline request", a line too long ("too big inline request"), first word `POST`
// or `Host:` (any case; "possible cross-protocol request").
// Before authentication set limits::resp_stranger_…, as Redis does ("unauthenticated multibulk
// length", "unauthenticated bulk length").
//
// Linear: after `need_more` the next call goes on where this one ended, so a command in many pieces is read once.
class request_decoder {
 public:
  request_decoder();

  // REQUIRES: after `need_more`, `input` starts with the bytes of that call's input, at any address, the same
  // `buffered_max`; or reset_progress() was called in between. After any other status a new command starts.
  [[nodiscard]] decoded_request decode(std::string_view input, std::size_t buffered_max, request& out);
  void reset_progress();

  std::int64_t arguments_max;   // default: limits::resp_arguments_max
  std::int64_t bulk_bytes_max;  // default: limits::resp_bulk_bytes_max

 private:
  struct extent {
    std::size_t begin;
    std::size_t size;
  };

  decoded_request decode_array(std::string_view input, std::size_t buffered_max, request& out);
  decoded_request decode_inline(std::string_view input, request& out);
  decoded_request read_array_head(std::string_view input);
  decoded_request read_argument(std::string_view input, std::size_t buffered_max);
  decoded_request finish(decoded_request outcome);

  std::size_t at_ = 0;                 // bytes of the current command that need no second look
  std::int64_t announced_ = 0;         // its declared number of arguments, once at_ > 0
  std::vector<extent> extents_;        // the arguments read so far
  std::vector<std::string> unquoted_;  // owns the arguments of an inline command with quotes
};

// Follows a `large` command through the input without holding it: says how many bytes belong to the command, keeps small
// arguments and the first bytes of big ones. A key that is not whole() cannot be checked: refuse the command.
class large_request {
 public:
  static constexpr std::size_t kept_bytes_max = 4096;  // arguments up to this size are kept whole
  static constexpr std::size_t head_bytes_max = 64;    // of larger ones: enough to name them in a message
  // Bytes kept of all arguments together: beyond this, `malformed` ("too many arguments in a large command").
  static constexpr std::size_t kept_bytes_total_max = 8 * 1024 * 1024;

  struct argument {
    std::string head;       // the argument, or its first bytes
    std::int64_t size = 0;  // its declared length
    [[nodiscard]] bool whole() const { return static_cast<std::int64_t>(head.size()) == size; }
  };

  // REQUIRES: a call of decode() on the same first bytes returned `large`. Limits as in the decoder.
  explicit large_request(const request_decoder& limits);

  enum class status : std::uint8_t { more, complete, malformed };
  struct step {
    status what = status::more;
    std::size_t consumed =
        0;  // bytes of `input` that belong to the command and were inspected; forward them as they are
    std::string_view message = {};
  };
  // Takes the next input. `consumed` may be less than input.size() while a header line is incomplete: the next input
  // must start with what was left. REQUIRES: no call returned anything but `more` yet.
  [[nodiscard]] step advance(std::string_view input);

  // The last one may be incomplete until the next one begins or advance() returned `complete`.
  [[nodiscard]] const std::vector<argument>& arguments() const { return arguments_; }

 private:
  step take_head(std::string_view input);
  std::size_t take_payload(std::string_view input);

  std::vector<argument> arguments_;
  std::int64_t arguments_max_;
  std::int64_t bulk_bytes_max_;
  std::int64_t arguments_left_ = -1;  // −1: the command's own header comes first
  std::int64_t payload_left_ = 0;     // of the argument that is being read
  int crlf_left_ = 0;                 // of its CRLF; payload and CRLF both 0: a header line comes next
  std::size_t kept_total_ = 0;
};

// Splits an inline command line (without its line end) as Redis's sdssplitargs does: blanks separate; "…" with \xHH \n \r
// \t \b \a \\ \" escapes; '…' with \' only; a closing quote must be followed by a blank or the end. Error: unbalanced quotes.
// A NUL ends the line, as it does there.
[[nodiscard]] result<std::vector<std::string>> split_inline(std::string_view line);

// Appends a command as an array of bulk strings.
void append_command(std::string& out, std::span<const std::string_view> arguments);
inline void append_command(std::string& out, std::initializer_list<std::string_view> arguments) {
  append_command(out, std::span(arguments.begin(), arguments.size()));
}
template <class... Args>
void append_command_of(std::string& out, const Args&... arguments) {
  append_command(out, {std::string_view(arguments)...});
}

// ASCII case-insensitive equality; command names are ASCII.
[[nodiscard]] bool iequals(std::string_view a, std::string_view b);

}  // namespace fencegate::wire
