#include "client/hold.hpp"

#include "fence/tag.hpp"
#include "hold/environment.hpp"
#include "hold/guard.hpp"
#include "lease/keeper.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/signalfd.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <memory>
#include <ostream>
#include <utility>

namespace fencegate::client {
namespace {

namespace asio = boost::asio;
using hold::outcome;
using std::chrono::milliseconds;

// What hold does not keep to itself. SIGCHLD tells that there is something to reap.
constexpr std::array taken_signals{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCHLD};

std::int64_t nanoseconds_of(lease::boot_clock::time_point t) { return t.time_since_epoch().count(); }

std::vector<std::string> inherited_environment() {
  std::vector<std::string> out;
  for (char** one = environ; *one != nullptr; ++one) out.emplace_back(*one);
  return out;
}

// One run of `hold`, from the wait for the lease to its release.
class run {
 public:
  run(const hold_request& request, hold::guarded_job job, std::ostream& err)
      : request_(request), job_(std::move(job)), err_(err), ended_(io_), signals_(io_), max_run_(io_) {}

  hold::ending of(const lease_source& from, const lease::keeper_request& wanted) {
    lease::keeper_owner owner;
    owner.acquired = [this](const lease::term& held) { acquired(held); };
    owner.not_acquired = [this](const lease::keeper_failure& why) { not_acquired(why); };
    owner.times_moved = [this] { pass_times(); };
    owner.waits = [this](const std::string& what) { say(what + "; waiting"); };
    owner.lost = [this](const lease::keeper_loss& why) { lost(why.message); };
    stop_grace_ = wanted.times.stop_grace;
    auto [issuer, places] = from(io_);
    keeper_ = std::make_shared<lease::keeper>(io_, std::move(issuer), std::move(places), wanted, std::move(owner));
    watch_signals();
    ended_.assign(dup(job_.descriptor()));
    wait_for_end();
    keeper_->start();
    io_.run();
    return ending_;
  }

 private:
  void say(const std::string& what) { err_ << "fencegate hold: " << what << std::endl; }

  // ── the lease ──

  void acquired(const lease::term& held) {
    const auto environment =
        hold::environment_of({held.claims, fence::write_tag(held.claims), held.grant}, inherited_environment());
    if (!environment) return fail(environment.error());
    const auto started = job_.start({request_.command, *environment, stop_grace_}, times());
    if (!started) return fail(started.error());
    runs_ = true;
    if (!request_.max_run) return;
    max_run_.expires_after(*request_.max_run);
    max_run_.async_wait([this](const boost::system::error_code& cancelled) {
      if (cancelled) return;
      say("the command has run for --max-run, and is ended");
      end_command(outcome::max_run);
    });
  }

  void not_acquired(const lease::keeper_failure& why) {
    if (why.what != lease::keeper_failure::kind::busy || !request_.busy_exit) say(why.message);
    finish(ending_of(why, request_));
  }

  [[nodiscard]] hold::job_times times() const {
    const auto& held = keeper_->holding();
    return {nanoseconds_of(held.stop_at()), nanoseconds_of(held.deadline())};
  }

  // Where the command is to end by our own will, no renewal moves that.
  void pass_times() {
    if (!runs_ || over_) return;
    auto next = times();
    if (ordered_) next = {std::min(next.stop_at, ordered_->stop_at), std::min(next.deadline, ordered_->deadline)};
    job_.set_times(next);
  }

  void lost(const std::string& why) {
    say("the lease was lost: " + why);
    because_ = outcome::lost;
  }

  // ── the command ──

  void end_command(outcome because) {
    if (!because_) because_ = because;
    if (over_ || ordered_) return;
    const auto now = lease::boot_clock::now();
    ordered_ = hold::job_times{nanoseconds_of(now), nanoseconds_of(now + stop_grace_)};
    pass_times();
  }

  void wait_for_end() {
    ended_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& failed) {
      if (failed) return;
      if (!look_at_command()) wait_for_end();
    });
  }

