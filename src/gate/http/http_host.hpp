// The world around the HTTP engine: its link to the upstream, the stores, a clock, the log. http_session is it; tests have
// their own.
#pragma once

#include "fence/rejection.hpp"
#include "fence/tag.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::gate {

using fence::claims_list;

// What a store says of claims.
struct fence_answer {
  std::optional<fence::rejection> why;  // nullopt: the mark of each is at its token
  claims_list marks;                    // as they are, of those that are known
  bool raised = false;                  // one was lower before
};

// Of the parameters of an atomic route, or the words of its command; nullopt: NULL, of a parameter alone.
using route_values = std::vector<std::optional<std::string>>;

using hold_lost = std::function<void(const std::optional<fence::rejection>& why)>;

// What became of an atomic route's statement or command.
struct atomic_answer {
  enum class outcome : std::uint8_t {
    done,      // applied, with its result
    rejected,  // by the fence, hence not applied
    failed,    // by the backend, hence not applied
    unknown    // the backend went away before it answered
  } what = outcome::unknown;
  fence::rejection why;  // rejected
  int status = 0;        // done, failed
  std::string content_type;
  std::string body;    // done, failed: for the client
  std::string detail;  // unknown: what happened
  claims_list marks;   // done
  bool raised = false;
};

// A request that has ended.
struct http_access {
  std::string_view method, path;  // "" when the head could not be read; without the query
  int status = 0;                 // 0: its client left before the answer
  std::chrono::nanoseconds took{};
  const fence::claim* claim = nullptr;  // the first under which it was let through; nullptr: none
  std::string_view trace;               // its traceparent; "": it has none
};

// Callbacks arrive on the session's thread, never after the session's end, and may come before the call returns. There is
// at most one question under way.
class http_host {
 public:
  virtual ~http_host() = default;

  // Opens the link; on_connected() or on_unreachable() follows.
  virtual void connect() = 0;
  // Closes the link with whatever is under way on it, or stops opening it.
  virtual void disconnect() = 0;
  // Whether the link, which nothing is under way on, is open and has said nothing: as it is at this moment.
  [[nodiscard]] virtual bool link_is_quiet() = 0;

  // The routes' own stores; `route` is the index of a route, nullopt: the gate's store.
  using where = std::optional<std::size_t>;
  virtual void look(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) = 0;
  // Raises the marks to the tokens; all from below, where the route's policy is equal_token: reject.
  virtual void raise(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) = 0;
  // The same, and no raise commits from then on until release(), or on_hold_lost() has come: first with nullopt, then, as
  // long as nobody has called release(), with what is known of why.
  virtual void hold(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) = 0;
  // Whether it still holds, as far as can be seen at this moment.
  [[nodiscard]] virtual bool holds() = 0;
  virtual void release() = 0;
  // The client has left, and the hold lasts until the upstream has answered: on a connection of the store that does not
  // count among those of its pool, as long as there are few such.
  virtual void outlive_client() = 0;
  // Of a forward that nothing holds. Before it is sent: what this process has seen of the marks may reject it.
  [[nodiscard]] virtual std::optional<fence::rejection> known_stale(where route, const claims_list& claims) = 0;
  // When it was answered: it is counted where a higher token was admitted since its check, `ago`.
  virtual void count_overtaken(where route, const claims_list& claims, std::chrono::nanoseconds ago) = 0;
  // Runs the route's statement or command with these values of its parameters, in one unit with the check. Without claims
  // it runs unchecked; `read_only`: so that the backend refuses writes.
  virtual void run(std::size_t route, const claims_list& wanted, route_values values, bool read_only,
                   std::function<void(const atomic_answer&)> done) = 0;

  // The client brings these tokens. Why there is no room for its connection, which then has to end.
  [[nodiscard]] virtual std::optional<std::string> take_room(const claims_list& brought) = 0;

  [[nodiscard]] virtual std::chrono::steady_clock::time_point now() const = 0;
  // One line in the log, and counted.
  virtual void report(const fence::rejection& why, std::string_view method, std::string_view trace, bool monitor) = 0;
  // Of each request of a gate with an access log, at its end.
  virtual void access(const http_access& one) = 0;
};

}  // namespace fencegate::gate
