#include "gate/redis/redis_key_watch.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"
#include "wire/resp_reply.hpp"
#include "wire/resp_request.hpp"

#include <boost/asio/error.hpp>

#include <string_view>

namespace fencegate::gate {

bool redis_key_watch::wait(key_waiter& who, int database, const std::vector<std::string>& keys) {
  if (!up_) open();
  const bool watched = waiters_.wait(who, database, keys);
  if (up_) backend_.socket.again();  // what follows from it comes behind the caller's own event
  return watched;
}

void redis_key_watch::leave(key_waiter& who) {
  waiters_.leave(who);
  if (up_) backend_.socket.again();
}

// ── the link ────────────────────────────────────────────────────────────────────────────────────────────────────────

void redis_key_watch::open() {
  const auto at = std::chrono::steady_clock::now();
  if (opening_ || closed_ || at < not_before_ || shard_.snapshot.endpoints.empty()) return;
  opening_ = true;
  opened_ = at;
  dial(shard_.snapshot.endpoints, [this](const result<void>& connected) {
    if (!connected) return fail(connected.error().message);
    greet();
    after_event();
  });
}

void redis_key_watch::greet() {
  const auto& own = shard_.state->gate.control;
  const auto password = own.password.text();
  std::vector<std::string_view> hello{"HELLO", "3"};
  if (!password.empty())
    hello.insert(hello.end(), {"AUTH", own.user.empty() ? std::string_view("default") : own.user, password});
  wire::append_command(out_, hello);
  wire::append_command_of(out_, std::string_view("CLIENT"), std::string_view("TRACKING"), std::string_view("ON"));
  awaited_ = {answer_to::greeting, answer_to::tracking};
}

void redis_key_watch::fail(std::string_view why) {
  log::write(log::level::info, "keys are not watched for clients that wait; they look again and again",
             {{"gate", shard_.state->gate.name}, {"detail", why}});
  opening_ = up_ = false;
  not_before_ = std::chrono::steady_clock::now() + limits::key_watch_pause;
  hang_up();
  in_ = byte_queue{};
  out_.clear();
  awaited_.clear();
  database_ = 0;
  waiters_.on_lost();
  while (auto* who = waiters_.next_woken()) who->on_key();
}

void redis_key_watch::on_tick(time_point at) {
  const auto& times = shard_.state->gate.limits_time;
  const auto self = shared_from_this();
  if (opening_ && over(opened_, times.connect, at)) return fail("it took too long");
  if (up_ && !awaited_.empty() && over(moved_, times.connect, at)) return fail("no answer");
}

void redis_key_watch::stop() {
  closed_ = true;
  hang_up();
}

// ── what Redis says ─────────────────────────────────────────────────────────────────────────────────────────────────

void redis_key_watch::on_ready() {
  if (closed_) return;
  const auto self = shared_from_this();
  if (backend_.socket.readable()) read();
  after_event();
}

void redis_key_watch::read() {
  boost::system::error_code failed;
  const auto room = shard_.sockets.scratch();
  const std::size_t bytes = backend_.socket.receive(room, failed);
  if (failed == boost::asio::error::would_block) return;
  if (failed) return fail("Redis has closed the connection");
  in_.append({room.data(), bytes});
  const std::uint64_t mine = attempt();
  while (!in_.empty()) {
    const auto parsed = wire::parse_value(in_.view());
    if (parsed.has_error() || in_.size() > limits::command_buffered_bytes_max) return fail("not an answer");
    if (!*parsed) break;
    take((*parsed)->first);
    if (mine != attempt()) return;
    in_.consume((*parsed)->second);
  }
  in_.release();
}

void redis_key_watch::take(const wire::reply_value& said) {
  if (said.type == '>') {
    if (said.elements.size() != 2 || said.elements[0].text != "invalidate") return;
    if (said.elements[1].null) return waiters_.on_all_touched();
    for (const auto& key : said.elements[1].elements) waiters_.on_touched(key.text);
    return;
  }
  if (awaited_.empty()) return fail("an answer to nothing");
  const auto what = awaited_.front();
  awaited_.pop_front();
  moved_ = std::chrono::steady_clock::now();
  const bool refused = said.type == '-' || said.type == '!';
  if (what == answer_to::question) return refused ? waiters_.on_refusal() : waiters_.on_answer(said.text == "1");
  if (refused) return fail(said.text);
  if (what != answer_to::tracking) return;
  opening_ = false;
  up_ = true;
  waiters_.on_up();
}

void redis_key_watch::after_event() {
  if (closed_ || !backend_.socket.is_open()) return;
  for (const auto& [key, database] : waiters_.take_questions()) {
    if (awaited_.empty()) moved_ = std::chrono::steady_clock::now();
    if (database != database_) {
      wire::append_command_of(out_, std::string_view("SELECT"), std::to_string(database));
      awaited_.push_back(answer_to::select);
      database_ = database;
    }
    wire::append_command_of(out_, std::string_view("EXISTS"), key);
    awaited_.push_back(answer_to::question);
  }
  send_to_backend(out_);
  while (auto* who = waiters_.next_woken()) who->on_key();
  if (backend_.socket.is_open() && backend_.socket.readable()) backend_.socket.again();
}

}  // namespace fencegate::gate
