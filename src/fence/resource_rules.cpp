#include "fence/resource_rules.hpp"

#include "base/limits.hpp"
#include "fence/printable.hpp"
#include "fence/token.hpp"

#include <algorithm>
#include <array>

namespace fencegate::fence {

namespace {

bool is_capture_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

// Reads `keys` and `resource` of one rule into parts.
class key_rule::pattern_reader {
 public:
  explicit pattern_reader(key_rule& into) : rule_(into) {}

  result<void> read_keys(std::string_view keys);
  result<void> read_resource(std::string_view resource);

 private:
  // The name between braces, and `at` behind them. REQUIRES: text[at] == '{'.
  static result<std::string_view> read_name(std::string_view text, std::size_t& at);
  static void append_literal(std::vector<part>& parts, char c);

  result<void> add_capture(std::string_view keys, std::string_view name);
  result<void> add_star(std::string_view keys);

  key_rule& rule_;
  std::vector<std::string> names_;  // captures of `keys`, in order
};

result<std::string_view> key_rule::pattern_reader::read_name(std::string_view text, std::size_t& at) {
  const auto close = text.find('}', at);
  if (close == std::string_view::npos) return error{"'{' without '}' in " + quoted(text)};
  const auto name = text.substr(at + 1, close - at - 1);
  if (!is_capture_name(name)) {
    return error{quoted(name) + " between braces in " + quoted(text) + " is not a name of A-Z a-z 0-9 _"};
  }
  at = close + 1;
  return name;
}

void key_rule::pattern_reader::append_literal(std::vector<part>& parts, char c) {
  if (parts.empty() || parts.back().what != part::kind::literal) parts.push_back({part::kind::literal, {}});
  parts.back().text += c;
}

result<void> key_rule::pattern_reader::add_capture(std::string_view keys, std::string_view name) {
  auto& parts = rule_.keys_.back();
  const bool behind_capture = !parts.empty() && parts.back().what == part::kind::capture;
  const bool behind_star = parts.empty() && rule_.keys_.size() > 1;
  if (behind_capture || behind_star) {
    return error{"{" + std::string(name) + "} in " + quoted(keys) + " needs a literal between it and what precedes it"};
  }
  if (std::find(names_.begin(), names_.end(), name) != names_.end()) {
    return error{"{" + std::string(name) + "} stands twice in " + quoted(keys)};
  }
  if (names_.size() == captures_max) {
    return error{quoted(keys) + " has more than " + std::to_string(captures_max) + " names in braces"};
  }
  parts.push_back({part::kind::capture, std::string(name), names_.size()});
  names_.emplace_back(name);
  return {};
}

result<void> key_rule::pattern_reader::add_star(std::string_view keys) {
  const auto& parts = rule_.keys_.back();
  if (!parts.empty() && parts.back().what == part::kind::capture) {
    return error{"'{" + parts.back().text + "}*' in " + quoted(keys) + " needs a literal between the two"};
  }
  // "**" means what "*" means.
  if (rule_.keys_.size() == 1 || !parts.empty()) rule_.keys_.emplace_back();
  return {};
}

result<void> key_rule::pattern_reader::read_keys(std::string_view keys) {
  if (keys.empty()) return error{"an empty pattern of keys; '*' is every key"};
  rule_.keys_.emplace_back();
  for (std::size_t at = 0; at < keys.size();) {
    const char c = keys[at];
    if (c == '{') {
      const auto name = read_name(keys, at);
      if (!name) return name.error();
      if (auto added = add_capture(keys, *name); !added) return added.error();
    } else if (c == '}') {
      return error{"'}' without '{' in " + quoted(keys) + "; '\\}' is a literal one"};
    } else if (c == '*') {
      if (auto added = add_star(keys); !added) return added.error();
      ++at;
    } else {
      if (c == '\\' && ++at == keys.size()) return error{"'\\' at the end of " + quoted(keys)};
      append_literal(rule_.keys_.back(), keys[at++]);
    }
  }
  return {};
}

result<void> key_rule::pattern_reader::read_resource(std::string_view resource) {
  if (resource.empty()) return error{"an empty resource"};
  std::size_t bytes_least = 0;  // each capture is one byte at least
  for (std::size_t at = 0; at < resource.size(); ++bytes_least) {
    if (resource[at] == '{') {
      const auto name = read_name(resource, at);
      if (!name) return name.error();
      const auto found = std::find(names_.begin(), names_.end(), *name);
      if (found == names_.end()) {
        return error{"{" + std::string(*name) + "} in resource " + quoted(resource) + " does not stand in its keys"};
      }
      const auto index = static_cast<std::size_t>(found - names_.begin());
      rule_.resource_.push_back({part::kind::capture, *found, index});
    } else if (is_resource_byte(resource[at])) {
      append_literal(rule_.resource_, resource[at++]);
    } else {
      return error{quoted(resource.substr(at, 1)) + " in resource " + quoted(resource) +
                   " cannot stand in a resource name: A-Z a-z 0-9 _ . : / -"};
    }
  }
  if (bytes_least > limits::resource_bytes_max) {
    return error{"resource " + quoted(resource) + " is longer than " + std::to_string(limits::resource_bytes_max) +
                 " bytes"};
  }
  return {};
}

// One key against one rule. Segments are placed from left to right, each as far left as it goes; that never misses a
// match, since a segment placed further left never ends further right, and the star behind it takes up the difference.
class key_rule::matcher {
 public:
  explicit matcher(std::string_view key) : key_(key) {}

