// `fencegate lease move`: marks get another issuer.
#include "base/quantity_text.hpp"
#include "cli/config_leases.hpp"
#include "cli/config_values.hpp"
#include "cli/lease_operations.hpp"
#include "cli/lease_places.hpp"
#include "client/wish.hpp"
#include "lease/keeper.hpp"

#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;
using places = std::vector<std::shared_ptr<lease::seal_place>>;

// For who takes a lease so that nobody else has it, and acts on nothing: its marks need not rise.
class unsealed_place final : public lease::seal_place {
 public:
  explicit unsealed_place(std::shared_ptr<lease::seal_place> at) : at_(std::move(at)) {}

  [[nodiscard]] const std::string& name() const override { return at_->name(); }
  void identify(std::function<void(const lease::answer<std::string>&)> done) override {
    at_->identify(std::move(done));
  }
  void look(const std::vector<std::string>& resources,
            std::function<void(const lease::answer<std::vector<backend::looked_mark>>&)> done) override {
    at_->look(resources, std::move(done));
  }
  void seal(const lease::term& /*held*/, const std::string& /*issuer_id*/,
            std::function<void(const backend::store_result<void>&)> done) override {
    done({});
  }
  void move(const std::string& resource, const std::string& from, const std::string& to,
            std::function<void(const result<std::string>&)> done) override {
    at_->move(resource, from, to, std::move(done));
  }

 private:
  const std::shared_ptr<lease::seal_place> at_;
};

// PostgreSQL writes an id with dashes, Redis without.
bool is_same_id(std::string a, std::string b) {
  std::erase(a, '-');
  std::erase(b, '-');
  return a == b;
}

class move {
 public:
  move(operation_run& run, const settings::process& config, const lease::operation& asked, const operation_told& told)
      : run_(run), config_(config), asked_(asked), told_(told), resources_(asked.resources) {}

  result<void> run() {
    const auto to_plan = plan_lease(config_, resources_, asked_.to);
    if (!to_plan) return to_plan.error();
    for (auto& place : make_places(run_.io, config_, *to_plan))
      places_.push_back(std::make_shared<unsealed_place>(place));
    const auto to = make_issuer(run_.io, config_, *to_plan, times_);
    const auto to_id = id_of(*to, asked_.to);
    if (!to_id) return to_id.error();

    std::optional<lease_holding> former;
    std::string from_id;
    if (asked_.from_lost) {
      if (auto waited = wait_for_holders(); !waited) return waited;
    } else {
      const auto from_plan = plan_lease(config_, resources_, asked_.issuer);
      if (!from_plan) return from_plan.error();
      const auto from = make_issuer(run_.io, config_, *from_plan, times_);
      auto id = id_of(*from, from_plan->issuer.name);
      if (!id) return id.error();
      if (is_same_id(*id, *to_id))
        return error{from_plan->issuer.name + " and " + asked_.to +
                     " are the same issuer: name the former one by --issuer"};
      from_id = *id;
      former.emplace(*this, from, from_plan->issuer.name);
      if (auto held = former->take(); !held) return held;
    }
    lease_holding next(*this, to, asked_.to);
    if (auto held = next.take(); !held) return held;
    for (const auto& resource : resources_)
      for (const auto& place : places_) {
        if (former && former->is_lost()) return error{"the lease was lost meanwhile; do it again"};
        if (const auto done = move_one(*place, resource, from_id, *to_id); !done)
          return error{place->name() + ": " + resource + ": " + done.error().message + "; do it again"};
      }
    return {};
  }

 private:
  // Nobody else gets the leases while it is there.
  class lease_holding {
   public:
    lease_holding(move& of, const std::shared_ptr<lease::issuer>& by, std::string name)
        : of_(of), name_(std::move(name)) {
      auto wanted = client::keeper_request_of(of.resources_, of.times_);
      wanted.holder = "lease move";
      wanted.stride = of.config_.leased.stride;
      wanted.wait = of.asked_.wait;
      lease::keeper_owner owner;
      owner.acquired = [this](const lease::term&) { answer_({}); };
      owner.not_acquired = [this](const lease::keeper_failure& why) {
        of_.busy = why.what == lease::keeper_failure::kind::busy;
        answer_(error{name_ + ": " + why.message});
      };
      owner.waits = [this](const std::string& what) { of_.waits(what); };
      owner.lost = [this](const lease::keeper_loss&) { lost_ = true; };
      keeper_ = std::make_shared<lease::keeper>(of.run_.io, by, of.places_, wanted, std::move(owner));
    }
    lease_holding(const lease_holding&) = delete;
    lease_holding& operator=(const lease_holding&) = delete;
    ~lease_holding() {
      of_.run_.asked(result<void>(), [&](auto done) { keeper_->stop(lease::release_patience, done); });
    }

