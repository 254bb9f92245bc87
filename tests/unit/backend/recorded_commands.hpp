// What redis-server 6.0, 7.0 and 8.0 answer to COMMAND (data/record.py), so that no test needs a server for it. No gtest here: the
// fuzz target uses it, too.
#pragma once

#include "backend/command_table.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>

namespace fencegate::test {

inline std::string command_reply(int version = 7) {
  const auto path =
      std::filesystem::path("tests/unit/backend/data") / ("command_reply_" + std::to_string(version) + ".resp");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path.string() + " is missing");
  return std::string(std::istreambuf_iterator<char>(in), {});
}

inline std::shared_ptr<const backend::command_table> commands_in(const std::string& reply,
                                                                 const std::vector<std::string>& allowed = {},
                                                                 const std::vector<std::string_view>& not_found = {}) {
  const auto parsed = wire::parse_value(reply);
  return backend::command_table::build((*parsed)->first, allowed, not_found).value();
}

inline std::shared_ptr<const backend::command_table> commands_of_redis_7(
    const std::vector<std::string>& allowed = {}, const std::vector<std::string_view>& not_found = {}) {
  static const auto bytes = command_reply();
  return commands_in(bytes, allowed, not_found);
}

}  // namespace fencegate::test