  // True: it has ended.
  bool look_at_command() {
    const auto end = job_.ended();
    if (!end) return false;
    if (std::exchange(over_, true)) return true;
    if (!runs_) return fail({"something killed the guard of the command before that was started"}), true;
    for (const auto pid : end->not_ended)
      say("process " + std::to_string(pid) +
          " lives on: this user may not end it. The fence refuses its writes once the lease is another's");
    if (!because_ && end->told)
      lost("no renewal was confirmed in time" + keeper_->not_renewed() + "; the command was told to end");
    if (end->left_behind > 0) say("ended " + std::to_string(end->left_behind) + " processes that the command had left");
    finish(end_of(*end));
    return true;
  }

  [[nodiscard]] hold::ending end_of(const hold::job_end& end) const {
    if (because_ == outcome::lost || because_ == outcome::max_run) return hold::ending_of(*because_);
    // By SIGTERM to hold, and it did not end by itself.
    if (because_ == outcome::signaled && end.what == hold::job_end::kind::overdue)
      return {outcome::signaled, 128 + SIGKILL};
    return hold::ending_of(end);
  }

  // ── signals ──

  void watch_signals() {
    sigset_t all;
    sigemptyset(&all);
    for (const int number : taken_signals) sigaddset(&all, number);
    sigprocmask(SIG_BLOCK, &all, nullptr);
    signals_.assign(signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
    wait_for_signal();
  }

  void wait_for_signal() {
    signals_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& failed) {
      if (failed) return;
      signalfd_siginfo got{};
      while (read(signals_.native_handle(), &got, sizeof got) == sizeof got) take_signal(got);
      wait_for_signal();
    });
  }

  void take_signal(const signalfd_siginfo& got) {
    const int number = static_cast<int>(got.ssi_signo);
    if (number == SIGCHLD) {
      look_at_command();
      return;
    }
    if (!runs_) {
      if (number != SIGWINCH && number != SIGUSR1 && number != SIGUSR2) finish({outcome::signaled, 128 + number});
      return;
    }
    if (over_) return;
    if (number == SIGTERM) return end_command(outcome::signaled);
    if (job_.passes_on(got.ssi_code)) job_.signal(number);
  }

  // ── the end ──

  void fail(const error& why) {
    if (!finished_) say(why.message);
    finish(hold::ending_of(outcome::error));
  }

  void finish(hold::ending end) {
    if (std::exchange(finished_, true)) return;
    ending_ = end;
    max_run_.cancel();
    keeper_->stop(lease::release_patience, [this](const result<void>&) { io_.stop(); });
  }

  const hold_request& request_;
  asio::io_context io_{1};
  hold::guarded_job job_;
  std::ostream& err_;
  asio::posix::stream_descriptor ended_, signals_;
  asio::steady_timer max_run_;
  std::shared_ptr<lease::keeper> keeper_;
  milliseconds stop_grace_{0};
  std::optional<hold::job_times> ordered_{};  // when the command is to end by our own will
  std::optional<outcome> because_{};          // why it is to end
  bool runs_ = false, over_ = false, finished_ = false;
  hold::ending ending_ = hold::ending_of(outcome::error);
};

result<hold::ending> hold_by(const lease_planner& planner, const hold_request& request, std::ostream& err) {
  const auto plan = plan_of(request, planner);
  if (!plan) return plan.error();
  const auto& wanted = plan->wanted;
  // What is wrong with the environment should not wait for the lease.
  fence::claims_list any_tokens;
  for (const auto& name : wanted.resources) any_tokens.push_back({name, fence::token(1)});
  const auto fits = hold::environment_of({any_tokens, fence::write_tag(any_tokens), "any"}, inherited_environment());
  if (!fits) return fits.error();
  std::signal(SIGPIPE, SIG_IGN);  // nobody may read what is said; the command gets it back
  auto job = hold::guarded_job::prepare();
  if (!job) return job.error();
  return run(request, std::move(*job), err).of(plan->from, wanted);
}

}  // namespace

int hold(const hold_request& request, const lease_planner& planner, std::ostream& err) {
  auto end = hold::ending_of(outcome::error);
  if (const auto held = hold_by(planner, request, err))
    end = *held;
  else
    err << "fencegate hold: " << held.error().message << '\n';
  if (request.result_file.empty()) return end.status;
  std::ofstream file(request.result_file, std::ios::binary | std::ios::trunc);
  if (!(file << hold::result_text(end) << std::flush))
    err << "fencegate hold: cannot write " << request.result_file << '\n';
  return end.status;
}

}  // namespace fencegate::client
