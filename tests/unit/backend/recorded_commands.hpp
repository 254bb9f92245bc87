// What redis-server 7.0 answers to COMMAND (data/record.py), so that no test needs a server for it. No gtest here: the
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

inline const std::string& command_reply() {
  static const std::string bytes = [] {
    const auto here = std::filesystem::path("tests/unit/backend");
    std::ifstream in(here / "data/command_reply.resp", std::ios::binary);
    if (!in) throw std::runtime_error("command_reply.resp is missing");
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  return bytes;
}

inline std::shared_ptr<const backend::command_table> commands_of_redis_7(
    const std::vector<std::string>& allowed = {}, const std::vector<std::string_view>& not_found = {}) {
  const auto parsed = wire::parse_value(command_reply());
  return backend::command_table::build((*parsed)->first, allowed, not_found).value();
}

}  // namespace fencegate::test
