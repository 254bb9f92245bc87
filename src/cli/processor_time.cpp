#include "cli/processor_time.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

namespace fencegate::cli {
namespace {

constexpr std::chrono::microseconds by_itself{50};

// The first word of a file; "" where there is none.
std::string word_of(const std::filesystem::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

// In v1 it is -1 where there is no limit.
bool limits(const std::filesystem::path& group, bool is_v1) {
  const auto word = word_of(group / (is_v1 ? "cpu.cfs_quota_us" : "cpu.max"));
  return !word.empty() && word != (is_v1 ? "-1" : "max");
}

bool any_limits(const std::filesystem::path& mount, std::string_view group, bool is_v1) {
  auto at = std::filesystem::path(group).relative_path();
  while (!at.empty()) {
    if (limits(mount / at, is_v1)) return true;
    at = at.parent_path();
  }
  return limits(mount, is_v1);
}

}  // namespace

// A line of it is hierarchy:controllers:group; of v2 0::group.
bool processor_time_is_unlimited(const std::string& membership, const std::string& mount) {
  std::ifstream lines(membership);
  bool seen = false;
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) return false;
    const auto controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    const bool is_v1 = (',' + controllers + ',').find(",cpu,") != std::string::npos;
    if (!is_v1 && !controllers.empty()) continue;
    // Beside groups of v1, those of v2 are mounted one folder deeper, if at all.
    const auto place = std::filesystem::path(mount) / controllers;
    std::error_code failed;
    if (group.find("..") != std::string::npos || !std::filesystem::is_directory(place, failed)) return false;
    if (any_limits(place, group, is_v1)) return false;
    seen = true;
  }
  return seen;
}

unsigned threads_by_itself() { return std::max(1U, std::thread::hardware_concurrency() / 2); }

std::chrono::microseconds busy_poll_by_itself() {
  const bool pays = std::thread::hardware_concurrency() > 1 && processor_time_is_unlimited();
  return pays ? by_itself : std::chrono::microseconds(0);
}

}  // namespace fencegate::cli
