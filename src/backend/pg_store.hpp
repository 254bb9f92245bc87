// Marks of an HTTP gate in PostgreSQL: looked at, raised, held while a request is forwarded; and statements that run in
// one transaction with their check. One pool for all threads of the gate.
//
// Rule kept: a mark is proven in the same transaction as what relies on it. A statement is sent once; when the server
// went away behind it, its outcome is unknown. Whatever is missing, late or unexpected closes.
#pragma once

#include "backend/held_marks.hpp"
#include "backend/lost_marks.hpp"
#include "backend/mark_memory.hpp"
#include "backend/pg_pool.hpp"
#include "backend/store.hpp"
#include "base/log.hpp"
#include "base/metrics.hpp"
#include "fence/gate_settings.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::backend {

struct run_outcome {
  enum class kind : std::uint8_t {
    done,      // committed
    failed,    // the server refused the statement, or its commit: not applied
    rejected,  // by the fence: not applied
    unknown    // the server went away when it had been sent: applied or not
  } what = kind::unknown;
  pg_table table{};        // done
  wire::pg_error error{};  // failed, unknown
  fence::rejection why{};  // rejected
};

// "" when this may be run behind a check, or why not: it would end the transaction around it, or leave something behind
// in a session that others use.
[[nodiscard]] std::string_view unfit_statement(std::string_view sql);

class pg_store : public std::enable_shared_from_this<pg_store> {
 public:
  using look_callback = std::function<void(store_result<std::vector<looked_mark>>)>;
  using seal_result = store_result<std::vector<sealed_mark>>;
  using seal_callback = std::function<void(seal_result)>;
  using hold_callback = std::function<void(store_result<held_marks>)>;
  using run_callback = std::function<void(run_outcome)>;

  // REQUIRES: the settings and stats live longer. `grace`: how long a raise waits for what holds the mark.
  pg_store(boost::asio::io_context& context, std::string gate, const settings::mark_store& store,
           std::chrono::milliseconds grace, metrics::gate& stats);

  // On the context's thread.
  void start();
  // What lives on this thread; there, or when it has ended. What is under way is answered that it was lost.
  void stop(const boost::asio::io_context& thread);

  // Any thread, all of them; the callback comes later, on the caller's.
  void look(store_caller from, std::vector<std::string> resources, look_callback done);
  // Raises the marks to their tokens, all or none; those that are spent, only where each is above its mark.
  void seal(store_caller from, presented_claims wanted, seal_callback done);
  // Raises them where it has to, and holds them there. `on_cut`: the session has ended before it was released; at once
  // with nullopt, then with what is known of why: `stale`, or that nobody knows.
  using cut_callback = std::function<void(const std::optional<fence::rejection>& why)>;
  void hold(store_caller from, presented_claims wanted, cut_callback on_cut, hold_callback done);
  // Runs one statement behind its check; raises the marks first where it has to. The statement has to leave the session
  // as it was, for others use it too (unfit_statement refuses what obviously does not). Where tokens are spent, the raise is
  // in the same transaction: one that was used has been used by what was applied.
  void run(store_caller from, presented_claims wanted, pg_statement statement, run_callback done);

  // Any thread. What this process has seen of a mark: reason to reject, never to admit.
  [[nodiscard]] std::optional<fence::token> seen(std::string_view resource) const { return marks_.seen(resource); }

 private:
  using clock = std::chrono::steady_clock;
  struct attempt;

  [[nodiscard]] bool known_raised(const std::vector<fence::claim>& claims) const;
  void saw(const std::vector<fence::claim>& claims, const std::optional<std::string>& lowerings);
  void saw(const std::string& resource, fence::token mark, std::uint64_t lowering);
  void saw_checked(const presented_claims& wanted, const pg_rows& rows);
  [[nodiscard]] log::event about() const;
  fence::rejection noted(fence::rejection why);
  void end_transaction(const pg_pool::lent& link, const char* how);

  void look_now(clock::time_point deadline, const std::vector<std::string>& resources, const look_callback& done);
  void seal_now(clock::time_point deadline, const presented_claims& wanted, const seal_callback& done);
  seal_result sealed(const pg_pool::lent& link, const presented_claims& wanted, pg_outcome& outcome);
  using step = void (pg_store::*)(const std::shared_ptr<attempt>&);
  void try_hold(const std::shared_ptr<attempt>& a);
  void on_hold(const std::shared_ptr<attempt>& a, const pg_pool::lent& link, pg_outcome& outcome);
  void lend_marks(const std::shared_ptr<attempt>& a, const pg_pool::lent& link);
  void try_run(const std::shared_ptr<attempt>& a);
  void on_run(const std::shared_ptr<attempt>& a, const pg_pool::lent& link, pg_outcome& outcome);
  void begin(const std::shared_ptr<attempt>& a, step first);
  void raise_then(const std::shared_ptr<attempt>& a, step again);
  static void give_up(const std::shared_ptr<attempt>& a, fence::rejection why);
  void explain(const std::shared_ptr<attempt>& a, const fence::rejection& otherwise, int questions);

  // `about`: whose turn it is; none: the gate's own.
  void ask(pg_pool::work what, const fence::claims_list& about, clock::time_point deadline,
           std::function<void(const pg_pool::lent&)> begin, std::function<void(fence::rejection)> give_up);
  void watch();
  void look_at_marks();
  void compare(const lost_marks::seen_marks& seen, const std::vector<looked_mark>& found);
  void put_back(const lost_marks::loss& loss);
  void on_put_back(const lost_marks::loss& loss, const pg_pool::lent& link, pg_outcome& outcome);
  void note_problem(const std::string& problem);
  [[nodiscard]] std::string named(const std::string& problem) const { return "store " + store_.name + ": " + problem; }

  const std::shared_ptr<const void> whole_;  // of which the settings and stats are parts
  boost::asio::io_context& context_;
  const std::string gate_;
  const settings::mark_store& store_;
  const std::chrono::milliseconds grace_;
  metrics::gate& stats_;
  metrics::pool& pool_stats_;
  std::shared_ptr<pg_pool> pool_;  // from start() on
  boost::asio::steady_timer watch_timer_;
  mark_memory marks_;
  mark_memory::walk compared_{marks_};  // where the marks stand that are compared next
  lost_marks lost_;
  std::size_t unanswered_ = 0;          // of the last look at all marks and its raises, which take connections
  clock::time_point blocks_until_{};    // till then statements are sent between BEGIN and COMMIT, whatever they are
  std::optional<std::string> problem_;  // as it was logged last; "" = it is up
  std::atomic<bool> stopped_ = false;
};

}  // namespace fencegate::backend
