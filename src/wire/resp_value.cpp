// parse_value: whole replies as trees.
#include "base/limits.hpp"
#include "wire/resp_reply.hpp"

#include <utility>

namespace fencegate::wire {

namespace {

// Reads values from the front of the input; `at` stands behind what was read.
class tree_reader {
 public:
  explicit tree_reader(std::string_view input) : input_(input) {}

  // One value, behind the attributes that may precede it; at the top level (depth 0) a push is a value.
  head_status read(reply_value& out, std::size_t depth) {
    for (;;) {
      reply_head head;
      const head_status status = read_head(input_.substr(at_), head);
      if (status != head_status::complete) {
        return status;
      }
      at_ += head.bytes;
      const bool in_passing = head.type == '|' || (head.type == '>' && depth > 0);
      if (!in_passing) {
        return read_body(head, out, depth);
      }
      reply_value skipped;
      if (const head_status body = read_body(head, skipped, depth); body != head_status::complete) {
        return body;
      }
    }
  }

  [[nodiscard]] std::size_t at() const { return at_; }

 private:
  // What belongs to `head`, which was read already.
  head_status read_body(const reply_head& head, reply_value& out, std::size_t depth) {
    out.type = head.type;
    out.null = head.is_null();
    switch (head.type) {
      case '$':
      case '!':
      case '=': return out.null ? head_status::complete : read_payload(head.count, out);
      case '*':
      case '~':
      case '>': return read_elements(head.count, out, depth);
      case '%':
      case '|': return read_elements(head.count * 2, out, depth);
      default: out.text = head.line; return head_status::complete;
    }
  }

  head_status read_payload(std::int64_t count, reply_value& out) {
    const std::string_view rest = input_.substr(at_);
    const auto size = static_cast<std::size_t>(count);
    if ((rest.size() > size && rest[size] != '\r') || (rest.size() > size + 1 && rest[size + 1] != '\n')) {
      return head_status::malformed;
    }
    if (rest.size() < size + 2) {
      return head_status::need_more;
    }
    out.text = rest.substr(0, size);
    at_ += size + 2;
    return head_status::complete;
  }

  head_status read_elements(std::int64_t count, reply_value& out, std::size_t depth) {
    if (count > 0 && depth == limits::resp_depth_max) {
      return head_status::malformed;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const head_status status = read(out.elements.emplace_back(), depth + 1);
      if (status != head_status::complete) {
        return status;
      }
    }
    return head_status::complete;
  }

  std::string_view input_;
  std::size_t at_ = 0;
};

}  // namespace

result<std::optional<std::pair<reply_value, std::size_t>>> parse_value(std::string_view input) {
  using parsed = std::optional<std::pair<reply_value, std::size_t>>;
  tree_reader reader(input);
  reply_value value;
  switch (reader.read(value, 0)) {
    case head_status::complete: return parsed(std::in_place, std::move(value), reader.at());
    case head_status::need_more: return parsed(std::nullopt);
    case head_status::malformed: break;
  }
  return error{"the server's reply is malformed"};
}

}  // namespace fencegate::wire
