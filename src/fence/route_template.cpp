#include "fence/route_template.hpp"

#include "base/limits.hpp"
#include "fence/printable.hpp"
#include "fence/token.hpp"

#include <algorithm>

namespace fencegate::fence {

namespace {

using kind = route_template::part::kind;

constexpr std::string_view query_prefix = "query.";
constexpr std::string_view header_prefix = "header.";

bool is_field_name_byte(char c) {
  constexpr std::string_view marks = "!#$%&'*+-.^_`|~";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         marks.find(c) != std::string_view::npos;
}

}  // namespace

result<route_template> route_template::parse(std::string_view text, const route_pattern& pattern) {
  route_template out;
  out.text_ = text;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '{') {
      const auto close = text.find('}', at);
      if (close == std::string_view::npos) return error{"'{' without '}' in " + quoted(text)};
      auto named = out.read_name(text.substr(at + 1, close - at - 1), pattern);
      if (!named) return named.error();
      out.parts_.push_back(std::move(*named));
      at = close + 1;
      continue;
    }
    if (text[at] == '}') return error{"'}' without '{' in " + quoted(text) + "; '\\}' is a literal one"};
    if (text[at] == '\\' && ++at == text.size()) return error{"'\\' at the end of " + quoted(text)};
    if (out.parts_.empty() || out.parts_.back().what != kind::literal) out.parts_.push_back({kind::literal, {}});
    out.parts_.back().text += text[at++];
  }
  const bool lacks = std::any_of(out.parts_.begin(), out.parts_.end(), [](const part& p) { return p.optional; });
  if (lacks && !out.optional()) return error{"what may be missing stands alone, and not as in " + quoted(text)};
  return out;
}

result<route_template::part> route_template::read_name(std::string_view name, const route_pattern& pattern) {
  const bool optional = name.ends_with('?');
  if (optional) name.remove_suffix(1);
  auto named = read_plain_name(name, pattern);
  if (!named || !optional) return named;
  if (named->what != kind::query && named->what != kind::header)
    return error{"{" + printable(name, quoted_bytes_max) + "?} in " + quoted(text_) +
                 " is never missing: leave the ? out"};
  named->optional = true;
  return named;
}

result<route_template::part> route_template::read_plain_name(std::string_view name, const route_pattern& pattern) {
  if (name == "body") return part{kind::body, {}};
  if (name == "token") return part{kind::token, {}};
  if (name.starts_with(query_prefix) && name.size() > query_prefix.size()) {
    return part{kind::query, std::string(name.substr(query_prefix.size()))};
  }
  if (name.starts_with(header_prefix)) {
    const auto field = name.substr(header_prefix.size());
    if (field.empty() || !std::all_of(field.begin(), field.end(), is_field_name_byte)) {
      return error{quoted(field) + " in " + quoted(text_) + " is not the name of a header field"};
    }
    return part{kind::header, std::string(field)};
  }
  const auto& names = pattern.names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    return error{"{" + printable(name, quoted_bytes_max) + "} in " + quoted(text_) + " does not stand in " +
                 quoted(pattern.text()) + ", and is not body, token, query.NAME or header.NAME"};
  }
  return part{kind::path, *found, static_cast<std::size_t>(found - names.begin())};
}

result<route_template> route_template::parse_resource(std::string_view text, const route_pattern& pattern) {
  auto out = parse(text, pattern);
  if (!out) return out;
  std::size_t bytes_least = 0;  // each capture is one byte at least
  for (const part& p : out->parts_) {
    if (p.what == kind::literal) {
      if (!std::all_of(p.text.begin(), p.text.end(), is_resource_byte)) {
        return error{"resource " + quoted(text) + " has bytes that cannot stand in its name: A-Z a-z 0-9 _ . : / -"};
      }
      bytes_least += p.text.size();
    } else if (p.what == kind::path) {
      ++bytes_least;
    } else {
      return error{"resource " + quoted(text) + " may use names of the path only"};
    }
  }
  if (bytes_least == 0) return error{"an empty resource"};
  if (bytes_least > limits::resource_bytes_max) {
    return error{"resource " + quoted(text) + " is longer than " + std::to_string(limits::resource_bytes_max) +
                 " bytes"};
  }
  return out;
}

bool route_template::uses(part::kind what) const {
  return std::any_of(parts_.begin(), parts_.end(), [what](const part& p) { return p.what == what; });
}

bool route_template::uses_capture(std::size_t index) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [index](const part& p) { return p.what == kind::path && p.index == index; });
}

std::string route_template::resource(const route_captures& captured) const {
  // One byte past the limit is enough to be invalid.
  constexpr auto bytes_max = limits::resource_bytes_max + 1;
  std::string name;
  for (const part& p : parts_) {
    const auto text = p.what == kind::literal ? std::string_view(p.text) : captured.values[p.index];
    name += text.substr(0, bytes_max - name.size());
  }
  return name;
}

// Where a name may be split is tried in all ways, from the left; each part is asked about each piece once. A name of the
// path that stands there twice may be two different ones here: that is wider than the truth, by what no path gives.
bool route_template::can_name(std::string_view resource, const route_pattern& pattern) const {
  std::vector<bool> ends(resource.size() + 1);  // of what the parts so far can be
  ends[0] = true;
  for (const part& p : parts_) {
    std::vector<bool> next(resource.size() + 1);
    for (std::size_t begin = 0; begin <= resource.size(); ++begin) {
      if (!ends[begin]) continue;
      const auto rest = resource.substr(begin);
      if (p.what == kind::literal) {
        if (rest.starts_with(p.text)) next[begin + p.text.size()] = true;
        continue;
      }
      for (std::size_t bytes = 1; bytes <= rest.size(); ++bytes)
        if (pattern.places()[p.index].holds(rest.substr(0, bytes))) next[begin + bytes] = true;
    }
    ends = std::move(next);
  }
  return ends.back();
}

}  // namespace fencegate::fence
