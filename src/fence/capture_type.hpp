// What a `{name:type}` of a route's path stands for. A value that can be spelled in several ways, as a database or a
// service reads it, has one spelling here: else each of them would have a mark of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::fence {

enum class capture_type : std::uint8_t {
  text,     // `{name}`: as it stands in the path
  integer,  // `{name:int}`: -2^63 … 2^63−1; without leading zeros, and no -0
  uuid,     // `{name:uuid}`: in any form that PostgreSQL reads; 8-4-4-4-12 hexadecimal digits in lower case
  slug      // `{name:slug}`: A-Z a-z 0-9 _ and -; in lower case
};

// "int", "uuid", "slug"; nullopt: there is no such type.
[[nodiscard]] std::optional<capture_type> capture_type_of(std::string_view name);
inline constexpr std::string_view capture_type_names = "int, uuid and slug";

// The one spelling of a value, of unreserved characters (RFC 3986) unless it is a text; nullopt: it is none of this type.
[[nodiscard]] std::optional<std::string> canonical(capture_type type, std::string_view value);

}  // namespace fencegate::fence