    result<void> take() {
      return of_.wait_unless_left([&](auto done) {
        answer_ = std::move(done);
        keeper_->start();
      });
    }
    [[nodiscard]] bool is_lost() const { return lost_; }

   private:
    move& of_;
    const std::string name_;
    std::shared_ptr<lease::keeper> keeper_;
    std::function<void(const result<void>&)> answer_;
    bool lost_ = false;
  };

  result<std::string> id_of(lease::issuer& by, const std::string& name) {
    auto id = run_.asked(result<std::string>(error{"there was no answer"}), [&](auto done) { by.identify(done); });
    if (!id) return error{"the issuer " + name + ": " + id.error().message};
    return id;
  }

  void waits(const std::string& what) const {
    if (told_.waits) told_.waits(what);
  }

  // For as long as whoever asked is there.
  result<void> wait_unless_left(const std::function<void(std::function<void(const result<void>&)>)>& ask) {
    const error left{"whoever asked has left"};
    if (run_.left()) return left;
    auto outcome = run_.asked(result<void>(error{"there was no answer"}), [&](auto done) {
      run_.on_left = [done, left] { done(left); };
      ask(done);
    });
    run_.on_left = nullptr;
    return outcome;
  }

  // Who was granted a lease by what is lost stops by itself.
  result<void> wait_for_holders() {
    waits("the TTL is " + write_duration(times_.ttl) + ", in which former holders end");
    boost::asio::steady_timer timer(run_.io, times_.ttl);
    return wait_unless_left([&](auto done) {
      timer.async_wait([done](const boost::system::error_code& cancelled) {
        if (!cancelled) done({});
      });
    });
  }

  // `from`: "": whosever it is.
  result<void> move_one(lease::seal_place& at, const std::string& resource, const std::string& from,
                        const std::string& to) {
    const result<std::string> unanswered = error{"there was no answer"};
    auto owner = run_.asked(unanswered, [&](auto done) { at.issuer_of(resource, done); });
    if (!owner) return owner.error();
    const bool was_moved = is_same_id(*owner, to);
    if (!was_moved && !owner->empty()) {
      if (!from.empty() && !is_same_id(*owner, from))
        return error{"its mark belongs to leases of a third issuer, " + *owner};
      owner = run_.asked(unanswered, [&](auto done) { at.move(resource, *owner, to, done); });
      if (!owner) return owner.error();
      if (!is_same_id(*owner, to)) return error{"another command moved it to the issuer " + *owner};
    }
    moved.push_back({resource, at.name(),
                     was_moved        ? "is moved already"
                     : owner->empty() ? "no lease was sealed there"
                                      : "moved"});
    if (told_.moved) told_.moved(moved.back());
    return {};
  }

  operation_run& run_;
  const settings::process& config_;
  const lease::operation& asked_;
  const operation_told& told_;
  const std::vector<std::string>& resources_;
  const lease::timing times_ = timing_of(config_.leased, config_.leased.ttl);
  places places_;

 public:
  bool busy = false;  // another holds it
  std::vector<lease::moved_entry> moved;
};

}  // namespace

lease::operation_outcome move_leases(operation_run& run, const settings::process& config, const lease::operation& asked,
                                     const operation_told& told) {
  move one(run, config, asked, told);
  const auto outcome = one.run();
  if (outcome) return lease::operation_result{.moved = std::move(one.moved)};
  if (!one.busy) return refused(outcome.error().message);
  return lease::lease_refusal{lease::lease_refusal::kind::busy, outcome.error().message};
}

}  // namespace fencegate::cli
