#include "wire/reply_json.hpp"

#include "base/json_text.hpp"
#include "base/utf8.hpp"

#include <algorithm>

namespace fencegate::wire {

namespace {

constexpr std::size_t verbatim_format_bytes = 4;  // "txt:"

bool is_text(const reply_value& value) {
  return (value.type == '$' || value.type == '+') && !value.null && is_utf8(value.text);
}

bool is_object(const reply_value& map) {
  if (map.elements.size() % 2 != 0) return false;
  std::vector<std::string_view> keys;
  keys.reserve(map.elements.size() / 2);
  for (std::size_t i = 0; i < map.elements.size(); i += 2) {
    if (!is_text(map.elements[i])) return false;
    keys.push_back(map.elements[i].text);
  }
  std::sort(keys.begin(), keys.end());
  return std::adjacent_find(keys.begin(), keys.end()) == keys.end();
}

void append_array(std::string& out, const std::vector<reply_value>& elements) {
  out += '[';
  for (const reply_value& element : elements) {
    if (&element != elements.data()) out += ',';
    append_reply_json(out, element);
  }
  out += ']';
}

void append_map(std::string& out, const reply_value& map) {
  if (!is_object(map)) {
    append_array(out, map.elements);
    return;
  }
  json_object object(out);
  for (std::size_t i = 0; i < map.elements.size(); i += 2) {
    object.name(map.elements[i].text);
    append_reply_json(out, map.elements[i + 1]);
  }
  object.end();
}

}  // namespace

void append_reply_json(std::string& out, const reply_value& reply) {
  if (reply.null) {
    out += "null";
    return;
  }
  switch (reply.type) {
    case '-':
    case '!': {
      json_object object(out);
      object.name("error");
      append_json_string(out, reply.text);
      object.end();
      return;
    }
    case ':':
    case ',':
    case '(':
      if (is_json_number(reply.text)) {
        out += reply.text;
      } else {
        append_json_bytes(out, reply.text);
      }
      return;
    case '#': out += reply.text == "t" ? "true" : "false"; return;
    case '_': out += "null"; return;
    case '=': append_json_bytes(out, reply.text.substr(std::min(verbatim_format_bytes, reply.text.size()))); return;
    case '*':
    case '~':
    case '>': append_array(out, reply.elements); return;
    case '%': append_map(out, reply); return;
    default: append_json_bytes(out, reply.text); return;
  }
}

}  // namespace fencegate::wire
