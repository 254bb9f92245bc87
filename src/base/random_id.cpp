#include "base/random_id.hpp"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace fencegate {

std::string random_id() {
  std::array<unsigned char, 16> bits{};
  // Up to 256 bytes are never interrupted (getrandom(2)).
  if (getrandom(bits.data(), bits.size(), 0) != static_cast<ssize_t>(bits.size()))
    throw std::system_error(errno, std::generic_category(), "getrandom");
  std::string out;
  for (const auto byte : bits) {
    constexpr auto digits = "0123456789abcdef";
    out += digits[byte >> 4U];
    out += digits[byte & 15U];
  }
  return out;
}

}  // namespace fencegate
