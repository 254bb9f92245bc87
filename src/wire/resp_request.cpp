#include "wire/resp_request.hpp"

#include "base/ascii.hpp"
#include "base/limits.hpp"
#include "wire/resp_header_line.hpp"
#include "wire/resp_inline.hpp"

#include <algorithm>
#include <charconv>

namespace fencegate::wire {

namespace {

// An idle connection must not hold on to what its largest command needed.
constexpr std::size_t extents_kept_max = 1024;

decoded_request malformed(std::string_view message) { return {request_status::malformed, 0, message}; }

// The bulk string that nearly all arguments are: at most 999 bytes, and all of it there. Gives where its payload begins
// and its size; false: look at it the long way, which accepts and rejects the same.
bool read_short_bulk(std::string_view text, std::size_t& begin, std::size_t& size) {
  constexpr std::size_t digits_max = 3;
  if (text.size() < sizeof("$0\r\n\r\n") - 1 || text[0] != '$') {
    return false;
  }
  const std::size_t digits_end = std::min(1 + digits_max, text.size() - 1);
  std::size_t at = 1;
  size = 0;
  for (; at < digits_end; ++at) {
    const auto digit = static_cast<unsigned char>(text[at] - '0');
    if (digit > 9) {
      break;
    }
    size = size * 10 + digit;
  }
  begin = at + 2;
  const bool canonical = at > 1 && (text[1] != '0' || at == 2);
  return canonical && text[at] == '\r' && text[at + 1] == '\n' && text.size() >= begin + size + 2 &&
         text[begin + size] == '\r' && text[begin + size + 1] == '\n';
}

}  // namespace

request_decoder::request_decoder()
    : arguments_max(limits::resp_arguments_max), bulk_bytes_max(limits::resp_bulk_bytes_max) {}

void request_decoder::reset_progress() {
  at_ = 0;
  if (extents_.capacity() > extents_kept_max) {
    std::vector<extent>().swap(extents_);
  } else {
    extents_.clear();
  }
}

decoded_request request_decoder::finish(decoded_request outcome) {
  if (outcome.status != request_status::need_more) {
    reset_progress();
  }
  return outcome;
}

decoded_request request_decoder::decode(std::string_view input, std::size_t buffered_max, request& out) {
  out.arguments.clear();
  if (input.size() < at_) {
    reset_progress();  // the caller broke the rule of decode(); reading from the start is right for any input
  }
  if (input.empty()) {
    return {};
  }
  return finish(input[0] == '*' ? decode_array(input, buffered_max, out) : decode_inline(input, out));
}

// need_more: the line is incomplete. complete: at_ and announced_ are set, the arguments come next.
decoded_request request_decoder::read_array_head(std::string_view input) {
  const header_line line = read_array_line(input, arguments_max);
  if (line.status == number_status::need_more) {
    return {};
  }
  if (line.status != number_status::complete) {
    return malformed(line.message);
  }
  if (line.value <= 0) {
    return {request_status::empty, line.bytes, {}};
  }
  announced_ = line.value;
  at_ = line.bytes;
  return {request_status::complete, 0, {}};
}

// complete: one more extent, at_ behind it.
decoded_request request_decoder::read_argument(std::string_view input, std::size_t buffered_max) {
  // Bytes beyond buffered_max are never looked at, so that the outcome does not depend on how much has come already.
  const std::string_view visible = input.substr(0, buffered_max);
  const header_line line = read_bulk_line(visible.substr(std::min(at_, visible.size())), bulk_bytes_max);
  if (line.status == number_status::need_more) {
    return {input.size() >= buffered_max ? request_status::large : request_status::need_more, 0, {}};
  }
  if (line.status != number_status::complete) {
    return malformed(line.message);
  }
  const std::size_t begin = at_ + line.bytes;
  const auto size = static_cast<std::size_t>(line.value);
  const std::size_t end = begin + size + 2;  // at most 2^63 + a few
  if (end > buffered_max) {
    return {request_status::large, 0, {}};
  }
  if (end > input.size()) {
    return {};
  }
  if (input[end - 2] != '\r' || input[end - 1] != '\n') {
    return malformed(missing_crlf);
  }
  extents_.push_back({begin, size});
  at_ = end;
  return {request_status::complete, 0, {}};
}

decoded_request request_decoder::decode_array(std::string_view input, std::size_t buffered_max, request& out) {
  if (at_ == 0) {
    const decoded_request head = read_array_head(input);
    if (head.status != request_status::complete) {
      return head;
    }
  }
  const std::string_view visible = input.substr(0, buffered_max);
  while (static_cast<std::int64_t>(extents_.size()) < announced_) {
    std::size_t begin = 0;
    std::size_t size = 0;
    if (at_ <= visible.size() && read_short_bulk(visible.substr(at_), begin, size) &&
        static_cast<std::int64_t>(size) <= bulk_bytes_max) {
      extents_.push_back({at_ + begin, size});
      at_ += begin + size + 2;
      continue;
    }
    const decoded_request argument = read_argument(input, buffered_max);
    if (argument.status != request_status::complete) {
      return argument;
    }
  }
  out.arguments.resize(extents_.size());
  std::transform(extents_.begin(), extents_.end(), out.arguments.begin(),
                 [input](const extent& e) { return std::string_view(input.data() + e.begin, e.size); });
  out.raw = input.substr(0, at_);
  out.inlined = false;
  return {request_status::complete, at_, {}};
}

decoded_request request_decoder::decode_inline(std::string_view input, request& out) {
  constexpr std::size_t line_max = limits::resp_line_bytes_max;
  const std::size_t newline = input.substr(0, line_max + 1).find('\n', at_);
  if (newline == std::string_view::npos) {
    if (input.size() > line_max) {
      return malformed("too big inline request");
    }
    at_ = input.size();
    return {};
  }
  std::string_view line = input.substr(0, newline);
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  // Redis looks for the line's end with strchr and so reads such a line differently from everybody else.
  if (line.find('\0') != std::string_view::npos) {
    return malformed("NUL in inline request");
  }
  if (line.find_first_of("\"'") == std::string_view::npos) {
    split_plain(line, out.arguments);
  } else {
    result<std::vector<std::string>> words = split_inline(line);
    if (!words) {
      return malformed("unbalanced quotes in request");
    }
    unquoted_ = std::move(*words);
    out.arguments.assign(unquoted_.begin(), unquoted_.end());
  }
  if (out.arguments.empty()) {
    return {request_status::empty, newline + 1, {}};
  }
  if (iequals(out.name(), "POST") || iequals(out.name(), "Host:")) {
    out.arguments.clear();
    return malformed("possible cross-protocol request");
  }
  out.raw = input.substr(0, newline + 1);
  out.inlined = true;
  return {request_status::complete, newline + 1, {}};
}

namespace {

void append_header_line(std::string& out, char type, std::size_t value) {
  char line[24];
  line[0] = type;
  char* end = std::to_chars(line + 1, line + sizeof line - 2, value).ptr;
  *end++ = '\r';
  *end++ = '\n';
  out.append(line, static_cast<std::size_t>(end - line));
}

}  // namespace

void append_command(std::string& out, std::span<const std::string_view> arguments) {
  append_header_line(out, '*', arguments.size());
  for (const std::string_view argument : arguments) {
    append_header_line(out, '$', argument.size());
    out.append(argument);
    out.append("\r\n", 2);
  }
}

bool iequals(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return ascii_lower(x) == ascii_lower(y); });
}

}  // namespace fencegate::wire
