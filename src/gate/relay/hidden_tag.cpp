#include "gate/relay/hidden_tag.hpp"

#include "base/log.hpp"
#include "fence/tag.hpp"

#include <atomic>
#include <chrono>

namespace fencegate::gate {

void warn_of_hidden_tag(std::string_view gate, std::string_view client_name) {
  using clock = std::chrono::steady_clock;
  constexpr clock::duration line_interval = std::chrono::seconds(10);
  static std::atomic<clock::duration> next{clock::duration::zero()};
  if (!fence::hides_tag(client_name)) return;
  const auto now = clock::now().time_since_epoch();
  auto due = next.load();
  if (now < due || !next.compare_exchange_strong(due, now + line_interval)) return;
  log::write(log::level::warn, "a client's name has fence: inside a longer word, and is no tag: begin the word with it",
             {{"gate", gate}, {"name", client_name}});
}

}  // namespace fencegate::gate
