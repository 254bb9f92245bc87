// Marks of a Redis that operators have lowered (fencegate marks lower), as they stand there. Pure.
//
// With each of them the epoch moves on: "TEXT" becomes "TEXT~NUMBER", and that another number. What proves marks proves the epoch, too; so
// what was sent before a lowering was known of proves nothing behind it.
#pragma once

#include "base/result.hpp"
#include "fence/token.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::backend {

struct lowering {
  std::uint64_t number = 0;  // of a later one it is higher
  std::string resource;
  fence::token from, to;
  std::string by, why;
};

// The number of the last lowering under this epoch; 0: there was none.
[[nodiscard]] std::uint64_t lowerings_in(std::string_view epoch);

// Nothing but lowerings lies between them: no mark was lost. The other way round, the server was put back to before them.
[[nodiscard]] bool is_behind_lowerings(std::string_view epoch, std::string_view known);

// The last lowering of each mark, of those behind the epoch `known`, from the text of lowered_key. Errors: it is no such text, or
// some of them are not there any more.
[[nodiscard]] result<std::vector<lowering>> read_lowerings(std::string_view text, std::string_view known);

}  // namespace fencegate::backend
