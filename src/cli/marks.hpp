// `fencegate marks …`: what operators ask of the marks in the stores and gates of a configuration. Marks are read and raised as
// gates do it; only an operator lowers one.
#pragma once

#include "cli/config.hpp"

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace fencegate::cli {

struct marks_question {
  enum class verb : std::uint8_t { list, get, raise, lower, bump } what = verb::list;
  std::string path;                      // of the configuration
  std::string gate, store;               // only there; "" = all, or the only one
  std::vector<std::string> resources{};  // get, raise, lower: one; bump: none = all
  bool all = false;                      // bump
  std::string to, by;                    // raise and lower, bump: digits
  std::string reason{};                  // lower
  bool force = false;                    // lower, raise
  bool json = false;
};

// Exit codes: 0; 1: a place could not be asked, or a mark was not raised or lowered; 2: the configuration, or the question. Blocks.
[[nodiscard]] int run_marks_word(const marks_question& asked, const environment& from, std::ostream& out,
                                 std::ostream& err);

}  // namespace fencegate::cli
