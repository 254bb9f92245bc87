// `fencegate lease move`: marks get another issuer.
#include "cli/asked.hpp"
#include "cli/commands.hpp"
#include "cli/config_leases.hpp"
#include "cli/config_values.hpp"
#include "cli/lease.hpp"
#include "cli/lease_places.hpp"
#include "client/wish.hpp"
#include "hold/exit_status.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
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
  move(const settings::process& config, const lease_question& about, std::vector<std::string> resources,
       std::ostream& out, std::ostream& err)
      : config_(config), about_(about), resources_(std::move(resources)), out_(out), err_(err) {}

  result<void> run() {
    const auto to_plan = plan_lease(config_, resources_, about_.to);
    if (!to_plan) return to_plan.error();
    for (auto& place : make_places(io_, config_, *to_plan)) places_.push_back(std::make_shared<unsealed_place>(place));
    const auto to = make_issuer(io_, config_, *to_plan, times_);
    const auto to_id = id_of(*to, about_.to);
    if (!to_id) return to_id.error();

    std::optional<lease_holding> former;
    std::string from_id;
    if (about_.from_lost) {
      wait_for_holders();
    } else {
      const auto from_plan = plan_lease(config_, resources_, about_.issuer);
      if (!from_plan) return from_plan.error();
      const auto from = make_issuer(io_, config_, *from_plan, times_);
      auto id = id_of(*from, from_plan->issuer.name);
      if (!id) return id.error();
      if (is_same_id(*id, *to_id))
        return error{from_plan->issuer.name + " and " + about_.to +
                     " are the same issuer: name the former one by --issuer"};
      from_id = *id;
      former.emplace(*this, from, from_plan->issuer.name);
      if (const auto held = former->take(); !held) return held.error();
    }
    lease_holding next(*this, to, about_.to);
    if (const auto held = next.take(); !held) return held.error();
    for (const auto& resource : resources_)
      for (const auto& place : places_) {
        if (former && former->is_lost()) return error{"the lease was lost meanwhile; do it again"};
        if (const auto moved = move_one(*place, resource, from_id, *to_id); !moved)
          return error{place->name() + ": " + resource + ": " + moved.error().message + "; do it again"};
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
      wanted.wait = of.about_.wait;
      lease::keeper_owner owner;
      owner.acquired = [this](const lease::term&) { answer_({}); };
      owner.not_acquired = [this](const lease::keeper_failure& why) {
        of_.busy_ = why.what == lease::keeper_failure::kind::busy;
        answer_(error{name_ + ": " + why.message});
      };
      owner.waits = [this](const std::string& what) {
        of_.err_ << "fencegate lease: " << what << "; waiting" << std::endl;
      };
      owner.lost = [this](const lease::keeper_loss&) { lost_ = true; };
      keeper_ = std::make_shared<lease::keeper>(of.io_, by, of.places_, wanted, std::move(owner));
    }
    lease_holding(const lease_holding&) = delete;
    lease_holding& operator=(const lease_holding&) = delete;
    ~lease_holding() {
      asked(of_.io_, result<void>(), [&](auto done) { keeper_->stop(lease::release_patience, done); });
    }

    result<void> take() {
      return asked(of_.io_, result<void>(error{name_ + ": there was no answer"}), [&](auto done) {
        answer_ = done;
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
    auto id = asked(io_, result<std::string>(error{"there was no answer"}), [&](auto done) { by.identify(done); });
    if (!id) return error{"the issuer " + name + ": " + id.error().message};
    return id;
  }

  // Who was granted a lease by what is lost stops by itself.
  void wait_for_holders() {
    err_ << "fencegate lease: waiting " << write_duration(times_.ttl) << ", the TTL, for the end of former holders"
         << std::endl;
    boost::asio::steady_timer timer(io_, times_.ttl);
    asked(io_, true, [&](auto done) { timer.async_wait([done](const boost::system::error_code&) { done(true); }); });
  }

  // `from`: "": whosever it is.
  result<void> move_one(lease::seal_place& at, const std::string& resource, const std::string& from,
                        const std::string& to) {
    const result<std::string> unanswered = error{"there was no answer"};
    auto owner = asked(io_, unanswered, [&](auto done) { at.issuer_of(resource, done); });
    if (!owner) return owner.error();
    const bool was_moved = is_same_id(*owner, to);
    if (!was_moved && !owner->empty()) {
      if (!from.empty() && !is_same_id(*owner, from))
        return error{"its mark belongs to leases of a third issuer, " + *owner};
      owner = asked(io_, unanswered, [&](auto done) { at.move(resource, *owner, to, done); });
      if (!owner) return owner.error();
      if (!is_same_id(*owner, to)) return error{"another command moved it to the issuer " + *owner};
    }
    out_ << resource << ": " << at.name()
         << (was_moved        ? ": is moved already"
             : owner->empty() ? ": no lease was sealed there"
                              : ": moved")
         << '\n';
    return {};
  }

  const settings::process& config_;
  const lease_question& about_;
  const std::vector<std::string> resources_;
  std::ostream& out_;
  std::ostream& err_;
  boost::asio::io_context io_{1};
  const lease::timing times_ = timing_of(config_.leased, config_.leased.ttl);
  places places_;

 public:
  bool busy_ = false;  // another holds it
};

}  // namespace

int move_lease(const settings::process& config, const lease_question& about, std::ostream& out, std::ostream& err) {
  const auto resources = client::read_resources(about.resource);
  if (!resources) {
    err << "fencegate lease: " << resources.error().message << '\n';
    return exit_bad_configuration;
  }
  move one(config, about, *resources, out, err);
  const auto moved = one.run();
  if (!moved) {
    err << "fencegate lease: " << moved.error().message << '\n';
    return one.busy_ ? hold::ending_of(hold::outcome::busy).status : exit_failed;
  }
  out << "The issuer of " << about.resource << " is " << about.to << " now: every configuration has to say so.\n";
  return exit_ok;
}

}  // namespace fencegate::cli
