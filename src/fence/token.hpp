// A fencing token, and the mark it is compared with: an integer 0 … 2^63−1, written in canonical decimal digits.
#pragma once

#include "base/result.hpp"

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace fencegate::fence {

class token {
 public:
  constexpr token() = default;
  // REQUIRES: value >= 0.
  constexpr explicit token(std::int64_t value) : value_(value) {}

  // Canonical digits only: `0|[1-9][0-9]*`, at most 2^63−1. "+34", "-0", "034", "34 " and "" are errors: a value that
  // can be written in two ways cannot be compared byte for byte.
  [[nodiscard]] static result<token> parse(std::string_view digits);

  [[nodiscard]] constexpr std::int64_t value() const { return value_; }
  [[nodiscard]] std::string to_string() const;

  friend constexpr auto operator<=>(token, token) = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 is wrong

 private:
  std::int64_t value_ = 0;
};

// One of [A-Za-z0-9_.:/-].
[[nodiscard]] bool is_resource_byte(char c);

// True when `name` may name a resource: 1 to 200 bytes of [A-Za-z0-9_.:/-].
[[nodiscard]] bool is_resource_name(std::string_view name);

}  // namespace fencegate::fence
