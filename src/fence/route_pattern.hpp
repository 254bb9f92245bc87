// Which requests a route is for: `PUT,DELETE /orders/{id}`, `* /files/{path...}`.
//
// Methods: a list, or `*` for all. Path: segments that are literal, `{name}` for one segment that is not empty, and as the
// last one `{name...}` for one or more, the first of which is not empty. Upper and lower case differ, and a slash at the
// end counts. Patterns are written as paths are decoded: `/a b`, not `/a%20b`.
//
// `{name:int}`, `{name:uuid}` and `{name:slug}` match as `{name}` does, so that what is no such value is refused by its
// route rather than taken for another's: whoever matches asks canonical() for each.
#pragma once

#include "base/result.hpp"
#include "fence/capture_type.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::fence {

// What stands for the names of a pattern, in their order; views into the path.
struct route_captures {
  static constexpr std::size_t count_max = 16;
  std::array<std::string_view, count_max> values;
};

class route_pattern {
 public:
  // Errors: no method or no path; a method that is no token in upper case, is repeated, or is CONNECT or TRACE, which no
  // gate lets through; a path that no request has ('.', '..', an empty segment before the last, '?', '#', '%', '\', a
  // control character, bytes that are no UTF-8); braces around a part of a segment; a name that is empty, repeated, has
  // bytes outside [A-Za-z0-9_], or means something else in templates ("body", "token"); an unknown type, and one of
  // `{name...}`; `{name...}` before the end; `*` in a path; more than route_captures::count_max names.
  [[nodiscard]] static result<route_pattern> parse(std::string_view text);

  // `path` is decoded and canonical: '/', and segments with '/' between them. On true, `out` has the captures.
  [[nodiscard]] bool match(std::string_view method, std::string_view path, route_captures& out) const;

  // Whether this one counts when both match. Segment by segment from the left, a literal precedes a `{name}`, and that a
  // `{name...}`; where paths are alike, a list of methods precedes `*`. A strict weak ordering.
  [[nodiscard]] bool precedes(const route_pattern& other) const;
  // True when some request matches both and neither is more specific.
  [[nodiscard]] bool collides_with(const route_pattern& other) const;

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  // Of the names, in their order.
  struct place {
    capture_type type = capture_type::text;
    std::size_t segment = 0;  // of the path, from 0
    bool tail = false;        // `{name...}`

    // Whether a path can have this value there, in its one spelling.
    [[nodiscard]] bool holds(std::string_view value) const;
  };
  [[nodiscard]] const std::vector<place>& places() const { return places_; }
  [[nodiscard]] bool any_method() const { return methods_.empty(); }
  // Whether the method stands in the list.
  [[nodiscard]] bool lists(std::string_view method) const;

 private:
  enum class kind : std::uint8_t { literal, name, tail };  // in the order of precedence
  struct segment {
    kind what;
    std::string text;  // of a literal

    friend bool operator==(const segment&, const segment&) = default;
    friend bool operator<(const segment& a, const segment& b) {
      return a.what != b.what ? a.what < b.what : a.text < b.text;
    }
  };

  result<void> read_methods(std::string_view list);
  result<void> read_path(std::string_view path);
  result<segment> read_segment(std::string_view text, bool last);

  std::string text_;
  std::vector<std::string> methods_;  // empty: all
  std::vector<segment> segments_;     // never empty
  std::vector<std::string> names_;    // of the captures, in order
  std::vector<place> places_;         // and what they are
};

}  // namespace fencegate::fence
