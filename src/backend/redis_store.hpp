// Marks of an HTTP gate in Redis: looked at, raised; and single commands that run in one script with their check. Each
// thread of the gate has one connection, on which everything is pipelined; what one has seen, all know.
//
// Rule kept: the command runs only where every mark, and the epoch, is byte for byte what it has to be at that moment.
// It is sent once; when the server went away behind it, its outcome is unknown.
#pragma once

#include "backend/redis_control.hpp"
#include "backend/store.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::backend {

// A reply that owns its bytes. Of up to limits::redis_reply_bytes_max, and so many values.
struct redis_reply {
  char type = 0;  // as in wire::reply_value
  std::string text;
  bool null = false;
  std::vector<redis_reply> elements;
};

struct command_outcome {
  enum class kind : std::uint8_t {
    done,      // applied
    failed,    // Redis answered with an error, `reply`
    rejected,  // by the fence: not applied
    unknown    // the server went away when it had been sent: applied or not
  } what = kind::unknown;
  // done: Lua, in which the script runs, has doubles for numbers: an integer of 2^53 and beyond that could not be read
  // again is null in the reply. Of one that is too large nothing was kept: it is null, or, of what only reads, failed.
  enum class lack : std::uint8_t { nothing, digits, all } lacks = lack::nothing;
  redis_reply reply{};     // done, failed
  fence::rejection why{};  // rejected
  std::string detail{};    // unknown
};

class redis_store : public std::enable_shared_from_this<redis_store> {
 public:
  using look_callback = std::function<void(store_result<std::vector<looked_mark>>)>;
  using seal_callback = std::function<void(store_result<std::vector<sealed_mark>>)>;
  using run_callback = std::function<void(command_outcome)>;

  // Each context is run by one thread and has a connection of its own; callers elsewhere go by the first one's.
  // REQUIRES: there is one; they and the stats live longer.
  redis_store(const std::vector<boost::asio::io_context*>& threads, const std::string& gate,
              const settings::mark_store& store, metrics::gate& stats);

  // Keeps `unsettled` until it is known of each connection whether the server answers.
  void start(const std::shared_ptr<void>& unsettled = {});
  // What lives on this thread; there, or when it has ended. What is under way is answered that it was lost.
  void stop(const boost::asio::io_context& thread);

  // Any thread, all of them; the callback comes later, on the caller's.
  void look(store_caller from, std::vector<std::string> resources, look_callback done);
  // Raises the marks to their tokens, all or none; those that are spent, only where each is above its mark.
  void seal(store_caller from, presented_claims wanted, seal_callback done);
  // The random id of this Redis, for life.
  using identify_callback = std::function<void(result<std::string>)>;
  void identify(store_caller from, identify_callback done);
  // Raises the marks to the tokens of one grant, all or none; one that is there already is there by this very grant.
  // Rejections: stale; equal, by another grant; refused, of another issuer.
  using lease_callback = std::function<void(store_result<void>)>;
  void seal_for_lease(store_caller from, std::vector<fence::claim> claims, lease_grant grant, lease_callback done);
  // Runs a script of leases (backend/redis_lease_scripts.hpp); the texts that it answered. Errors: the script's, or nobody
  // knows what became of it.
  using leasing_callback = std::function<void(result<std::vector<std::string>>)>;
  void run_leasing(store_caller from, std::string script, std::vector<std::string> keys,
                   std::vector<std::string> arguments, leasing_callback done);
  // Runs one command behind its check; raises the marks first where it has to, or in the same script where tokens are
  // spent: one that was used has been used by what was applied. Keys of the fence are refused.
  void run(const store_caller& from, presented_claims wanted, std::vector<std::string> command, run_callback done);

  // Any thread. What this process has seen of a mark: reason to reject, never to admit.
  [[nodiscard]] std::optional<fence::token> seen(std::string_view resource) const {
    return state_->marks.seen(resource);
  }

 private:
  using link = std::shared_ptr<redis_control>;
  struct place {
    boost::asio::io_context& thread;
    link control;
  };
  struct attempt;

  // Calls it with the link of the caller's thread, there, or with the first one, on its thread.
  template <class Call>
  void on_link(const store_caller& from, Call call) {
    for (const auto& one : places_)
      if (&one.thread == &from.thread) return call(one.control);
    boost::asio::post(places_.front().thread,
                      [by = places_.front().control, call = std::move(call)]() mutable { call(by); });
  }
  void look_next(const link& by, const std::vector<std::string>& resources,
                 const std::shared_ptr<std::vector<looked_mark>>& found, const look_callback& done);
  void seal_now(const link& by, std::chrono::steady_clock::time_point deadline, const presented_claims& wanted,
                seal_callback done);
  void seal_on(const link& by, std::chrono::steady_clock::time_point deadline, const fence::claims_list& claims,
               const lease_grant& grant, bool though_full, lease_callback done, bool first = true);
  void lease_on(const link& by, std::chrono::steady_clock::time_point deadline, const std::string& script,
                const std::vector<std::string>& keys, const std::vector<std::string>& arguments, bool though_full,
                leasing_callback done, bool first = true);
  [[nodiscard]] store_result<void> sealed_for_lease(const std::vector<fence::claim>& claims,
                                                    const wire::reply_value* reply, const mark_memory::moment& asked);
  void try_run(const std::shared_ptr<attempt>& a);
  [[nodiscard]] bool expects_no_rise(const presented_claims& wanted) const;
  void ask_first(const std::shared_ptr<attempt>& a);
  void send_raising(const std::shared_ptr<attempt>& a);
  void raised_too_early(const std::shared_ptr<attempt>& a);
  void explain(const std::shared_ptr<attempt>& a);
  void look_first(const std::shared_ptr<attempt>& a);
  void send(const std::shared_ptr<attempt>& a, const std::vector<fence::claim>& marks);
  void on_reply(const std::shared_ptr<attempt>& a, const wire::reply_value* reply);
  void on_applied(const std::shared_ptr<attempt>& a, redis_reply reply, command_outcome::lack lacks);
  void on_too_large(const std::shared_ptr<attempt>& a);

  const settings::redis_gate settings_;  // as redis_control wants them
  const std::shared_ptr<redis_state> state_;
  std::vector<place> places_;
};

}  // namespace fencegate::backend
