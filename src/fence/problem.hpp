// Problem documents (RFC 9457), in which an HTTP gate says why: rejections of the fence, errors of a statement, what went
// wrong with the request or behind the gate. Their media type is application/problem+json.
#pragma once

#include "fence/rejection.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::fence {

inline constexpr std::string_view problem_media_type = "application/problem+json";

struct problem {
  // Whether the request had an effect.
  enum class effect : std::uint8_t {
    none,    // "applied": "no": certainly not
    unknown  // "applied": "unknown": it may have; whoever sent it has to look
  };

  int status = 500;
  std::string name = {};    // "stale": type is urn:fencegate:stale
  std::string title = {};   // the same for each problem of this name
  std::string detail = {};  // of this case; any bytes, cut at detail_bytes_max
  effect applied = effect::unknown;
  std::string resource = {};  // "" when none is known
  std::optional<token> presented = {};
  std::optional<token> mark = {};
  std::string sqlstate = {};  // "" when there is none
};

inline constexpr std::size_t detail_bytes_max = 2048;

[[nodiscard]] problem problem_of(const rejection& r);

// An error that the server reported for a statement, and that undid it. The fence's own SQLSTATEs become what they mean;
// of the others: class 22, 23502, 23514 and P0001 (RAISE) 400, other integrity constraints (class 23) 409, serialization
// and deadlock (40) and resources (53, 55P03, 57P03) 503, privileges (42501) 403, a statement that was cancelled (57014)
// 504, the rest 500.
struct sql_error {
  std::string_view sqlstate;
  std::string_view message;
  std::string_view detail = {};
  std::string_view hint = {};
};
[[nodiscard]] problem problem_of(const sql_error& e);

// An object without line ends. `token` and `mark` are numbers, exact however large; readers for whom numbers are doubles
// find them as digits in the header fields.
[[nodiscard]] std::string problem_json(const problem& p);

}  // namespace fencegate::fence
