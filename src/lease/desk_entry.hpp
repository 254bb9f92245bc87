// One lease of a sidecar's clients: who waits for it, who watches it, and what a client may be told of it.
#pragma once

#include "lease/desk.hpp"
#include "lease/keeper.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::lease {

struct desk_entry {
  struct caller {
    clock_reading arrived;
    desk::answer done;
  };

  std::vector<std::string> ids;  // that it is known by: the one wished for, and that of the grant
  std::vector<std::string> resources;
  std::string holder;
  std::shared_ptr<lease::keeper> keeper;
  std::vector<std::shared_ptr<caller>> callers;  // who wait for it
  std::vector<std::weak_ptr<std::function<void(const lease_event&)>>> watchers;
  bool held = false;
  bool told = false;       // a client knows that it holds it
  std::size_t untold = 0;  // answers of which it is not known yet whether a client has got them

  [[nodiscard]] lease_given given(clock_reading since) const {
    const auto& holding = keeper->holding();
    lease_given out{keeper->held().grant, keeper->held().claims};
    const auto now = clock_reading::now();
    const auto act_for = std::chrono::floor<std::chrono::milliseconds>(holding.stop_at() - since.boot);
    out.act_for =
        holding.may_begin(now) ? std::max(act_for, std::chrono::milliseconds(0)) : std::chrono::milliseconds(0);
    // What began at the last moment ends by the deadline; and is never given more than its stop_grace.
    const auto most = std::chrono::floor<std::chrono::milliseconds>(holding.deadline() -
                                                                    std::min(holding.stop_at(), holding.deadline()));
    const auto until_deadline =
        std::chrono::floor<std::chrono::milliseconds>(holding.deadline() - (since.boot + out.act_for));
    out.stop = std::clamp(until_deadline, std::chrono::milliseconds(0), most);
    return out;
  }

  void tell(lease_event::kind what, std::string why = {}) {
    std::erase_if(watchers, [](const auto& one) { return one.expired(); });
    if (watchers.empty()) return;
    lease_event event{what, {}, std::move(why)};
    if (held) event.given = given(clock_reading::now());
    if (what == lease_event::kind::lost) event.given.act_for = event.given.stop = std::chrono::milliseconds(0);
    for (const auto& one : std::vector(watchers))
      if (const auto there = one.lock()) (*there)(event);
  }
};

}  // namespace fencegate::lease
