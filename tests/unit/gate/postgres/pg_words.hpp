// PostgreSQL's messages as tests write and read them. No gtest here, so that a fuzz target can use it.
#pragma once

#include "base/limits.hpp"
#include "gate/postgres/pg_binding.hpp"
#include "wire/pg_message.hpp"
#include "wire/pg_opening.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::test {

using std::string_literals::operator""s;

// ── what a client says

inline std::string start_packet(std::vector<std::pair<std::string, std::string>> parameters) {
  parameters.insert(parameters.begin(), {"user", "alice"});
  return wire::encode_pg_start(3 << 16, parameters);
}

inline std::string query(std::string_view sql) { return wire::encode_pg_query(sql); }
// One that is not held whole.
inline std::string large_sql(std::string_view begin, std::string_view end) {
  return std::string(begin) + std::string(2 * limits::pg_statement_buffered_bytes_max, ' ') + std::string(end);
}
inline std::string parse(std::string_view name, std::string_view sql) {
  return wire::encode_pg_message('P', std::string(name) + '\0' + std::string(sql) + "\0\0\0"s);
}
inline std::string bind_to(std::string_view statement, std::string_view portal = "") {
  const auto names = std::string(portal) + '\0' + std::string(statement) + '\0';
  return wire::encode_pg_message('B', names + "\0\0\0\0\0\0"s);
}
inline std::string describe_statement(std::string_view name) {
  return wire::encode_pg_message('D', "S" + std::string(name) + '\0');
}
inline std::string describe_portal(std::string_view name = "") {
  return wire::encode_pg_message('D', "P" + std::string(name) + '\0');
}
inline std::string close_statement(std::string_view name) {
  return wire::encode_pg_message('C', "S" + std::string(name) + '\0');
}
inline std::string execute(std::string_view portal = "") {
  return wire::encode_pg_message('E', std::string(portal) + "\0\0\0\0\0"s);
}
inline std::string sync() { return wire::encode_pg_message('S', ""); }
inline std::string flush() { return wire::encode_pg_message('H', ""); }
inline std::string copy_data(std::string_view bytes) { return wire::encode_pg_message('d', bytes); }
inline std::string copy_done() { return wire::encode_pg_message('c', ""); }
inline std::string copy_fail() { return wire::encode_pg_message('f', "\0"s); }
inline std::string call_function() { return wire::encode_pg_message('F', "\0\0\0\1\0\0\0\0\0\0"s); }

// ── what a server says

inline std::string authentication_ok() { return wire::encode_pg_message('R', "\0\0\0\0"s); }
inline std::string backend_key() { return wire::encode_pg_message('K', "\0\0\x10\x01\1\2\3\4"s); }  // pid 4097
inline std::string parameter(std::string_view name, std::string_view value) {
  return wire::encode_pg_message('S', std::string(name) + '\0' + std::string(value) + '\0');
}
inline std::string close_complete() { return wire::encode_pg_message('3', ""); }
inline std::string ready(char status) { return wire::encode_pg_message('Z', std::string(1, status)); }
inline std::string complete(std::string_view tag) { return wire::encode_pg_message('C', std::string(tag) + '\0'); }
inline std::string parse_complete() { return wire::encode_pg_message('1', ""); }
inline std::string bind_complete() { return wire::encode_pg_message('2', ""); }
inline std::string no_data() { return wire::encode_pg_message('n', ""); }
inline std::string row_description() { return wire::encode_pg_message('T', "\0\0"s); }
inline std::string empty_query() { return wire::encode_pg_message('I', ""); }
inline std::string function_result() { return wire::encode_pg_message('V', "\xff\xff\xff\xff"s); }
inline std::string copy_in() { return wire::encode_pg_message('G', "\0\0\0"s); }
inline std::string error_of(std::string_view severity, std::string_view state, std::string_view message = "words",
                            std::string_view detail = "") {
  wire::pg_error e;
  e.severity = severity;
  e.sqlstate = state;
  e.message = message;
  e.detail = detail;
  return wire::encode_pg_error(e);
}
inline std::string warning_of(std::string_view state, std::string_view message = "words") {
  auto bytes = error_of("WARNING", state, message);
  bytes[0] = 'N';
  return bytes;
}
// "nil" stands for a null.
inline std::string row(const std::vector<std::string>& columns) {
  std::string body{'\0', static_cast<char>(columns.size())};
  for (const auto& one : columns)
    body += one == "nil" ? "\xff\xff\xff\xff"s : "\0\0"s + '\0' + static_cast<char>(one.size()) + one;
  return wire::encode_pg_message('D', body);
}
inline std::string shut_down() {
  return error_of("FATAL", "57P01", "terminating connection due to administrator command");
}

