// Texts that nobody else makes.
#pragma once

#include <random>
#include <string>
#include <string_view>

namespace fencegate {

// 96 bits, in 24 lower-case hexadecimal digits.
[[nodiscard]] inline std::string random_text() {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::random_device random;
  std::string text;
  for (int i = 0; i < 24; ++i) text += digits[random() % digits.size()];
  return text;
}

}  // namespace fencegate
