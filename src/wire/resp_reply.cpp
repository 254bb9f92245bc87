#include "wire/resp_reply.hpp"

#include "base/limits.hpp"
#include "wire/resp_number.hpp"

#include <algorithm>

namespace fencegate::wire {

namespace {

bool is_bulk(char type) { return type == '$' || type == '!' || type == '='; }

bool is_out_of_band(char type) { return type == '|' || type == '>'; }

bool is_aggregate(char type) { return type == '*' || type == '~' || type == '%' || type == '>' || type == '|'; }

// Elements of an aggregate: its declared count, twice that for pairs, 0 for a null.
std::int64_t elements_of(const reply_head& head) {
  const std::int64_t count = std::max<std::int64_t>(head.count, 0);
  return head.type == '%' || head.type == '|' ? count * 2 : count;
}

// Finds the line behind the type byte; `out.line` and `out.bytes` are set on complete.
head_status read_line(std::string_view input, std::size_t line_max, reply_head& out) {
  const std::string_view visible = input.substr(1, line_max + 1);
  const std::size_t end = visible.find('\r');
  if (visible.substr(0, end).find('\n') != std::string_view::npos) {
    return head_status::malformed;
  }
  if (end == std::string_view::npos) {
    return visible.size() > line_max ? head_status::malformed : head_status::need_more;
  }
  if (end + 2 == input.size()) {  // the CR is the last byte
    return head_status::need_more;
  }
  if (input[end + 2] != '\n') {
    return head_status::malformed;
  }
  out.line = visible.substr(0, end);
  out.bytes = end + 3;
  return head_status::complete;
}

bool all_of(std::string_view line, std::string_view allowed) {
  return line.find_first_not_of(allowed) == std::string_view::npos;
}

bool is_double(std::string_view line) {
  if (line == "inf" || line == "-inf" || line == "nan" || line == "-nan") {
    return true;
  }
  constexpr std::string_view digits = "0123456789";
  return all_of(line, "0123456789+-.eE") && line.find_first_of(digits) != std::string_view::npos;
}

// Null, boolean, double: a line whose text must fit the type.
head_status read_checked_line(std::string_view input, reply_head& out) {
  const head_status status = read_line(input, limits::resp_line_bytes_max, out);
  if (status != head_status::complete) {
    return status;
  }
  const bool fits = (out.type == '_' && out.line.empty()) ||
                    (out.type == '#' && (out.line == "t" || out.line == "f")) ||
                    (out.type == ',' && is_double(out.line));
  return fits ? head_status::complete : head_status::malformed;
}

// Integers, and the lengths and counts of everything else.
head_status read_number_line(std::string_view input, reply_head& out) {
  std::int64_t value = 0;
  std::size_t bytes = 0;
  const number_status status = read_number(input.substr(1), value, bytes);
  if (status == number_status::need_more) {
    return head_status::need_more;
  }
  if (status != number_status::complete) {
    return head_status::malformed;
  }
  out.line = input.substr(1, bytes - 2);
  out.bytes = 1 + bytes;
  if (out.type == ':') {
    return head_status::complete;
  }
  const std::int64_t least = out.type == '$' || out.type == '*' ? -1 : out.type == '=' ? 4 : 0;
  if (value < least || value > reply_count_max) {
    return head_status::malformed;
  }
  out.count = value;
  return head_status::complete;
}

}  // namespace

head_status read_head(std::string_view input, reply_head& out) {
  if (input.empty()) {
    return head_status::need_more;
  }
  out = {};
  out.type = input[0];
  switch (input[0]) {
    case '+':
      // What a fenced write's replies begin with, so not worth a search.
      if (input.starts_with("+OK\r\n")) {
        out.line = input.substr(1, 2);
        out.bytes = 5;
        return head_status::complete;
      }
      if (input.starts_with("+QUEUED\r\n")) {
        out.line = input.substr(1, 6);
        out.bytes = 9;
        return head_status::complete;
      }
      [[fallthrough]];
    case '-':
    case '(': return read_line(input, simple_line_bytes_max, out);
    case ':':
    case '$':
    case '!':
    case '=':
    case '*':
    case '~':
    case '%':
    case '>':
    case '|': return read_number_line(input, out);
    case '_':
    case '#':
    case ',': return read_checked_line(input, out);
    default: return head_status::malformed;
  }
}

void value_scanner::begin(const reply_head& head) {
  left_.clear();
  if (left_.capacity() > limits::resp_depth_max) {
    left_.shrink_to_fit();
  }
  payload_left_ = 0;
  static_cast<void>(take(head));  // the first level is never too deep
  close_finished();
}

bool value_scanner::take(const reply_head& head) {
  if (!left_.empty() && !is_out_of_band(head.type)) {
    left_.back() -= 1;
  }
  if (is_bulk(head.type)) {
    payload_left_ = head.count < 0 ? 0 : head.count + 2;
    return true;
  }
  const std::int64_t elements = is_aggregate(head.type) ? elements_of(head) : 0;
  if (elements > 0) {
    if (left_.size() == limits::resp_relayed_depth_max) {
      return false;
    }
    left_.push_back(elements);
  }
  return true;
}

void value_scanner::close_finished() {
  while (!left_.empty() && left_.back() == 0) {
    left_.pop_back();
  }
  done_ = left_.empty() && payload_left_ == 0;
}

bool value_scanner::take_payload(std::string_view input, std::size_t& at) {
  if (payload_left_ > 2) {
    const auto available = static_cast<std::int64_t>(input.size() - at);
    const std::int64_t taken = std::min(payload_left_ - 2, available);
    payload_left_ -= taken;
    at += static_cast<std::size_t>(taken);
  }
  while (payload_left_ > 0 && payload_left_ <= 2 && at < input.size()) {
    if (input[at] != (payload_left_ == 2 ? '\r' : '\n')) {
      return false;
    }
    payload_left_ -= 1;
    at += 1;
  }
  return true;
}

value_scanner::step value_scanner::advance(std::string_view input) {
  std::size_t at = 0;
  while (!done_) {
    if (payload_left_ > 0) {
      if (!take_payload(input, at)) {
        return {status::malformed, at};
      }
      if (payload_left_ > 0) {
        return {status::more, at};
      }
      close_finished();
      continue;
    }
    reply_head head;
    const head_status read = read_head(input.substr(at), head);
    if (read == head_status::need_more) {
      return {status::more, at};
    }
    if (read == head_status::malformed || !take(head)) {
      return {status::malformed, at};
    }
    at += head.bytes;
    close_finished();
  }
  return {status::complete, at};
}

}  // namespace fencegate::wire
