#include "fence/printable.hpp"

namespace fencegate::fence {

std::string printable(std::string_view bytes, std::size_t bytes_max) {
  const bool cut = bytes.size() > bytes_max;
  std::string text(bytes.substr(0, bytes_max));
  for (char& c : text) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  if (cut) text += "...";
  return text;
}

}  // namespace fencegate::fence
