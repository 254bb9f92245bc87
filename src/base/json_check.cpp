#include "base/json_check.hpp"

#include "base/json_text.hpp"
#include "base/utf8.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace fencegate {

namespace {

class reader {
 public:
  explicit reader(std::string_view text) : rest_(text) {}

  bool is_one_value() {
    if (!begin_value()) return false;
    while (!open_.empty())
      if (!step()) return false;
    skip_blanks();
    return rest_.empty();
  }

 private:
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size())); }

  bool take(std::string_view what) {
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(what.size());
    return true;
  }

  // A value, or the beginning of one that has parts.
  bool begin_value() {
    skip_blanks();
    const bool object = rest_.starts_with('{');
    if (object || rest_.starts_with('[')) {
      rest_.remove_prefix(1);
      open_.push_back(object);
      empty_ = true;
      return true;
    }
    if (rest_.starts_with('"')) return take_string();
    return take("true") || take("false") || take("null") || take_number();
  }

  // Inside of the innermost object or array: its next part, or its end.
  bool step() {
    const bool object = open_.back();
    skip_blanks();
    if (take(object ? "}" : "]")) {
      open_.pop_back();
      empty_ = false;
      return true;
    }
    if (!empty_ && !take(",")) return false;
    empty_ = false;
    if (object && !take_name()) return false;
    return begin_value();
  }

  bool take_name() {
    skip_blanks();
    if (!take_string()) return false;
    skip_blanks();
    return take(":");
  }

  bool take_number() {
    const auto end = std::min(rest_.find_first_not_of("+-.0123456789eE"), rest_.size());
    const bool good = is_json_number(rest_.substr(0, end));
    rest_.remove_prefix(end);
    return good;
  }

  bool take_string() {
    if (!take("\"")) return false;
    while (!rest_.empty()) {
      if (take("\"")) return true;
      if (rest_.front() == '\\') {
        if (!take_escape()) return false;
      } else {
        if (static_cast<unsigned char>(rest_.front()) < 0x20) return false;
        rest_.remove_prefix(1);
      }
    }
    return false;
  }

  bool take_escape() {
    rest_.remove_prefix(1);
    if (take("u")) {
      const auto unit = take_unit();
      if (!unit || (*unit & 0xFC00U) == 0xDC00) return false;
      if ((*unit & 0xFC00U) != 0xD800) return true;
      if (!take("\\u")) return false;
      const auto low = take_unit();
      return low && (*low & 0xFC00U) == 0xDC00;
    }
    if (rest_.empty() || std::string_view("\"\\/bfnrt").find(rest_.front()) == std::string_view::npos) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::optional<unsigned> take_unit() {
    constexpr std::string_view digits = "0123456789abcdefABCDEF";
    constexpr std::size_t count = 4;
    const auto text = rest_.substr(0, count);
    if (text.size() < count) return std::nullopt;
    unsigned unit = 0;
    for (const char c : text) {
      const auto at = digits.find(c);
      if (at == std::string_view::npos) return std::nullopt;
      unit = unit << 4U | static_cast<unsigned>(at < 16 ? at : at - 6);
    }
    rest_.remove_prefix(count);
    return unit;
  }

  std::string_view rest_;
  std::vector<bool> open_;  // from the outermost to the innermost; true: an object
  bool empty_ = false;      // nothing of the innermost has come yet
};

}  // namespace

bool is_json(std::string_view text) { return is_utf8(text) && reader(text).is_one_value(); }

}  // namespace fencegate