// The replies to an arm, message by message.
inline std::vector<std::string> arm_replies(const std::vector<std::pair<std::string, std::string>>& claims) {
  std::vector<std::string> out{complete("SET"), complete("SET"), complete("SET"),
                               wire::encode_pg_message('T', "\0\0"s)};
  for (const auto& [resource, token] : claims) out.push_back(row({resource, token, "t", "1", "0"}));
  out.push_back(complete("SELECT " + std::to_string(claims.size())));
  out.push_back(ready('I'));
  return out;
}
inline std::string armed(const std::vector<std::pair<std::string, std::string>>& claims) {
  std::string out;
  for (const auto& one : arm_replies(claims)) out += one;
  return out;
}

// The replies to one of the gate's own statements with guard: transaction.
inline std::vector<std::string> own_replies(std::string_view tag, const std::vector<std::string>& rows = {}) {
  std::vector<std::string> out{close_complete(), close_complete(), parse_complete(), bind_complete()};
  for (const auto& one : rows) out.push_back(row({one}));
  out.push_back(complete(tag));
  out.push_back(close_complete());
  out.push_back(close_complete());
  return out;
}
inline std::string own(std::string_view tag, const std::vector<std::string>& rows = {}) {
  std::string out;
  for (const auto& one : own_replies(tag, rows)) out += one;
  return out;
}

// ── what was said, as words: one for each whole message, and "…" for a part of one

using words = std::vector<std::string>;
inline words operator+(words a, const words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline std::string between(std::string_view text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  if (at == std::string_view::npos) return "";
  text.remove_prefix(at + from.size());
  return std::string(text.substr(0, text.find(to)));
}

inline std::string words_of_sql(std::string_view sql) {
  if (sql.find("fencegate.arm_all(") != std::string_view::npos)
    return "ARM " + between(sql, "ARRAY['", "']") + " " + between(sql, "text[],ARRAY['", "']");
  if (sql.starts_with("SELECT fencegate.guard_under("))
    return "GUARD " + between(sql, "ARRAY['", "']") + " " + between(sql, "text[],ARRAY['", "']");
  if (sql.starts_with("SELECT fencegate.guard_one_under("))
    return "GUARD " + between(sql, "('", "'") + " " + between(sql, "','", "'");
  if (sql.find("RAISE EXCEPTION") != std::string_view::npos) return "FAIL " + between(sql, "ERRCODE='", "'");
  return sql.size() > 60 ? std::to_string(sql.size()) + " bytes" : std::string(sql);
}

inline std::string words_of_error(std::string_view body) {
  const auto e = wire::decode_pg_error(body);
  if (!e) return "unreadable";
  const auto applied = between(e->detail, "\"applied\":\"", "\"");
  return e->severity + " " + e->sqlstate + (applied.empty() ? "" : " applied " + applied);
}

inline std::string words_of_client(char type, std::string_view body) {
  const std::string one(1, type);
  if (type == 'Q') return "Q " + words_of_sql(body.substr(0, body.find('\0')));
  if (type == 'P')
    return "P " + words_of_sql(body.substr(body.find('\0') + 1, body.rfind("\0\0\0"s) - body.find('\0') - 1));
  return one;
}

inline std::string words_of_server(char type, std::string_view body) {
  const std::string one(1, type);
  if (type == 'E' || type == 'N') return one + " " + words_of_error(body);
  if (type == 'Z') return one + " " + std::string(body);
  if (type == 'C') return one + " " + std::string(body.substr(0, body.find('\0')));
  return one;
}

template <class Words>
std::vector<std::string> each_message(std::string_view bytes, Words words) {
  std::vector<std::string> out;
  while (!bytes.empty()) {
    const auto head = wire::decode_pg_head(bytes);
    const bool whole = head && *head && bytes.size() >= wire::pg_head_bytes + (*head)->body_bytes;
    if (!whole) {
      out.emplace_back("…");
      break;
    }
    out.push_back(words((*head)->type, bytes.substr(wire::pg_head_bytes, (*head)->body_bytes)));
    bytes.remove_prefix(wire::pg_head_bytes + (*head)->body_bytes);
  }
  return out;
}

}  // namespace fencegate::test
