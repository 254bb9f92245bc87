#include "client/hold.hpp"

#include "base/name_text.hpp"
#include "client/private_gate.hpp"
#include "client/watched_job.hpp"
#include "fence/tag.hpp"
#include "hold/environment.hpp"
#include "hold/guard.hpp"
#include "lease/keeper.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <ostream>
#include <utility>

namespace fencegate::client {
namespace {

namespace asio = boost::asio;
using hold::outcome;
using std::chrono::milliseconds;

std::int64_t nanoseconds_of(lease::boot_clock::time_point t) { return t.time_since_epoch().count(); }

std::vector<std::string> inherited_environment() {
  std::vector<std::string> out;
  for (char** one = environ; *one != nullptr; ++one) out.emplace_back(*one);
  return out;
}

void say(std::ostream& err, const std::string& what) { err << "fencegate hold: " << what << std::endl; }

// A guard that has no processor for so long does not run at all.
constexpr milliseconds guard_patience_most{2'000};

struct run_end {
  hold::ending end;
  bool told_to_end;  // by a signal
};

// One run of `hold`, from the wait for the lease to its release.
class run {
 public:
  run(const hold_request& request, hold::guarded_job job, std::ostream& err)
      : request_(request), watched_(io_, std::move(job)), job_(watched_.job()), err_(err), max_run_(io_) {}

  run_end of(const lease_source& from, const lease::keeper_request& wanted) {
    lease::keeper_owner owner;
    owner.acquired = [this](const lease::term& held) { acquired(held); };
    owner.not_acquired = [this](const lease::keeper_failure& why) { not_acquired(why); };
    owner.times_moved = [this] { pass_times(); };
    owner.waits = [this](const std::string& what) { say(what + "; waiting"); };
    owner.lost = [this](const lease::keeper_loss& why) { lost(why.message); };
    stop_grace_ = wanted.times.stop_grace;
    patience_ = std::min((wanted.times.margin - wanted.times.skew) / 2, guard_patience_most);
    auto [issuer, places] = from(io_);
    keeper_ = std::make_shared<lease::keeper>(io_, std::move(issuer), std::move(places), wanted, std::move(owner));
    watched_.watch([this](const signalfd_siginfo& got) { take_signal(got); },
                   [this](const hold::job_end& end) { command_ended(end); },
                   [this](bool still) { stood_still(still); });
    keeper_->start();
    io_.run();
    leave_unanswered();
    return {ending_, told_to_end_};
  }

 private:
  void say(const std::string& what) { client::say(err_, what); }

  // What an issuer has not answered in time keeps it and the keeper: the process ends, and nothing of that is taken apart.
  void leave_unanswered() {
    [[gnu::used]] static std::shared_ptr<lease::keeper>* left = nullptr;
    if (keeper_.use_count() > 1) left = new std::shared_ptr<lease::keeper>(std::move(keeper_));
  }

  // ── the lease ──

  void acquired(const lease::term& held) {
    if (!request_.private_gate) return begin(held, std::nullopt);
    const auto api = read_api(request_.api);
    if (!api) return fail(api.error());
    gate_.emplace(io_, private_gate::plan{*api, *request_.private_gate, [this](const auto& what) { say(what); }});
    gate_->open(held, [this, held](const private_gate::opened& place) {
      if (finished_) return;
      if (place) return begin(held, *place);
      say("--private-gate: " + place.error().message);
      finish(hold::ending_of(place.error().what));
    });
  }

  void begin(const lease::term& held, std::optional<hold::private_socket> gate) {
    const auto environment = hold::environment_of(
        {held.claims, fence::write_tag(held.claims), held.grant, std::move(gate)}, inherited_environment());
    if (!environment) return fail(environment.error());
    const auto started = job_.start({request_.command, *environment, stop_grace_, patience_}, times());
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
    const hold::job_times out{nanoseconds_of(held.stop_at()), nanoseconds_of(held.deadline()), 0};
    // Who may get the lease back is not told to end.
    if (request_.grace.count() == 0 || held.is_lost()) return out;
    return {hold::job_times::never, out.deadline, nanoseconds_of(held.end_at()) - out.deadline};
  }

  // Where the command is to end by our own will, no renewal moves that.
  void pass_times() {
    if (!runs_ || over_) return;
    auto next = times();
    if (ordered_) next = {std::min(next.stop_at, ordered_->stop_at), std::min(next.deadline, ordered_->deadline), 0};
    job_.set_times(next);
  }

  void stood_still(bool still) {
    if (still)
      say("no renewal was confirmed in time" + keeper_->not_renewed() +
          "; the command stands still, for --grace at most");
    else
      say("the lease is held again, and the command goes on");
  }

  void lost(const std::string& why) {
    say("the lease was lost: " + why);
    because_ = outcome::lost;
    if (!runs_) finish(hold::ending_of(outcome::lost));  // before the command was started
  }

  // ── the command ──

  void end_command(outcome because) {
    if (!because_) because_ = because;
    if (over_ || ordered_) return;
    const auto now = lease::boot_clock::now();
    ordered_ = hold::job_times{nanoseconds_of(now), nanoseconds_of(now + stop_grace_), 0};
    pass_times();
  }

  void command_ended(const hold::job_end& end) {
    over_ = true;
    gate_.reset();
    if (!runs_) return fail({"something killed the guard of the command before that was started"});
    for (const auto pid : end.not_ended)
      say("process " + std::to_string(pid) +
          " lives on: this user may not end it. The fence refuses its writes once the lease is another's");
    if (!because_ && (end.told || end.what == hold::job_end::kind::overdue))
      lost("no renewal was confirmed in time" + keeper_->not_renewed() +
           (end.told ? "; the command was told to end" : ""));
    // Nobody knows when that was, if keeper and guard stood still meanwhile.
    if (!because_ && lease::boot_clock::now() >= keeper_->holding().deadline())
      lost("the end of the command was seen when the time of the lease was over");
    if (end.what == hold::job_end::kind::not_found || end.what == hold::job_end::kind::not_executable)
      say("cannot run " + request_.command.front() + ": " + std::strerror(end.status));
    if (end.left_behind > 0) say("ended " + std::to_string(end.left_behind) + " processes that the command had left");
    finish(end_of(end));
  }

  [[nodiscard]] hold::ending end_of(const hold::job_end& end) const {
    if (because_ == outcome::lost || because_ == outcome::max_run) return hold::ending_of(*because_);
    // By SIGTERM to hold, and it did not end by itself.
    if (because_ == outcome::signaled && end.what == hold::job_end::kind::overdue)
      return {outcome::signaled, 128 + SIGKILL};
    return hold::ending_of(end);
  }

  void take_signal(const signalfd_siginfo& got) {
    const int number = static_cast<int>(got.ssi_signo);
    told_to_end_ = told_to_end_ || is_to_end(got.ssi_signo);
    if (!runs_) {
      if (told_to_end_) finish({outcome::signaled, 128 + number});
      return;
    }
    if (over_) return;
    if (number == SIGTERM || is_deadly(got.ssi_signo)) return end_command(outcome::signaled);
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
  watched_job watched_;
  hold::guarded_job& job_;
  std::ostream& err_;
  asio::steady_timer max_run_;
  std::shared_ptr<lease::keeper> keeper_;
  std::optional<private_gate> gate_;
  milliseconds stop_grace_{0}, patience_{0};
  std::optional<hold::job_times> ordered_{};  // when the command is to end by our own will
  std::optional<outcome> because_{};          // why it is to end
  bool runs_ = false, over_ = false, finished_ = false, told_to_end_ = false;
  hold::ending ending_ = hold::ending_of(outcome::error);
};

// `--warm-up`, under a guard, but without a lease. nullopt: it went well.
std::optional<hold::ending> warm_up(const hold_request& request, milliseconds stop_grace, std::ostream& err) {
  const auto fail = [&err](const std::string& why) {
    say(err, "--warm-up: " + why);
    return hold::ending_of(outcome::error);
  };
  auto job = hold::guarded_job::prepare();
  if (!job) return fail(job.error().message);
  asio::io_context io(1);
  watched_job watched(io, std::move(*job));
  constexpr auto never = hold::job_times::never;
  const auto started =
      watched.job().start({{"/bin/sh", "-c", request.warm_up}, inherited_environment(), stop_grace}, {never, never, 0});
  if (!started) return fail(started.error().message);
  std::optional<hold::ending> told;
  std::optional<hold::job_end> ended;
  const auto signalled = [&](const signalfd_siginfo& got) {
    if (!is_to_end(got.ssi_signo) || told) return;
    told = {outcome::signaled, 128 + static_cast<int>(got.ssi_signo)};
    const auto now = lease::boot_clock::now();
    watched.job().set_times({nanoseconds_of(now), nanoseconds_of(now + stop_grace), 0});
  };
  watched.watch(signalled, [&](const hold::job_end& end) {
    ended = end;
    io.stop();
  });
  io.run();
  if (told) return told;
  const auto end = hold::ending_of(*ended);
  if (end.what == outcome::exited && end.status == 0) return std::nullopt;
  return fail("it ended with status " + std::to_string(end.status));
}

// Begins anew as the program that was called: a guard is forked before there are threads, and there may be some by now.
// Signals that have come wait for it. Returns why it failed.
std::string become_self() {
  std::vector<std::string> words;
  {
    std::ifstream file("/proc/self/cmdline", std::ios::binary);  // which the program would inherit
    for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  }
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  if (words.empty()) return "/proc/self/cmdline cannot be read";
  ::execv("/proc/self/exe", arguments.data());
  return std::string("/proc/self/exe: ") + std::strerror(errno);
}

result<hold::ending> hold_by(const lease_planner& planner, const hold_request& request, std::ostream& err) {
  if (request.grace > lease_time_most) return error{"--grace is 24h at most"};
  auto plan = plan_of(request, planner);
  if (!plan) return plan.error();
  auto& wanted = plan->wanted;
  wanted.patient = request.elect;
  wanted.times.grace = request.grace;
  // What is wrong with the environment should not wait for the lease.
  fence::claims_list any_tokens;
  for (const auto& name : wanted.resources) any_tokens.push_back({name, fence::token(1)});
  std::optional<hold::private_socket> any_gate;
  if (request.private_gate) {
    if (!is_name(*request.private_gate)) return error{"--private-gate names no gate: '" + *request.private_gate + "'"};
    any_gate.emplace();
  }
  const auto fits =
      hold::environment_of({any_tokens, fence::write_tag(any_tokens), "any", any_gate}, inherited_environment());
  if (!fits) return fits.error();
  std::signal(SIGPIPE, SIG_IGN);  // nobody may read what is said; the command gets it back
  if (!request.warm_up.empty())
    if (const auto failed = warm_up(request, wanted.times.stop_grace, err)) return *failed;
  auto job = hold::guarded_job::prepare();
  if (!job) return job.error();
  const auto ran = run(request, std::move(*job), err).of(plan->from, wanted);
  if (!request.elect || ran.told_to_end || ran.end.what != outcome::lost) return ran.end;
  say(err, "it is a candidate again");
  return error{become_self()};
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
