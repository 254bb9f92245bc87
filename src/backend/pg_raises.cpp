#include "backend/pg_raises.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::backend {
namespace {

constexpr std::chrono::milliseconds line_interval{250};
// Connections. All but one are closed when they are not needed.
constexpr std::size_t workers_max = 16;
// While more of them than this are at it, a raise that begins waits no longer than a turn for sessions that may be impossible to
// end. So others wait for a turn, however many are stuck.
constexpr std::size_t patient_max = workers_max / 2;
constexpr std::chrono::milliseconds turn{500};

wire::pg_error not_begun(std::string why) { return {"ERROR", {}, std::move(why), {}, {}}; }

template <typename Worker>
bool is_free(const Worker& one) {
  return !one->connecting && !one->under_way;
}

}  // namespace

pg_raises::pg_raises(boost::asio::io_context& context, patience most, address how)
    : context_(context), most_(most), how_(std::move(how)), timer_(context) {}

void pg_raises::raise(const claims& wanted, raise_statements statements, has_left left, pg_answer done) {
  if (closed_) return done(not_begun("the gate is stopping"));
  const auto until = std::chrono::steady_clock::now() + most_.in_line;
  if (line_.add({wanted, std::move(statements), std::move(left), std::move(done), until})) go_on();
  if (!line_.empty()) watch_time();
}

void pg_raises::close(const std::string& why) {
  closed_ = true;
  timer_.cancel();
  fail_all(why);
  for (const auto& one : std::exchange(workers_, {})) one->link->close(why);
}

// Begins what can begin, as far as there are connections.
void pg_raises::go_on() {
  while (!closed_ && !line_.empty()) {
    const auto by = std::find_if(workers_.begin(), workers_.end(), [](const auto& one) { return is_free(one); });
    if (by == workers_.end()) return add_worker();
    const auto keeps = *by;
    auto one = line_.next();
    if (!one) return;
    begin(keeps, std::move(*one));
  }
}

void pg_raises::begin(const std::shared_ptr<worker>& by, raise_line::wish one) {
  const auto began = std::chrono::steady_clock::now();
  if (one.turns == 0) one.until = began + most_.for_holders;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(one.until - began);
  const bool has_turns = few_are_left() && left > turn;
  const auto waits = has_turns ? turn : std::max(left, std::chrono::milliseconds(1));
  auto statements = one.statements(waits);
  by->under_way = std::move(one);
  auto answered = [self = shared_from_this(), by, has_turns, over = began + turn](const pg_result& rows) {
    // What it says sooner has another reason, which waiting does not mend.
    const bool is_over = has_turns && std::chrono::steady_clock::now() >= over;
    self->on_answered(*std::exchange(by->under_way, {}), is_over, rows);
  };
  by->link->transaction(std::move(statements), std::move(answered));
}

void pg_raises::on_answered(raise_line::wish one, bool turn_is_over, const pg_result& rows) {
  constexpr std::string_view unavailable = "ZF006";
  if (turn_is_over && !closed_ && !rows && rows.error().sqlstate == unavailable) {
    one.why_not = rows.error();
    line_.again(std::move(one));
    watch_time();
  } else {
    line_.ended(one.wanted);
    one.done(rows);
  }
  auto go_on = [self = shared_from_this()] {
    self->go_on();
    self->let_go();
  };
  boost::asio::post(context_, std::move(go_on));
}

bool pg_raises::few_are_left() const {
  const auto busy = std::count_if(workers_.begin(), workers_.end(), [](const auto& one) { return !is_free(one); });
  return static_cast<std::size_t>(busy) >= patient_max;
}

// One that is free is kept for the next raise.
void pg_raises::let_go() {
  bool kept = false;
  const auto all = workers_;
  for (const auto& one : all)
    if (is_free(one) && std::exchange(kept, true)) one->link->close("it is not needed");
}

// One at a time.
void pg_raises::add_worker() {
  const auto connecting = [](const auto& one) { return one->connecting; };
  if (workers_.size() >= workers_max || std::any_of(workers_.begin(), workers_.end(), connecting)) return;
  const auto how = how_();
  if (!how) {
    if (workers_.empty()) fail_all("the server's address is not known");
    return;
  }
  const auto one = std::make_shared<worker>();
  one->link = std::make_shared<pg_link>(context_, most_.for_answer);
  workers_.push_back(one);
  one->link->on_closed([self = weak_from_this(), by = std::weak_ptr(one)](const std::string&) {
    const auto alive = self.lock();
    if (alive == nullptr) return;
    auto& all = alive->workers_;
    all.erase(std::remove(all.begin(), all.end(), by.lock()), all.end());
    boost::asio::post(alive->context_, [alive] { alive->go_on(); });
  });
  auto connected = [self = shared_from_this(), one](const result<void>& outcome) { self->on_connected(one, outcome); };
  one->link->connect(*how, std::move(connected));
}

void pg_raises::on_connected(const std::shared_ptr<worker>& by, const result<void>& outcome) {
  by->connecting = false;
  if (outcome) return go_on();
  workers_.erase(std::remove(workers_.begin(), workers_.end(), by), workers_.end());
  // Others that are up may do it; where there are none, nobody can.
  if (workers_.empty()) fail_all(outcome.error().message);
}

void pg_raises::fail_all(const std::string& why) {
  for (const auto& one : line_.all()) one.done(not_begun(why));
}

// Of those in line, while there are any.
void pg_raises::watch_time() {
  if (std::exchange(watched_, true)) return;
  timer_.expires_after(line_interval);
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
    self->watched_ = false;
    if (cancelled || self->closed_) return;
    for (const auto& one : self->line_.late(std::chrono::steady_clock::now()))
      one.done(one.why_not.value_or(not_begun("raises in front of this one did not end in time")));
    self->go_on();
    if (!self->line_.empty()) self->watch_time();
  });
}

}  // namespace fencegate::backend
