// Time-outs of Redis's blocking commands, which stand at different places.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

namespace fencegate::gate {

// 0 = for ever; nullopt: the command does not block (XREAD without BLOCK), or the server will refuse its time-out.
[[nodiscard]] std::optional<std::chrono::milliseconds> blocking_timeout(const std::vector<std::string_view>& arguments);

}  // namespace fencegate::gate
