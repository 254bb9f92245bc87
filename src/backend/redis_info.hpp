// What Redis answers to INFO.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::backend {

// "" where it has none.
[[nodiscard]] inline std::string info_field(std::string_view info, std::string_view name) {
  std::size_t at = 0;
  while (at < info.size()) {
    std::size_t end = info.find("\r\n", at);
    if (end == std::string_view::npos) end = info.size();
    const std::string_view line = info.substr(at, end - at);
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ':')
      return std::string(line.substr(name.size() + 1));
    at = end + 2;
  }
  return {};
}

}  // namespace fencegate::backend
