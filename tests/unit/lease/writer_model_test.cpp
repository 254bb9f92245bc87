// A writer, its gate with a listening socket and connections, the store, and another holder that works in between, by random
// model_steps. The rule: no write that was decided under one grant is admitted under another. Each part of what keeps it is also left
// out, and must be missed.
#include "lease/writer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace fencegate::lease {
namespace {

enum class without {
  nothing,
  binding_at_accept,       // each request is bound to what is held then
  new_socket,              // the old one's queue is accepted under the next grant
  start_times,             // any report counts
  unknown_at_first,        // a new sidecar takes its writer for a new one
  checked_resume,          // a new sidecar goes on with a new grant
  restart,                 // on_loss: rebind
  all_containers,          // one that was started anew is enough
  loss_behind_revocation,  // the time of the loss is read before the last connection is bound
  cut                      // the mark refuses them all the same
};

class model {
 public:
  model(unsigned seed, without what) : random_(seed), without_(what), sidecar_(fresh()) {}

  // True: the rule was broken.
  bool run(int steps) {
    for (int i = 0; i < steps && !broken_; ++i, ++now_) step();
    return broken_;
  }
  [[nodiscard]] int admitted() const { return admitted_; }
  [[nodiscard]] int grants() const { return granted_; }

 private:
  struct connection {
    int of;                       // the writer's generation that opened it
    int socket;                   // the listening socket in whose queue it was
    std::optional<int> bound;     // a grant; nullopt: in the queue
    std::optional<int> decision;  // of the request under way: under which grant
  };

  writer fresh() {
    if (without_ == without::restart) return {{true, {}, seconds_}, now()};
    const bool both = without_ != without::all_containers;
    const std::vector<std::string> one{"worker"}, two{"app", "worker"};
    return {{false, both ? two : one, seconds_}, now()};
  }
  [[nodiscard]] boot_clock::time_point now() const { return boot_clock::time_point(std::chrono::milliseconds(now_)); }
  bool one_in(int n) { return std::uniform_int_distribution<int>(1, n)(random_) == 1; }
  template <class All>
  auto& any(All& all) {
    return all[std::uniform_int_distribution<std::size_t>(0, all.size() - 1)(random_)];
  }

  void step() {
    const int n = std::uniform_int_distribution<int>(0, 31)(random_);
    if (n < 4) {
      if (connections_.size() < 4) connections_.push_back({generation_, socket_, {}, {}});
    } else if (n < 8) {
      write();
    } else if (n < 12) {
      accept();
    } else if (n < 18) {
      serve();
    } else if (n < 22) {
      hear();
    } else if (n < 25) {
      acquire();
    } else if (n < 27) {
      lose();
    } else if (n < 28) {
      alive_ = false;
    } else if (n < 29) {
      if (!alive_) mark_ = ++grant_;  // the other holder works, and releases
    } else if (n < 31) {
      start_anew();
    } else if (one_in(4)) {
      restart_sidecar();
    }
  }

  // The writer sends what it has decided, on a connection that is open or in the queue.
  void write() {
    if (connections_.empty() || !read_under_) return;
    auto& on = any(connections_);
    if (on.of == generation_ && !on.decision) on.decision = read_under_;
  }

  void accept() {
    for (auto at = connections_.begin(); at != connections_.end(); ++at) {
      if (at->bound) continue;
      const bool binds = bound_to_ && (at->socket == socket_ || without_ == without::new_socket);
      if (binds)
        at->bound = *bound_to_;
      else
        connections_.erase(at);
      return;
    }
  }

  void serve() {
    if (connections_.empty()) return;
    auto& on = any(connections_);
    if (!on.bound) return;
    const auto under = without_ == without::binding_at_accept ? bound_to_ : on.bound;
    if (!under) return;
    if (!on.decision) {
      if (on.of == generation_) read_under_ = under;
      return;
    }
    if (*under >= mark_) {
      ++admitted_;
      broken_ = broken_ || *on.decision != *under;
    }
    on.decision.reset();
  }

  // In two model_steps, between which others run.
  void lose() {
    const bool in_order = without_ != without::loss_behind_revocation;
    if (!losing_) {
      if (sidecar_->phase() != writer_phase::holding) return;
      losing_ = now();
      if (in_order) bound_to_.reset();
      return;
    }
    bound_to_.reset();
    sidecar_->lost(in_order ? now() : *losing_);
    losing_.reset();
    file_.reset();
    // (Where requests are bound, connections stay, for the next grant.)
    if (without_ != without::cut && without_ != without::binding_at_accept)
      std::erase_if(connections_, [](const auto& one) { return one.bound.has_value(); });
  }

