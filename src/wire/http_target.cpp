#include "wire/http_target.hpp"

#include "base/header_field.hpp"
#include "base/utf8.hpp"
#include "wire/http_bytes.hpp"

#include <algorithm>

namespace fencegate::wire {

namespace {

constexpr std::string_view scheme = "http://";

// C0, DEL, and C1 in UTF-8 (C2 80 … C2 9F).
bool has_controls(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    if (byte < 0x20 || byte == 0x7f) return true;
    if (byte == 0xC2 && i + 1 < text.size() && static_cast<std::uint8_t>(text[i + 1]) < 0xA0) return true;
  }
  return false;
}

void append_escaped(std::string& out, char c) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  const auto byte = static_cast<std::uint8_t>(c);
  out += '%';
  out += digits[byte >> 4];
  out += digits[byte & 0xF];
}

// Adds one segment to both forms of the path. nullptr: it is good. Else what is wrong.
const char* add_segment(std::string_view segment, bool last, http_target& out) {
  const auto begin = out.decoded.size();
  for (std::size_t i = 0; i < segment.size(); ++i) {
    char c = segment[i];
    if (c == '%') {
      const auto byte = percent_decoded(segment.substr(i));
      if (!byte) return "a malformed escape in the path";
      i += 2;
      c = *byte;
      if (c == '/' || c == '\\') return "an escaped slash in the path";
      if (!is_http(c, http_class::unreserved)) {
        append_escaped(out.path, c);
        out.decoded += c;
        continue;
      }
    } else if (!is_http(c, http_class::path)) {
      return "a character in the path that wants an escape";
    }
    out.path += c;
    out.decoded += c;
  }
  const auto text = std::string_view(out.decoded).substr(begin);
  if (text.empty() && !last) return "an empty segment in the path";
  const auto plain = text.substr(0, text.find(';'));
  if (plain == "." || plain == "..") return "a segment '.' or '..' in the path";
  if (has_controls(text)) return "a control character in the path";
  if (!is_utf8(text)) return "a path that is not UTF-8";
  return nullptr;
}

http_result<void> read_path(std::string_view path, http_target& out) {
  path.remove_prefix(1);  // the first '/'
  for (;;) {
    out.path += '/';
    out.decoded += '/';
    const auto slash = path.find('/');
    const bool last = slash == std::string_view::npos;
    if (const char* wrong = add_segment(path.substr(0, slash), last, out)) return http_error{400, wrong};
    if (last) return {};
    path.remove_prefix(slash + 1);
  }
}

http_result<void> check_query(std::string_view query) {
  for (std::size_t i = 0; i < query.size(); ++i) {
    if (query[i] == '%' && !percent_decoded(query.substr(i))) return http_error{400, "a malformed escape in the query"};
    if (query[i] != '%' && !is_http(query[i], http_class::query)) {
      return http_error{400, "a character in the query that wants an escape"};
    }
  }
  return {};
}

// Takes scheme and authority off the front of an absolute-form.
http_result<void> take_authority(std::string_view& target, std::string_view host) {
  target.remove_prefix(scheme.size());
  const auto authority = target.substr(0, target.find_first_of("/?"));
  if (authority.empty()) return http_error{400, "a target without a host"};
  // Without a Host (HTTP/1.0), any will do, but for one with user and password.
  if (authority.find('@') != std::string_view::npos || (!host.empty() && !same_field_name(authority, host))) {
    return http_error{400, "a target for another host than Host"};
  }
  target.remove_prefix(authority.size());
  return {};
}

void become_asterisk(http_target& out) {
  out.what = http_target::kind::asterisk;
  out.path = "*";
}

}  // namespace

void http_target::append_to(std::string& out) const {
  out += path;
  if (query) out.append("?").append(*query);
}

void http_target::set_segment(std::size_t index, std::string_view text) {
  for (std::string* form : {&path, &decoded}) {
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= index; ++i) begin = form->find('/', begin) + 1;
    const auto end = std::min(form->find('/', begin), form->size());
    form->replace(begin, end - begin, text);
  }
}

http_result<void> parse_http_target(std::string_view method, std::string_view target, std::string_view host,
                                    http_target& out) {
  out.what = http_target::kind::path;
  out.path.clear();
  out.decoded.clear();
  out.query.reset();
  if (target == "*") {
    if (method != "OPTIONS") return http_error{400, "the target * is for OPTIONS"};
    become_asterisk(out);
    return {};
  }
  const bool absolute = same_field_name(target.substr(0, scheme.size()), scheme);
  if (absolute) {
    if (auto taken = take_authority(target, host); !taken) return taken;
    if (target.empty() && method == "OPTIONS") {  // RFC 9112 section 3.2.4
      become_asterisk(out);
      return {};
    }
  } else if (!target.starts_with('/')) {
    return http_error{400, "a target that is neither a path nor http://"};
  }

  const auto mark = target.find('?');
  if (mark != std::string_view::npos) {
    out.query = target.substr(mark + 1);
    if (auto good = check_query(*out.query); !good) return good;
  }
  const auto path = target.substr(0, mark);
  return read_path(path.empty() ? "/" : path, out);
}

namespace {

// REQUIRES: escapes are good, as in a target that was parsed.
std::string form_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (const auto byte = percent_decoded(text.substr(i))) {
      out += *byte;
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

}  // namespace

http_result<std::optional<std::string>> http_query_value(std::string_view query, std::string_view name) {
  std::optional<std::string> found;
  while (!query.empty()) {
    const auto pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const auto equals = pair.find('=');
    if (form_decoded(pair.substr(0, equals)) != name) continue;
    if (found) return http_error{400, "a name that is used twice in the query"};
    found = equals == std::string_view::npos ? std::string() : form_decoded(pair.substr(equals + 1));
  }
  if (!found) return std::nullopt;
  std::string without_lines = *found;
  std::erase_if(without_lines, [](char c) { return c == '\t' || c == '\r' || c == '\n'; });
  if (!is_utf8(*found) || has_controls(without_lines)) {
    return http_error{400, "a value in the query that is not text in UTF-8"};
  }
  return found;
}

}  // namespace fencegate::wire
