// Time-outs of Redis's blocking commands, which stand at different places.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

namespace fencegate::gate {

// 0 = for ever; nullopt: the command does not block (XREAD without BLOCK), or the server will refuse its time-out.
[[nodiscard]] std::optional<std::chrono::milliseconds> blocking_timeout(const std::vector<std::string_view>& arguments);

// The command that takes from one key what `name`, in lower case, waits for in its keys: Redis runs nothing that waits in
// a script. "": there is none, or a script may run it itself.
[[nodiscard]] std::string_view taken_by(std::string_view name);

}  // namespace fencegate::gate
