#include "gate/postgres/pg_session.hpp"

#include "backend/pg_tls.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::gate {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

// Of a message that is read in one piece, and then some that follow it.
constexpr std::size_t read_ahead_bytes = 64 * 1024;

}  // namespace

pg_session::pg_session(pg_shard& shard, client_link client, session_ended ended, bound_tag tag)
    : relay_session(shard.context, shard.sockets, shard.tls, std::move(client), std::move(ended), shard.stats),
      shard_(shard),
      tag_(std::move(tag)),
      engine_(*this, shard.gate, shard.stats, *tag_),
      timer_(shard.context),
      began_(std::chrono::steady_clock::now()),
      last_heard_(began_) {
  if (is_secured()) engine_.on_secured();
}

// ── the link ────────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_session::connect(const std::string& cancels) {
  link_ = link::connecting;
  began_ = now();
  auto begin = [self = shared_from_this(), this, mine = attempt(), cancels] {
    if (closed_ || mine != attempt()) return;
    // One whose session is not of this gate is left to the first server that answers: it may be another gate's.
    const auto only = cancels.empty() ? std::nullopt : shard_.cancels->find(cancels);
    if (only) tls_ = only->tls;
    const auto targets = only ? std::vector{only->server} : shard_.control->endpoints();
    if (targets.empty()) return on_connect_failed(shard_.control->why_unresolved());
    auto on_connected = [this](const result<void>& linked) {
      if (!linked) return on_connect_failed(linked.error().message);
      link_ = link::open;
      engine_.on_connected();
      after_event();
    };
    dial(targets, std::move(on_connected));
  };
  asio::post(shard_.context, std::move(begin));
}

void pg_session::secure(const std::shared_ptr<stream::socket>& fresh, const backend::tls_opened& done) {
  backend::start_pg_tls(fresh, *tls_, done);
}

void pg_session::on_connect_failed(const std::string& why) {
  drop_link();
  shard_.stats.rejected(metrics::connection_rejection::backend).add();
  engine_.on_unreachable(why);
  after_event();
}

void pg_session::has_key(const std::string& key) {
  forget_key();
  key_ = key;
  shard_.cancels->add(key_, {linked_to(), tls_});
}

void pg_session::forget_key() {
  if (!key_.empty()) shard_.cancels->remove(std::exchange(key_, {}));
}

void pg_session::drop_link() {
  forget_key();
  hang_up();
  link_ = link::none;
}

// ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────

bool pg_session::wants_client() const {
  if (client_.ended || engine_.closing()) return false;
  if (backend_.unsent(engine_.to_backend) > limits::output_high_water_bytes) return false;
  // Also while a message waits for something else: so a client that leaves is noticed.
  const std::size_t message = std::max(engine_.gathers(), limits::pg_statement_buffered_bytes_max);
  const std::size_t most = (engine_.blocked() ? 0 : message) + read_ahead_bytes;
  return engine_.from_client.size() < most;
}

bool pg_session::wants_backend() const {
  if (link_ != link::open || backend_.ended || engine_.closing()) return false;
  if (engine_.from_backend.size() > limits::pg_inspected_bytes_max + read_ahead_bytes) return false;
  return has_room(engine_.to_client);
}

void pg_session::on_client_bytes(std::string_view bytes) {
  last_heard_ = read_at_;
  engine_.from_client.append(bytes);
  engine_.on_client_bytes();
}

void pg_session::on_backend_bytes(std::string_view bytes) {
  const bool busy = !engine_.at_rest();
  engine_.from_backend.append(bytes);
  engine_.on_backend_bytes();
  if (busy) last_heard_ = now();  // a client that waited for an answer was not idle
}

void pg_session::on_end(peer& of, const boost::system::error_code& why) {
  if (&of == &backend_) {
    if (why.category() == backend::tls_category())
      log::write(log::level::warn, "link to the server broke", {{"gate", shard_.gate.name}, {"error", why.message()}});
    return engine_.on_backend_end();
  }
  // A client that has gone takes its session with it, as on the server itself: an open transaction is rolled back.
  // But one that asked for a cancel and did not wait has asked.
  if (!engine_.cancels()) close();
}

// ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_session::after_event() {
  if (closed_) return;
  // The server's session ends at once, with whatever it holds; a message that is not whole is never made whole.
  const bool gone = engine_.closing() || engine_.parting();
  if (gone && link_ != link::none) drop_link();
  // While the client waits for an arm, what goes out is the gate's.
  if (link_ == link::open && !backend_.ended) send_on(engine_.to_backend, !engine_.blocked());
  if (!send_to_client(engine_.to_client)) return close();
  if (engine_.closing() && engine_.to_client.empty()) return close();
  if (engine_.parting()) wait_in_room();
  engine_.from_client.release();
  engine_.from_backend.release();
  read_on();
}

// What it has of a place is not given back when it speaks: its connection ends then.
void pg_session::wait_in_room() {
  if (place_ != 0) return;
  auto make_room = [self = std::weak_ptr(shared_from_this()), this, &context = shard_.context] {
    auto leave = [self, this] {
      const auto alive = self.lock();
      if (alive == nullptr || closed_) return;
      engine_.give_up();
      after_event();
    };
    asio::post(context, std::move(leave));
  };
  place_ = shard_.waiting->enter(std::move(make_room));
}

// ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_session::on_tick(time_point at) {
  if (closed_) return;
  const auto& times = shard_.gate.limits_time;
  if (link_ == link::connecting && over(began_, times.connect, at))
    return on_connect_failed("connecting took too long");
  if (client_.stalled() && over(client_.stalled_since, times.write, at)) return close();
  if (backend_.stalled() && over(backend_.stalled_since, times.write, at)) return close();
  if (engine_.opening() && link_ != link::connecting && over(began_, times.head, at)) return close();
  if (!engine_.idles() || !over(last_heard_, times.idle, at)) return;
  engine_.end_idle();
  after_event();
}

bool pg_session::announce_end() {
  engine_.announce_end();
  after_event();
  return true;
}

void pg_session::drain() {
  engine_.drain();
  after_event();
}

void pg_session::cut() {
  if (closed_) return;
  engine_.lose_lease();
  after_event();
}

void pg_session::on_close() {
  if (place_ != 0) shard_.waiting->leave(place_);
  *left_ = true;
  forget_key();
  timer_.cancel();
}

// ── what the engine asks ────────────────────────────────────────────────────────────────────────────────────────────

void pg_session::ended(const std::string& database, std::int32_t pid,
                       std::function<void(std::optional<std::vector<backend::ended_registration>>)> done) {
  shard_.control->ended(shard_.context, database, pid, later(std::move(done)));
}

void pg_session::look(const std::string& database, const claims_list& claims,
                      std::function<void(std::optional<backend::found_marks>)> done) {
  shard_.control->look(shard_.context, database, claims, later(std::move(done)));
}

void pg_session::raise(const std::string& database, const claims_list& claims,
                       std::function<void(backend::pg_raise_result)> done) {
  shard_.control->raise(shard_.context, database, claims, left_, later(std::move(done)));
}

void pg_session::raise_ahead(const std::string& database, const claims_list& claims,
                             std::function<void(backend::pg_raise_result)> done) {
  shard_.control->raise_ahead(shard_.context, database, claims, later(std::move(done)));
}

std::optional<fence::token> pg_session::seen(const std::string& database, const std::string& resource) const {
  return shard_.control->seen(database, resource);
}

void pg_session::saw(const std::string& database, const backend::found_mark& found) {
  shard_.control->saw(database, found);
}

void pg_session::went_back(const std::string& database, const backend::found_mark& to) {
  shard_.control->went_back(database, to);
}

void pg_session::set_timer(milliseconds delay) {
  timer_.expires_after(delay);
  auto on_time = [wake = later([this] { engine_.on_timer(); })](const boost::system::error_code& cancelled) {
    if (!cancelled) wake();
  };
  timer_.async_wait(std::move(on_time));
}

void pg_session::report(const fence::rejection& why, std::string_view command, bool monitor) {
  shard_.stats.checks(outcome_of(why.why)).add();
  shard_.rejections.report(shard_.gate.name, why, client_address_, command, now(), monitor);
}

void pg_session::report_cut(const fence::rejection& why, applied certain) {
  shard_.rejections.report_cut(shard_.gate.name, why, client_address_, now());
  // Who raises counts the armed sessions that it ended, but does not learn how many held on to the lock of a guard.
  if (shard_.gate.kept_by == settings::guard::transaction) shard_.stats.sessions_cut_total.add();
  log::event event;
  event.add("gate", shard_.gate.name).add("resource", why.resource).add("token", why.presented).add("mark", why.mark);
  event.add("client", client_address_).add("applied", certain == applied::no ? "no" : "unknown");
  event.write(log::level::warn, "session ended by a higher token");
}

}  // namespace fencegate::gate
