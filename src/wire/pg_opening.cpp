#include "wire/pg_opening.hpp"

#include "base/ascii.hpp"
#include "wire/pg_bytes.hpp"

#include <algorithm>
#include <array>

namespace fencegate::wire {

namespace {

constexpr std::uint32_t packet_bytes_min = 8;
constexpr std::uint32_t packet_bytes_max = 10'000;
constexpr std::uint32_t cancel_head_bytes = 12;  // length, code, process id
constexpr std::uint32_t cancel_key_bytes_min = 4;
constexpr std::uint32_t cancel_key_bytes_max = 256;
constexpr std::uint32_t cancel_code = 80877102;
constexpr std::uint32_t ssl_code = 80877103;
constexpr std::uint32_t gss_code = 80877104;
constexpr char tls_handshake = 0x16;  // a record's first byte

// Setting names fold ASCII letters only, whatever the locale (guc_name_compare).
bool equal_without_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return ascii_lower(x) == ascii_lower(y); });
}

// What the postmaster reads itself, byte for byte; every other parameter is a setting.
bool compares_exactly(std::string_view name) {
  constexpr std::array<std::string_view, 4> own{"user", "database", "options", "replication"};
  return name.starts_with("_pq_.") || std::find(own.begin(), own.end(), name) != own.end();
}

bool begins_like_http(std::string_view four) {
  constexpr std::array<std::string_view, 10> starts{"GET ", "POST", "PUT ", "HEAD", "DELE",
                                                    "OPTI", "PATC", "CONN", "TRAC", "PRI "};
  return std::find(starts.begin(), starts.end(), four) != starts.end();
}

error wrong_length(std::string_view what, std::uint32_t length) {
  return error{std::string(what) + " of " + std::to_string(length) + " bytes"};
}

// Judged by the first eight bytes, so that nothing is buffered for a packet that is refused anyway.
result<pg_opening> decode_kind(std::uint32_t length, std::uint32_t code) {
  pg_opening out;
  out.bytes = length;
  if (code == cancel_code) {
    if (length < cancel_head_bytes + cancel_key_bytes_min || length > cancel_head_bytes + cancel_key_bytes_max) {
      return wrong_length("a CancelRequest", length);
    }
    out.what = pg_opening::kind::cancel;
  } else if (code == ssl_code || code == gss_code) {
    if (length != packet_bytes_min) {
      return wrong_length(code == ssl_code ? "an SSLRequest" : "a GSSENCRequest", length);
    }
    out.what = code == ssl_code ? pg_opening::kind::ssl : pg_opening::kind::gss;
  } else if (code >> 16 == 3) {
    out.version = code;
  } else {
    return error{"PostgreSQL protocol " + std::to_string(code >> 16) + "." + std::to_string(code & 0xFFFF) +
                 " is not supported, only 3"};
  }
  return out;
}

result<std::vector<std::pair<std::string, std::string>>> decode_parameters(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> out;
  pg_reader rest{text};
  for (;;) {
    const auto name = rest.string();
    if (!name) {
      return error{"a StartupMessage without its terminator"};
    }
    if (name->empty()) {
      break;
    }
    const auto value = rest.string();
    if (!value) {
      return error{"a StartupMessage with a parameter without its value"};
    }
    out.emplace_back(*name, *value);
  }
  if (!rest.at_end()) {
    return error{"a StartupMessage with an empty name, or bytes behind its terminator"};
  }
  return out;
}

}  // namespace

std::optional<pg_opening::kind> kind_of_pg_opening(std::string_view head) {
  pg_reader in{head};
  const auto length = in.u32(), code = in.u32();
  const auto read = decode_kind(*length, *code);
  return read ? std::optional(read->what) : std::nullopt;
}

std::optional<std::string_view> pg_opening::parameter(std::string_view name) const {
  const bool exactly = compares_exactly(name);
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    if (exactly ? it->first == name : equal_without_case(it->first, name)) {
      return it->second;
    }
  }
  return std::nullopt;
}

result<std::optional<pg_opening>> decode_pg_opening(std::string_view input) {
  if (!input.empty() && input[0] == tls_handshake) {
    return error{"TLS where PostgreSQL's protocol was expected (an SSLRequest comes first)"};
  }
  if (input.size() < 4) {
    return std::nullopt;
  }
  if (begins_like_http(input.substr(0, 4))) {
    return error{"an HTTP request where PostgreSQL's protocol was expected"};
  }
  const std::uint32_t length = read_u32(input);
  if (length < packet_bytes_min || length > packet_bytes_max) {
    return error{"not PostgreSQL's protocol: a first packet that declares " + std::to_string(length) + " bytes"};
  }
  if (input.size() < packet_bytes_min) {
    return std::nullopt;
  }
  auto opening = decode_kind(length, read_u32(input.substr(4)));
  if (!opening) {
    return opening.error();
  }
  if (input.size() < length) {
    return std::nullopt;
  }
  if (opening->what == pg_opening::kind::start) {
    auto parameters = decode_parameters(input.substr(packet_bytes_min, length - packet_bytes_min));
    if (!parameters) {
      return parameters.error();
    }
    opening->parameters = std::move(*parameters);
  }
  if (opening->what == pg_opening::kind::cancel) {
    opening->session = input.substr(packet_bytes_min, length - packet_bytes_min);
  }
  return std::optional(std::move(*opening));
}

std::string encode_pg_start(std::uint32_t version, const std::vector<std::pair<std::string, std::string>>& parameters) {
  std::string body;
  append_u32(body, version);
  for (const auto& [name, value] : parameters) {
    append_string(body, name);
    append_string(body, value);
  }
  body += '\0';
  std::string out;
  append_u32(out, checked_length(body.size(), 4));
  return out + body;
}

}  // namespace fencegate::wire
