#include "wire/pg_message.hpp"

#include "wire/pg_bytes.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::wire {

namespace {

constexpr std::uint32_t length_field_bytes = 4;
constexpr std::int32_t authentication_sasl = 10;
constexpr std::size_t name_bytes_max = 63;

}  // namespace

result<std::optional<pg_head>> decode_pg_head(std::string_view input) {
  if (input.size() < pg_head_bytes) {
    return std::nullopt;
  }
  const std::uint32_t length = read_u32(input.substr(1));
  if (length < length_field_bytes || length > pg_length_max) {
    return error{"a message of type " + printable_type(input[0]) + " declares " + std::to_string(length) +
                 " bytes, outside 4 … 2147483647"};
  }
  return pg_head{.type = input[0], .body_bytes = length - length_field_bytes};
}

result<pg_error> decode_pg_error(std::string_view body) {
  pg_error out;
  std::string_view localized_severity;
  pg_reader rest{body};
  for (;;) {
    const auto field = rest.byte();
    if (!field) {
      return error{"an error or notice without its terminator"};
    }
    if (*field == '\0') {
      break;
    }
    const auto text = rest.string();
    if (!text) {
      return error{"an error or notice with a field without its terminator"};
    }
    switch (*field) {
      case 'S': localized_severity = *text; break;
      case 'V': out.severity = *text; break;
      case 'C': out.sqlstate = *text; break;
      case 'M': out.message = *text; break;
      case 'D': out.detail = *text; break;
      case 'H': out.hint = *text; break;
      default: break;  // the protocol asks to ignore unknown fields
    }
  }
  if (!rest.at_end()) {
    return error{"an error or notice with bytes behind its terminator"};
  }
  if (out.severity.empty()) {
    out.severity = localized_severity;
  }
  return out;
}

std::string encode_pg_error(const pg_error& e) {
  std::string body;
  const auto add = [&body](char field, std::string_view text, bool always) {
    if (always || !text.empty()) {
      body += field;
      append_string(body, text);
    }
  };
  // Clients may rely on severity, SQLSTATE and message being there.
  add('S', e.severity, true);
  add('V', e.severity, true);
  add('C', e.sqlstate, true);
  add('M', e.message, true);
  add('D', e.detail, false);
  add('H', e.hint, false);
  body += '\0';
  return encode_pg_message('E', body);
}

result<char> decode_pg_ready(std::string_view body) {
  if (body.size() != 1 || (body[0] != 'I' && body[0] != 'T' && body[0] != 'E')) {
    return error{"a ReadyForQuery without a known transaction status"};
  }
  return body[0];
}

result<std::vector<std::string_view>> decode_pg_strings(std::string_view body, std::size_t count) {
  std::vector<std::string_view> out;
  pg_reader rest{body};
  while (out.size() < count) {
    const auto text = rest.string();
    if (!text) {
      return error{"a message with " + std::to_string(out.size()) + " strings instead of " + std::to_string(count)};
    }
    out.push_back(*text);
  }
  if (!rest.at_end()) {
    return error{"a message with bytes behind its last string"};
  }
  return out;
}

result<std::vector<std::optional<std::string_view>>> decode_pg_row(std::string_view body) {
  pg_reader rest{body};
  const auto count = rest.u16();
  if (!count) {
    return error{"a DataRow without its number of columns"};
  }
  std::vector<std::optional<std::string_view>> out;
  while (out.size() < *count) {
    const auto length = rest.u32();
    if (!length) {
      return error{"a DataRow with fewer columns than it declares"};
    }
    if (*length == 0xFFFF'FFFF) {
      out.emplace_back(std::nullopt);
      continue;
    }
    if (*length > pg_length_max) {
      return error{"a DataRow with a column of negative length"};
    }
    const auto value = rest.bytes(*length);
    if (!value) {
      return error{"a DataRow with a column that is longer than the message"};
    }
    out.emplace_back(*value);
  }
  if (!rest.at_end()) {
    return error{"a DataRow with bytes behind its last column"};
  }
  return out;
}

std::string encode_pg_message(char type, std::string_view body) {
  std::string out;
  const std::uint32_t length = checked_length(body.size(), length_field_bytes);
  out.reserve(pg_head_bytes + body.size());
  out += type;
  append_u32(out, length);
  out += body;
  return out;
}

std::string encode_pg_query(std::string_view sql) {
  std::string body(sql);
  body += '\0';
  return encode_pg_message('Q', body);
}

result<pg_statement> decode_pg_query(std::string_view body) {
  pg_reader rest{body};
  const auto sql = rest.string();
  if (!sql || !rest.at_end()) {
    return error{"a Query that is not exactly one string"};
  }
  return pg_statement{.name = {}, .sql = *sql};
}

result<pg_statement> decode_pg_parse(std::string_view body) {
  pg_reader rest{body};
  const auto name = rest.string();
  const auto sql = name ? rest.string() : std::nullopt;
  if (!sql) {
    return error{"a Parse without its two strings"};
  }
  const auto types = rest.u16();
  if (!types || !rest.bytes(std::size_t{4} * *types) || !rest.at_end()) {
    return error{"a Parse whose parameter types do not end where the message does"};
  }
  return pg_statement{.name = *name, .sql = *sql};
}

std::optional<std::string> without_sasl_mechanism(std::string_view body, std::string_view unwanted) {
  pg_reader rest{body};
  if (rest.u32() != authentication_sasl) {
    return std::nullopt;
  }
  std::string kept(body.substr(0, 4));
  bool found = false;
  for (;;) {
    const auto mechanism = rest.string();
    if (!mechanism) {
      return std::nullopt;
    }
    if (mechanism->empty()) {
      break;
    }
    if (*mechanism == unwanted) {
      found = true;
    } else {
      append_string(kept, *mechanism);
    }
  }
  if (!found || !rest.at_end()) {
    return std::nullopt;
  }
  kept += '\0';
  return kept;
}

std::string pg_name_key(std::string_view name) {
  name = name.substr(0, name_bytes_max);
  const bool ascii = std::all_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  return std::string(ascii ? name : pg_unsure_name);
}

}  // namespace fencegate::wire
