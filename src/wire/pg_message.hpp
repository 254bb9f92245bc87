// PostgreSQL's frontend/backend protocol 3 as a proxy must read it: message heads, the few bodies that matter to a fence,
// and the messages that a gate sends itself. (https://www.postgresql.org/docs/15/protocol-message-formats.html)
//
// Both peers are hostile: lengths are checked before arithmetic, nothing is allocated from a declared length, a body that
// does not end where its length says is an error.
#pragma once

#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::wire {

inline constexpr std::size_t pg_head_bytes = 5;

// A message's type and the length of what follows its head.
struct pg_head {
  char type = 0;
  std::size_t body_bytes = 0;  // 0 … 2^31 - 5
};

// The head at the start of `input`; nullopt: more bytes are needed. An error: a length below 4 or above 2^31 - 1.
[[nodiscard]] result<std::optional<pg_head>> decode_pg_head(std::string_view input);

// The fields of ErrorResponse and NoticeResponse that a gate reads and writes; a missing field is "".
struct pg_error {
  std::string severity{};  // not localized (field V; S where a server sends no V): ERROR, FATAL, PANIC, WARNING, …
  std::string sqlstate{};
  std::string message{};
  std::string detail{};
  std::string hint{};

  friend bool operator==(const pg_error&, const pg_error&) = default;
};

// Called by result::value() on an error; see base/result.hpp.
[[noreturn]] inline void throw_exception_from_error(const pg_error& e, const boost::source_location&) {
  throw std::logic_error("unchecked result: " + e.message);
}

// An error: a field or the body without its terminator, bytes behind the end.
[[nodiscard]] result<pg_error> decode_pg_error(std::string_view body);
// ErrorResponse, whole. NUL bytes in texts end them there.
[[nodiscard]] std::string encode_pg_error(const pg_error& e);

// The transaction status of ReadyForQuery: 'I', 'T' or 'E'; anything else is an error.
[[nodiscard]] result<char> decode_pg_ready(std::string_view body);
// CommandComplete's tag, or ParameterStatus' two strings: each NUL-terminated string of the body. Error: `count` strings
// and nothing behind them is not what the body holds.
[[nodiscard]] result<std::vector<std::string_view>> decode_pg_strings(std::string_view body, std::size_t count);
// DataRow's columns; nullopt is NULL. Error: a negative length other than -1, a column beyond the body, bytes left over.
[[nodiscard]] result<std::vector<std::optional<std::string_view>>> decode_pg_row(std::string_view body);

// Any message: head and body. REQUIRES: a body of at most 2^31 - 5 bytes; the process ends otherwise.
[[nodiscard]] std::string encode_pg_message(char type, std::string_view body);
// Query ('Q') with this text. The server refuses one that holds a NUL.
[[nodiscard]] std::string encode_pg_query(std::string_view sql);

// Where the text of a statement lies in the body of Query and Parse. An error: the body is not exactly what the message
// holds, so that nobody reads a text behind the one that was inspected.
struct pg_statement {
  std::string_view name;  // Parse: the prepared statement's name
  std::string_view sql;
};
[[nodiscard]] result<pg_statement> decode_pg_query(std::string_view body);
[[nodiscard]] result<pg_statement> decode_pg_parse(std::string_view body);

// The body of AuthenticationSASL with `unwanted` taken out; nullopt when it is none, is malformed, or does not name it.
// (SCRAM-SHA-256-PLUS binds to the certificate of TLS, which may end at a gate that shows another one.)
[[nodiscard]] std::optional<std::string> without_sasl_mechanism(std::string_view body, std::string_view unwanted);

// By what the server tells names of prepared statements and portals apart: so many of their bytes (NAMEDATALEN - 1). A name
// beyond ASCII is converted first, so that two can be one and one can be two: pg_unsure_name stands for all of them.
inline constexpr std::string_view pg_unsure_name = "\x80";
[[nodiscard]] std::string pg_name_key(std::string_view name);

}  // namespace fencegate::wire
