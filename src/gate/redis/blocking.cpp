#include "gate/redis/blocking.hpp"

#include "wire/resp_request.hpp"

#include <cmath>
#include <cstdlib>
#include <string>

namespace fencegate::gate {
namespace {

// Redis keeps time-outs as 64-bit milliseconds; a year is for ever.
constexpr double longest_ms = 366.0 * 24 * 3600 * 1000;

std::optional<std::chrono::milliseconds> from_text(std::string_view text, double unit_ms) {
  if (text.empty() || text.size() > 32) return std::nullopt;
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end) * unit_ms;
  if (end != copy.c_str() + copy.size() || !std::isfinite(value) || value < 0) return std::nullopt;
  if (value > longest_ms) return std::chrono::milliseconds(0);
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(value)));
}

}  // namespace

std::optional<std::chrono::milliseconds> blocking_timeout(const std::vector<std::string_view>& arguments) {
  if (arguments.size() < 3) return std::nullopt;
  const std::string_view name = arguments[0];
  if (wire::iequals(name, "XREADGROUP") || wire::iequals(name, "XREAD")) {
    for (std::size_t i = 1; i + 1 < arguments.size() && !wire::iequals(arguments[i], "STREAMS"); ++i)
      if (wire::iequals(arguments[i], "BLOCK")) return from_text(arguments[i + 1], 1);
    return std::nullopt;
  }
  if (wire::iequals(name, "BLMPOP") || wire::iequals(name, "BZMPOP")) return from_text(arguments[1], 1000);
  return from_text(arguments.back(), 1000);
}

std::string_view taken_by(std::string_view name) {
  if (name == "blpop") return "LPOP";
  if (name == "brpop") return "RPOP";
  if (name == "bzpopmin") return "ZPOPMIN";
  if (name == "bzpopmax") return "ZPOPMAX";
  return {};
}

}  // namespace fencegate::gate
