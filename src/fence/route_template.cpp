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
  return out;
}

result<route_template::part> route_template::read_name(std::string_view name, const route_pattern& pattern) {
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

}  // namespace fencegate::fence
