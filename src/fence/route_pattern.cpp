#include "fence/route_pattern.hpp"

#include "base/utf8.hpp"
#include "fence/printable.hpp"

#include <algorithm>
#include <optional>

namespace fencegate::fence {

namespace {

constexpr std::string_view tail_dots = "...";

bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return is_alphanumeric(c) || c == '_'; });
}

// A tchar (RFC 9110) that is no lower-case letter.
bool is_method_byte(char c) {
  constexpr std::string_view marks = "!#$%&'+-.^_`|~";
  return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || marks.find(c) != std::string_view::npos;
}

// Bytes of a literal that no canonical path has, or that would be taken for something else.
bool is_literal_byte(char c) {
  constexpr std::string_view others = "?#%\\{}*";
  return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f && others.find(c) == std::string_view::npos;
}

// Takes the text up to the next `separator` off the front; `rest` is nothing at all when there was none.
std::string_view take_until(std::string_view& rest, char separator) {
  const auto end = rest.find(separator);
  const auto taken = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  return taken;
}

}  // namespace

result<route_pattern> route_pattern::parse(std::string_view text) {
  const auto blank = text.find(' ');
  if (blank == std::string_view::npos) return error{quoted(text) + " is not METHODS /path, as in 'PUT /orders/{id}'"};
  route_pattern pattern;
  pattern.text_ = text;
  if (auto read = pattern.read_methods(text.substr(0, blank)); !read) return read.error();
  if (auto read = pattern.read_path(text.substr(blank + 1)); !read) return read.error();
  return pattern;
}

result<void> route_pattern::read_methods(std::string_view list) {
  if (list == "*") return {};
  for (bool more = true; more;) {
    more = list.find(',') != std::string_view::npos;
    const auto method = take_until(list, ',');
    if (method.empty() || !std::all_of(method.begin(), method.end(), is_method_byte)) {
      return error{quoted(method) + " in " + quoted(text_) + " is not a method in upper case, as PUT, or * for all"};
    }
    if (method == "CONNECT" || method == "TRACE") return error{std::string(method) + " is never let through"};
    if (lists(method)) return error{std::string(method) + " stands twice in " + quoted(text_)};
    methods_.emplace_back(method);
  }
  return {};
}

result<void> route_pattern::read_path(std::string_view path) {
  if (!path.starts_with('/')) return error{"the path of " + quoted(text_) + " does not begin with '/'"};
  path.remove_prefix(1);
  for (bool last = false; !last;) {
    last = path.find('/') == std::string_view::npos;
    auto next = read_segment(take_until(path, '/'), last);
    if (!next) return next.error();
    segments_.push_back(std::move(*next));
  }
  return {};
}

result<route_pattern::segment> route_pattern::read_segment(std::string_view text, bool last) {
  if (!text.starts_with('{')) {
    const auto plain = text.substr(0, text.find(';'));
    if ((text.empty() && !last) || plain == "." || plain == "..") {
      return error{"no path of a request has a segment " + quoted(text) + " as " + quoted(text_)};
    }
    if (!std::all_of(text.begin(), text.end(), is_literal_byte) || !is_utf8(text)) {
      return error{quoted(text) + " in " + quoted(text_) +
                   " is neither a segment of a decoded path nor {name} or {name...} as a whole"};
    }
    return segment{kind::literal, std::string(text)};
  }
  if (!text.ends_with('}')) return error{"braces in " + quoted(text_) + " go around a whole segment"};
  auto name = text.substr(1, text.size() - 2);
  const bool tail = name.ends_with(tail_dots);
  if (tail) name.remove_suffix(tail_dots.size());
  auto type = std::optional(capture_type::text);
  if (const auto colon = name.find(':'); colon != std::string_view::npos) {
    const auto type_name = name.substr(colon + 1);
    type = capture_type_of(type_name);
    if (!type)
      return error{"{" + printable(name, quoted_bytes_max) + "} in " + quoted(text_) + ": there are the types " +
                   std::string(capture_type_names)};
    if (tail) return error{quoted(type_name) + " in " + quoted(text_) + " is the type of one segment, not of several"};
    name = name.substr(0, colon);
  }
  if (!is_name(name)) return error{quoted(name) + " in " + quoted(text_) + " is not a name of A-Z a-z 0-9 _"};
  if (name == "body" || name == "token") return error{"{" + std::string(name) + "} is not a part of the path"};
  if (tail && !last) return error{"{" + std::string(name) + "...} in " + quoted(text_) + " must be the last segment"};
  if (std::find(names_.begin(), names_.end(), name) != names_.end()) {
    return error{"{" + std::string(name) + "} stands twice in " + quoted(text_)};
  }
  if (names_.size() == route_captures::count_max) {
    return error{quoted(text_) + " has more than " + std::to_string(route_captures::count_max) + " names in braces"};
  }
  names_.emplace_back(name);
  places_.push_back({*type, segments_.size(), tail});
  return segment{tail ? kind::tail : kind::name, {}};
}

bool route_pattern::place::holds(std::string_view value) const {
  if (!tail && value.find('/') != std::string_view::npos) return false;
  return !value.empty() && !value.starts_with('/') && canonical(type, value) == value;
}

bool route_pattern::lists(std::string_view method) const {
  return std::find(methods_.begin(), methods_.end(), method) != methods_.end();
}

bool route_pattern::match(std::string_view method, std::string_view path, route_captures& out) const {
  if (!any_method() && !lists(method)) return false;
  if (!path.starts_with('/')) return false;
  std::size_t captured = 0;
  bool over = false;  // the path has no more segments
  path.remove_prefix(1);
  for (const segment& expected : segments_) {
    if (over) return false;
    const auto slash = path.find('/');
    const auto found = path.substr(0, slash);
    if (expected.what == kind::literal) {
      if (found != expected.text) return false;
    } else if (found.empty()) {
      return false;
    } else if (expected.what == kind::tail) {
      out.values[captured] = path;
      return true;  // it is the last
    } else {
      out.values[captured++] = found;
    }
    over = slash == std::string_view::npos;
    path.remove_prefix(over ? path.size() : slash + 1);
  }
  return over;
}

bool route_pattern::precedes(const route_pattern& other) const {
  return segments_ == other.segments_ ? !any_method() && other.any_method() : segments_ < other.segments_;
}

bool route_pattern::collides_with(const route_pattern& other) const {
  if (segments_ != other.segments_ || any_method() != other.any_method()) return false;
  return any_method() ||
         std::any_of(methods_.begin(), methods_.end(), [&](const std::string& m) { return other.lists(m); });
}

}  // namespace fencegate::fence
