// The stores of an HTTP gate, as its sessions on one thread ask them.
#pragma once

#include "gate/http/http_host.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::gate {

// A hold on marks that was asked for. Dropping it lets go, or takes the question back.
class mark_hold {
 public:
  mark_hold() = default;
  virtual ~mark_hold() = default;
  mark_hold(const mark_hold&) = delete;
  mark_hold& operator=(const mark_hold&) = delete;
  // The store's session is there, as far as its socket shows at this moment.
  [[nodiscard]] virtual bool alive() = 0;
  // No client waits for what it is for: see http_host::outlive_client().
  virtual void set_aside() = 0;
};

// Answers come later, on the thread of the session that asked, and only while it lives.
class http_stores {
 public:
  using where = http_host::where;
  using fence_callback = std::function<void(const fence_answer&)>;
  virtual ~http_stores() = default;

  virtual void look(std::weak_ptr<const void> session, where route, const claims_list& wanted, fence_callback done) = 0;
  virtual void raise(std::weak_ptr<const void> session, where route, const claims_list& wanted,
                     fence_callback done) = 0;
  // `lost` comes after `done` has said that it holds, and not once the hold was dropped: at once with nullopt, then with
  // what is known of why.
  [[nodiscard]] virtual std::unique_ptr<mark_hold> hold(std::weak_ptr<const void> session, where route,
                                                        const claims_list& wanted, fence_callback done,
                                                        hold_lost lost) = 0;
  // See http_host.
  [[nodiscard]] virtual std::optional<fence::rejection> known_stale(where route, const claims_list& claims) = 0;
  virtual void count_overtaken(where route, const claims_list& claims, std::chrono::nanoseconds ago) = 0;
  virtual void run(std::weak_ptr<const void> session, std::size_t route, const claims_list& wanted, route_values values,
                   bool read_only, std::function<void(const atomic_answer&)> done) = 0;
};

}  // namespace fencegate::gate
