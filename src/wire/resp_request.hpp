// RESP requests as a proxy must read them: arrays of bulk strings and inline commands (https://redis.io/docs/reference/
// protocol-spec), decoded in place from the client's input buffer.
//
// Stricter than Redis: exact CRLF everywhere (Redis checks neither the LF of a header nor the CRLF behind a bulk) and
// canonical lengths, because what was inspected must be what is forwarded. Nothing is allocated from a declared length.
#pragma once

#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
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

// Decodes the command at the start of `input`. On `complete`, `out` holds it (its vector is reused between calls, and so
// is `unquoted`, which owns the arguments of inline commands with quotes). A command is `large` as soon as the declared
// length of its next bulk would end beyond `buffered_max` bytes from the command's start; everything before that bulk
// was received whole. Inline commands are never large: their line is limited to limits::resp_line_bytes_max.
// Malformed: see corners: non-canonical or out-of-range numbers ("invalid multibulk length", "invalid bulk length"),
// anything but `$` before an argument ("expected '$', got 'x'"), a header line too long ("too big mbulk count string",
// "too big bulk count string"), missing CRLF, unbalanced quotes ("unbalanced quotes in request"), an inline line too long
// ("too big inline request"), first word `POST` or `Host:` (any case; "possible cross-protocol request").
// Before authentication pass arguments_max = 10 and bulk_bytes_max = 16384, as Redis does ("unauthenticated multibulk
// length", "unauthenticated bulk length").
class request_decoder {
 public:
  [[nodiscard]] decoded_request decode(std::string_view input, std::size_t buffered_max, request& out);

  std::int64_t arguments_max;
  std::int64_t bulk_bytes_max;

  request_decoder();

 private:
  std::vector<std::string> unquoted_;
  // Where an incomplete command stands, so that a command that arrives in many pieces is not scanned from its start
  // each time. Reset by reset_progress() and whenever a call returns anything but need_more.
  // (Optional: may be left out if decode is linear anyway.)
 public:
  // REQUIRES calling when the bytes at the start of the next `input` are not the ones of the last call plus more.
  void reset_progress();

 private:
  std::size_t seen_arguments_ = 0;
  std::size_t seen_bytes_ = 0;
};

// Follows a `large` command through the input without holding it: says how many bytes belong to the command, keeps small
// arguments and the heads of big ones.
class large_request {
 public:
  static constexpr std::size_t kept_bytes_max = 4096;  // of each argument

  struct argument {
    std::string head;        // its first bytes, at most kept_bytes_max
    std::int64_t size = 0;   // its declared length
    [[nodiscard]] bool whole() const { return static_cast<std::int64_t>(head.size()) == size; }
  };

  // REQUIRES: a call of decode() on the same first bytes returned `large`. Limits as in the decoder.
  explicit large_request(const request_decoder& limits);

  enum class status : std::uint8_t { more, complete, malformed };
  struct step {
    status what = status::more;
    std::size_t consumed = 0;  // bytes of `input` that belong to the command and were inspected; forward them as they are
    std::string_view message = {};
  };
  // Takes the next input. `consumed` may be less than input.size() while a header line is incomplete.
  [[nodiscard]] step advance(std::string_view input);

  [[nodiscard]] const std::vector<argument>& arguments() const { return arguments_; }
  // Arguments kept, together, are bounded: beyond this, `malformed` ("too many arguments in a large command").
  static constexpr std::size_t kept_bytes_total_max = 8 * 1024 * 1024;

 private:
  std::vector<argument> arguments_;
  std::int64_t arguments_max_;
  std::int64_t bulk_bytes_max_;
  std::int64_t arguments_left_ = -1;
  std::int64_t bulk_left_ = -1;      // payload bytes still to come, then the CRLF; -1: a header line comes next
  int crlf_left_ = 0;
  std::size_t kept_total_ = 0;
};

// Splits an inline command line (without its line end) as Redis's sdssplitargs does: blanks separate; "…" with \xHH \n \r
// \t \b \a \\ \" escapes; '…' with \' only; a closing quote must be followed by a blank or the end. Error: unbalanced quotes.
[[nodiscard]] result<std::vector<std::string>> split_inline(std::string_view line);

// Appends a command as an array of bulk strings.
void append_command(std::string& out, const std::vector<std::string_view>& arguments);
template <class... Args>
void append_command_of(std::string& out, const Args&... arguments) {
  append_command(out, std::vector<std::string_view>{std::string_view(arguments)...});
}

// ASCII case-insensitive equality; command names are ASCII.
[[nodiscard]] bool iequals(std::string_view a, std::string_view b);

}  // namespace fencegate::wire