  void acquire() {
    if (sidecar_->phase() != writer_phase::standby || alive_) return;
    if (without_ != without::restart && without_ != without::new_socket && socket_of_ != reported_) {
      ++socket_;  // its queue goes with it
      std::erase_if(connections_, [](const auto& one) { return !one.bound; });
      socket_of_ = reported_;
    }
    hold(++grant_);
  }

  void hold(int grant) {
    ++granted_;
    mark_ = std::max(mark_, grant);
    owner_ = grant;
    bound_to_ = file_ = grant;
    alive_ = true;
    sidecar_->granted();
  }

  // One container or both are started anew: with `app` goes what the writer knows.
  void start_anew() {
    if (one_in(4)) {
      started("worker");
      return;
    }
    ++generation_;
    read_under_.reset();
    started(one_in(2) ? "app" : "worker");
    started(reports_.back().first == "app" ? "worker" : "app");
  }
  void started(const std::string& container) { reports_.push_back({container, now_}); }

  void hear() {
    if (reports_.empty()) return;
    // In any order, late, and again.
    const auto [container, start] = one_in(2) ? reports_.back() : any(reports_);
    const auto before = sidecar_->phase();
    const auto when = without_ == without::start_times ? now_ : start;
    (void)sidecar_->started(container, boot_clock::time_point(std::chrono::milliseconds(when)), now());
    if (before != writer_phase::standby && sidecar_->phase() == writer_phase::standby) ++reported_;
  }

  void restart_sidecar() {
    connections_.clear();
    bound_to_.reset();
    losing_.reset();
    ++socket_;
    sidecar_.emplace(fresh());
    const bool mine = file_ && alive_ && owner_ == *file_ && grant_ == *file_;
    if (mine) return hold(*file_);
    if (file_ && without_ == without::checked_resume && !alive_) return hold(++grant_);
    file_.reset();
    if (without_ != without::unknown_at_first) return;
    for (const auto* one : {"app", "worker"})
      (void)sidecar_->started(one, now() + std::chrono::milliseconds(1), now() + std::chrono::milliseconds(1));
  }

  static constexpr std::chrono::seconds seconds_{30};
  std::mt19937 random_;
  const without without_;
  std::int64_t now_ = 0;
  std::optional<writer> sidecar_;
  std::optional<int> bound_to_;  // what a connection that is accepted is bound to
  std::optional<boot_clock::time_point> losing_;
  std::vector<connection> connections_;
  int socket_ = 0;
  int reported_ = 0, socket_of_ = 0;
  std::vector<std::pair<std::string, std::int64_t>> reports_;
  int generation_ = 1;
  std::optional<int> read_under_;
  int grant_ = 0, mark_ = 0, owner_ = 0;  // in the store
  bool alive_ = false;
  std::optional<int> file_;
  bool broken_ = false;
  int admitted_ = 0, granted_ = 0;
};

constexpr unsigned model_seeds = 4'000;
constexpr int model_steps = 400;

int times_broken(without what) {
  int out = 0;
  for (unsigned seed = 0; seed < model_seeds; ++seed) out += model(seed, what).run(model_steps) ? 1 : 0;
  return out;
}

TEST(LeaseWriterModel, NoDecisionIsSentUnderAnotherGrant) {
  int admitted = 0, grants = 0;
  for (unsigned seed = 0; seed < 5 * model_seeds; ++seed) {
    model one(seed, without::nothing);
    ASSERT_FALSE(one.run(model_steps)) << "seed " << seed;
    admitted += one.admitted();
    grants += one.grants();
  }
  EXPECT_GT(admitted, 1'000);
  EXPECT_GT(grants, 1'000);
}

TEST(LeaseWriterModel, EachPartIsMissed) {
  for (const auto what :
       {without::binding_at_accept, without::new_socket, without::start_times, without::unknown_at_first,
        without::checked_resume, without::restart, without::all_containers, without::loss_behind_revocation})
    EXPECT_GT(times_broken(what), 0) << static_cast<int>(what);
}

TEST(LeaseWriterModel, TheMarkRefusesWhatWasNotCut) { EXPECT_EQ(times_broken(without::cut), 0); }

}  // namespace
}  // namespace fencegate::lease