  bool run(const std::vector<segment>& segments);
  [[nodiscard]] std::string_view captured(std::size_t index) const { return captures_[index].text; }

 private:
  struct capture {
    std::string_view text;
    // End found by the latest search. Attempts begin further and further right, so that it answers for later ones that
    // begin before it: without this, "*a{x}b" would look through a key of many 'a' once for each of them.
    std::optional<std::size_t> end;
  };

  bool place_at(const segment& parts, std::size_t at, bool last);
  bool place_from(const segment& parts, bool last);
  std::size_t capture_end(capture& c, char stop, std::size_t at) const;

  std::string_view key_;
  std::size_t at_ = 0;  // behind the segments placed so far
  std::array<capture, captures_max> captures_;
};

bool key_rule::matcher::run(const std::vector<segment>& segments) {
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const bool last = i + 1 == segments.size();
    if (!(i == 0 ? place_at(segments[i], 0, last) : place_from(segments[i], last))) return false;
  }
  return true;
}

std::size_t key_rule::matcher::capture_end(capture& c, char stop, std::size_t at) const {
  if (!c.end || *c.end < at) c.end = key_.find(stop, at);  // npos, too, holds for every later attempt
  return *c.end;
}

// Sets at_ behind the segment when it fits exactly at `at`.
bool key_rule::matcher::place_at(const segment& parts, std::size_t at, bool last) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const part& p = parts[i];
    if (p.what == part::kind::literal) {
      if (!key_.substr(at).starts_with(p.text)) return false;
      at += p.text.size();
      continue;
    }
    capture& c = captures_[p.index];
    const auto end = i + 1 == parts.size() ? key_.size() : capture_end(c, parts[i + 1].text.front(), at);
    if (end == std::string_view::npos || end == at) return false;
    c.text = key_.substr(at, end - at);
    at = end;
  }
  if (last && at != key_.size()) return false;
  at_ = at;
  return true;
}

// Places a segment behind a star.
bool key_rule::matcher::place_from(const segment& parts, bool last) {
  if (parts.empty()) return true;  // the pattern ends in a star
  const std::string& head = parts.front().text;
  if (last && parts.size() == 1) {
    const bool fits = key_.size() - at_ >= head.size() && key_.ends_with(head);
    at_ = key_.size();
    return fits;
  }
  for (auto at = key_.find(head, at_); at != std::string_view::npos; at = key_.find(head, at + 1)) {
    if (place_at(parts, at, last)) return true;
  }
  return false;
}

result<key_rule> key_rule::compile(std::string_view keys, std::string_view resource, policy rules) {
  key_rule rule;
  rule.policy_ = rules;
  pattern_reader reader(rule);
  if (auto read = reader.read_keys(keys); !read) return read.error();
  if (auto read = reader.read_resource(resource); !read) return read.error();
  return rule;
}

std::optional<std::string> key_rule::match(std::string_view key) const {
  matcher m(key);
  if (!m.run(keys_)) return std::nullopt;

  // One byte past the limit is enough to be invalid: a capture of 512 MB is not copied.
  constexpr auto bytes_max = limits::resource_bytes_max + 1;
  std::string name;
  for (const part& p : resource_) {
    const auto text = p.what == part::kind::literal ? std::string_view(p.text) : m.captured(p.index);
    name += text.substr(0, bytes_max - name.size());
  }
  return name;
}

// A capture stands for any run of one or more bytes. `reached[i]`: the parts so far can end at byte i.
bool key_rule::can_name(std::string_view resource) const {
  if (resource.size() > limits::resource_bytes_max) return false;
  std::vector<bool> reached(resource.size() + 1, false);
  reached[0] = true;
  for (const part& p : resource_) {
    std::vector<bool> next(resource.size() + 1, false);
    bool open = false;
    for (std::size_t i = 0; i <= resource.size(); ++i) {
      if (p.what == part::kind::capture) {
        next[i] = open;
        open = open || reached[i];
      } else if (reached[i] && resource.substr(i).starts_with(p.text)) {
        next[i + p.text.size()] = true;
      }
    }
    reached = std::move(next);
  }
  return reached[resource.size()];
}

bool key_rule::can_name_all_of(const key_rule& other) const {
  // For a capture a byte that no literal has, so that only a capture of this rule can take it in.
  std::string any;
  for (const part& p : other.resource_) any += p.what == part::kind::capture ? "*" : p.text;
  return can_name(any);
}

std::optional<rule_match> first_match(std::span<const key_rule> rules, std::string_view key) {
  for (const key_rule& rule : rules) {
    if (auto resource = rule.match(key)) return rule_match{&rule, std::move(*resource)};
  }
  return std::nullopt;
}

}  // namespace fencegate::fence
