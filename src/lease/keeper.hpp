// Takes a lease, seals its tokens in all places, and keeps it: asks again while another holds it, renews it in time, and
// tells its owner until when it holds.
//
// Rule kept: nobody acts on part of the seals. When one place is not sealed the lease is released.
//
// All of it runs on its context's thread.
#pragma once

#include "lease/holder.hpp"
#include "lease/issuer.hpp"
#include "lease/timing.hpp"
#include "lease/waiting_note.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::lease {

struct keeper_request {
  std::vector<std::string> resources;  // each once, at least one
  std::string holder;                  // for people
  timing times;
  std::optional<std::chrono::milliseconds> wait{};  // for others to release it; nullopt: for ever
  std::chrono::milliseconds at_least{0};
  std::chrono::milliseconds lock_delay{0};
  std::int64_t stride = 1 << 20;
  taking how = taking::when_free;
  std::string id{};      // of the first grant that is asked for; "": a random one
  bool renews = true;    // by itself, as long as it holds; else renew() is called in time
  bool patient = false;  // waits also for those that were never reached
};

struct keeper_failure {
  enum class kind : std::uint8_t {
    busy,         // another held it until the wait was over
    unreachable,  // the issuer or a place to seal
    over,         // the time of the request's id has passed
    refused       // it cannot be had so, whenever it is asked: `message` says what to do
  } what;
  std::string message;
  std::string resource{}, by{};       // busy
  std::chrono::milliseconds left{0};  // busy: until another may have it
};

struct keeper_loss {
  enum class kind : std::uint8_t {
    expired,    // no renewal was confirmed in time
    superseded  // it is another's, or a mark has risen above its token
  } what;
  std::string message;
};

// Each is called later, never from within the keeper's own functions.
struct keeper_owner {
  std::function<void(const term&)> acquired;                // sealed in all places; may_begin() is true
  std::function<void(const keeper_failure&)> not_acquired;  // and nothing is held
  std::function<void()> times_moved;                        // of holding()
  std::function<void(const std::string& why)> waits;        // for something else than before
  std::function<void()> expiring;                           // nothing new may begin; again after each renewal
  std::function<void(const keeper_loss&)> lost;             // once; nothing is kept any more
};

// For the answer to a release, at the end.
inline constexpr std::chrono::milliseconds release_patience{5'000};

class keeper : public std::enable_shared_from_this<keeper> {
 public:
  // `places`: none where the issuer seals by itself. REQUIRES: `owner` may be called until stop() or its own end.
  keeper(boost::asio::io_context& context, std::shared_ptr<issuer> by, std::vector<std::shared_ptr<seal_place>> places,
         keeper_request wanted, keeper_owner owner);

  void start();
  // Instead of start(): it was granted and sealed before, and the issuer has just confirmed it, asked at `sent`.
  void adopt(term held, clock_reading sent);
  // The same, but nobody knows whether all places of today are sealed. They are sealed again, then it is acquired. That fails
  // when a seal is refused, or when the term ends before all places were reached: another term is not asked for.
  void resume(term held, const std::string& issuer_id, clock_reading sent);
  // REQUIRES: acquired, or adopted. An error: the issuer did not answer. False: it is lost. `done`: nullptr, or called once.
  void renew(std::function<void(const result<bool>&)> done);
  // Releases what is held, as far as the issuer answers within `patience`; then `done`, with why it is not known to be
  // released. Nobody else is called any more.
  void stop(std::chrono::milliseconds patience, std::function<void(const result<void>&)> done);

  // REQUIRES: acquired.
  [[nodiscard]] const holder& holding() const { return *holder_; }
  [[nodiscard]] const term& held() const { return term_; }
  // Whom it waits for; "": nobody, or that is not known.
  [[nodiscard]] const std::string& held_by() const { return held_by_; }
  // Why the last renewal was not confirmed: ": the server says …", or "".
  [[nodiscard]] const std::string& not_renewed() const { return not_renewed_; }
  // From when a release was heard of that it had waited for, until it was acquired; nullopt: it heard of none.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> handover() const { return handover_; }

 private:
  using clock = std::chrono::steady_clock;
  using step = void (keeper::*)();
  // Behind seals that were refused, and servers that were not reached.
  static constexpr std::chrono::milliseconds back_off{500};

  void identify();
  void look();
  void acquire();
  void on_grant(clock_reading sent, const grant_answer& answer);
  void seal();
  void on_sealed(std::uint64_t round, const seal_place& place, const backend::store_result<void>& outcome);
  void all_answered();
  void not_resumed();
  void renew_in_time();
  bool on_renewed(clock_reading sent, const renewal& confirmed);
  void lose(keeper_loss why);
  void wait_until_free(const grant_answer& held, std::chrono::milliseconds took);
  [[nodiscard]] clock_reading counted(clock_reading sent, std::optional<std::chrono::milliseconds> act_for) const;
  void on_release(const std::string& resource);
  void begin_anew();
  void try_again(std::chrono::milliseconds pause, step from);
  void let_go_then(std::function<void(const result<void>&)> done);
  void missed(const std::string& whom, const unanswered& why, step from);
  void note(const std::string& whom, const unanswered& why);
  void wait_for(const std::string& what);
  void fail(keeper_failure why);

  boost::asio::io_context& context_;
  const std::shared_ptr<issuer> issuer_;
  const std::vector<std::shared_ptr<seal_place>> places_;
  const keeper_request wanted_;
  keeper_owner owner_;
  boost::asio::steady_timer pause_, renewals_;
  const clock::time_point wait_until_;

  std::string issuer_id_;
  std::vector<std::string> place_ids_;
  std::vector<std::int64_t> floors_;
  std::size_t unanswered_ = 0;
  std::optional<unanswered> problem_;           // of a round: the first, or the first that lasts
  std::optional<fence::rejection> not_sealed_;  // of the worst kind
  std::uint64_t round_ = 0;                     // of seals: answers of an earlier one are void
  std::string waits_for_, held_by_;             // as said last
  std::string not_renewed_;
  bool reached_ = false;  // all of them once: then they are waited for
  bool acquired_ = false, stopped_ = false;
  bool resumes_ = false;                                    // this term and no other
  bool asking_ = false;                                     // for a grant
  std::function<void(const result<void>&)> answered_late_;  // stopped: when that was answered, and given back
  waiting_note note_;
  std::shared_ptr<void> releases_;  // heard of, once it waits for one
  bool pausing_ = false;            // until a held resource is asked for again
  bool released_ = false;           // one was, since it was asked for
  bool told_expiring_ = false;
  bool first_ = true;                       // that is asked for
  std::optional<clock::time_point> heard_;  // of the release
  std::optional<std::chrono::nanoseconds> handover_;
  term term_;                     // what is held, or asked for
  std::optional<holder> holder_;  // what is held
};

}  // namespace fencegate::lease
