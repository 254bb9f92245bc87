// uses: cli
// The reader of the configuration against any text: it never crashes, and a text is either accepted with at least one
// gate or has errors with places inside the text.
#include "cli/config.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace fencegate;

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const cli::environment surroundings{[](const std::string& name) {
                                        return name.size() % 2 == 0 ? std::optional<std::string>("${A}:@/\n[")
                                                                    : std::nullopt;
                                      },
                                      [](const std::string& path) -> result<std::string> {
                                        if (path.size() % 2 == 0) return error{"no such file"};
                                        return {boost::system::in_place_value, path};
                                      }};
  const auto config = cli::read_config(text, "f", surroundings);
  if (config) {
    require(!config->redis_gates.empty() || !config->postgres_gates.empty() || !config->http_gates.empty());
    for (const auto& gate : config->redis_gates) {
      require(!gate.name.empty() && gate.listen != settings::address{} && gate.upstream != settings::address{});
      require(gate.connections_max > 0 && gate.limits_time.connect.count() > 0 && gate.policy.max_step >= 0);
    }
    for (const auto& gate : config->postgres_gates) {
      require(!gate.name.empty() && gate.listen != settings::address{} && gate.upstream != settings::address{});
      require(gate.connections_max > 0 && gate.limits_time.connect.count() > 0 && gate.policy.max_step >= 0);
      require(gate.cut_timeout.count() > 0 && gate.cut_timeout <= std::chrono::minutes(10));
      require(!gate.control_database.empty() && gate.control_database.find('\0') == std::string::npos);
      require(gate.policy.equal == fence::equal_token::accept && gate.policy.read == fence::reads::pass);
    }
    return 0;
  }
  require(!config.error().empty());
  const auto lines = std::count(text.begin(), text.end(), '\n') + std::count(text.begin(), text.end(), '\r') + 1;
  for (const auto& e : config.error()) {
    require(!e.message.empty() && e.line >= 0 && e.line <= lines + 1);
    require(e.message.find('\n') == std::string::npos);
  }
  return 0;
}
