#include "gate/relay/server.hpp"

#include "base/log.hpp"
#include "gate/relay/server_shard.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <sys/resource.h>
#include <sys/socket.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

namespace fencegate::gate {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

constexpr milliseconds tick_interval{500};
// When accepting fails: pause instead of spinning.
constexpr milliseconds accept_pause{100};
// When nobody is accepted any more, the last ones have this long to ask for something, and then to be told with it.
constexpr milliseconds next_request_within{1'000};
constexpr std::string_view no_files = "no file descriptor is left";

std::string text_of(const stream::endpoint& from) {
  if (from.protocol().family() == AF_UNIX) return "unix";
  asio::ip::tcp::endpoint tcp;
  if (from.size() > tcp.capacity()) return "?";
  std::memcpy(tcp.data(), from.data(), from.size());
  tcp.resize(from.size());
  const std::string host = tcp.address().to_string();
  return (tcp.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(tcp.port());
}

// Of file descriptors, the process's or the system's.
bool is_shortage(const boost::system::error_code& failed) {
  return failed == boost::system::errc::too_many_files_open ||
         failed == boost::system::errc::too_many_files_open_in_system;
}

// The kernel gives the lowest number that is free: as many are in use as a new one says. A client wants a second one for
// its backend, and the process some for itself.
bool is_among_the_last(int descriptor) {
  constexpr rlim_t kept_most = 16, kept_part = 8;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return false;
  return static_cast<rlim_t>(descriptor) + std::min(kept_most, files.rlim_cur / kept_part) >= files.rlim_cur;
}

}  // namespace

server::server(workers& threads, place where, std::unique_ptr<protocol> spoken, metrics::gate& stats,
               rejection_log& rejections)
    : workers_(threads),
      place_(std::move(where)),
      protocol_(std::move(spoken)),
      stats_(stats),
      rejections_(rejections),
      acceptor_(threads.context(0)),
      accept_pause_(threads.context(0)),
      drain_timer_(threads.context(0)),
      tag_(std::make_shared<fence::claims_list>(place_.tag)),
      shares_(place_.leased.wanted() || !place_.tag.empty()
                  ? nullptr
                  : std::make_shared<connection_shares>(place_.name, place_.connections_max)),
      waiting_timer_(threads.context(0)) {
  if (place_.shown.wanted())
    tls_.emplace(place_.shown, "gate", place_.name, std::string(protocol_->tls_name()), stats_.tls_files_refused_total);
  if (place_.leased.wanted()) door_.emplace(place_.leased, place_.monitors, calls_of_door());
  for (std::size_t i = 0; i < threads.size(); ++i)
    shards_.push_back(std::make_unique<shard>(threads.context(i), protocol_->make_shard(threads.context(i))));
}

server::~server() {
  if (const auto used = use_.lock()) used->over = nullptr;
  for (auto& s : shards_) {
    if (s->stopped) continue;
    const auto left = s->sessions;
    for (const auto& one : left) one->close();
    s->common->stop();
  }
}

result<void> server::start(const server* before, std::function<void()> settled, bool beside) {
  live_ = settled == nullptr;
  if (tls_)
    if (const auto loaded = tls_->load(); !loaded) return error{"gate " + place_.name + ": " + loaded.error().message};
  auto listening = before ? listen_on(before->listener_->again(before->listening_))
                          : listen_on(listening_socket::open(place_.listen, {}, beside));
  if (listening.has_error()) return listening;
  // Until it is known whether the backend answers, clients wait in the kernel's queue. What the workers' queues still
  // hold is let go after the server's end: when another gate could not start, or the backend never answered.
  auto begin = [this, alive = std::weak_ptr(alive_), settled = std::move(settled)] {
    if (alive.expired()) return;
    settled_ = true;
    if (live_) accept();
    if (settled) settled();
  };
  std::shared_ptr<void> unsettled(
      nullptr, [&first = workers_.context(0), alive = std::weak_ptr(alive_), begin = std::move(begin)](void*) {
        if (!alive.expired()) asio::post(first, begin);
      });
  for (auto& s : shards_) {
    asio::post(s->context, [this, unsettled, raw = s.get()]() mutable {
      raw->common->start(std::move(unsettled));
      tick(*raw);
    });
  }
  log::write(log::level::info, "listening", {{"gate", place_.name}, {"address", to_string(place_.listen)}});
  return {};
}

result<void> server::listen(std::optional<::mode_t> mode) {
  return listen_on(listening_socket::open(place_.listen, mode));
}

result<void> server::listen_on(result<listening_socket> opened) {
  if (!opened) return error{"gate " + place_.name + ": " + opened.error().message};
  listener_.emplace(std::move(*opened));
  listening_ = listener_->release();
  boost::system::error_code failed;
  acceptor_.assign(stream(listener_->family(), 0), listening_, failed);
  if (failed) return error{"gate " + place_.name + ": " + failed.message()};
  return {};
}

// Not by closing the acceptor: where another server has the same socket, the kernel would go on to tell Asio of it.
void server::stop_listening() {
  accepting_ = false;
  accept_pause_.cancel();
  boost::system::error_code failed;
  if (!acceptor_.is_open()) return;
  const int socket = acceptor_.release(failed);
  if (!failed) ::close(socket);
}

void server::accept() {
  if (!accepting_) return;
  auto from = std::make_shared<stream::endpoint>();
  auto on_accepted = [this, from, number = listener_number_](const boost::system::error_code& failed,
                                                             stream::socket socket) {
    // One from the queue of a socket that was given up goes with it.
    if (failed == asio::error::operation_aborted || number != listener_number_) return;
    if (failed) {
      if (is_shortage(failed) && turn_one_away()) return accept();
      log::write(log::level::warn, "accept failed", {{"gate", place_.name}, {"detail", failed.message()}});
      accept_pause_.expires_after(accept_pause);
      auto again = [this, number](const boost::system::error_code& cancelled) {
        if (!cancelled && number == listener_number_) accept();
      };
      accept_pause_.async_wait(again);
      return;
    }
    welcome(std::move(socket), *from);
    accept();
  };
  acceptor_.async_accept(workers_.context(next_ % workers_.size()), *from, std::move(on_accepted));
}

// What has connected already would be reset by a close.
void server::accept_last() {
  if (!settled_ || !live_ || !accepting_) return;
  boost::system::error_code failed;
  acceptor_.non_blocking(true, failed);
  while (!failed) {
    stream::endpoint from;
    stream::socket socket(workers_.context(next_ % workers_.size()));
    acceptor_.accept(socket, from, failed);
    if (!failed) welcome(std::move(socket), from);
  }
}

void server::welcome(stream::socket socket, const stream::endpoint& from) {
  auto one = admit(std::move(socket), from, tls_.has_value());
  if (!one) return;
  if (!door_) return serve(std::move(*one), tag_);
  door_->arrive(std::move(*one), std::chrono::steady_clock::now());
  look_after_waiting();
}

// nullopt: it was turned away.
std::optional<server::arrival> server::admit(stream::socket socket, const stream::endpoint& from, bool secure) {
  const auto refuse = [&](metrics::connection_rejection counted, const std::string& why) {
    turn_away(socket.native_handle(), counted, why);
    return std::nullopt;
  };
  if (stats_.connections.value() >= static_cast<std::int64_t>(place_.connections_max))
    return refuse(metrics::connection_rejection::limit, "connections_max of gate " + place_.name);
  if (is_among_the_last(socket.native_handle())) {
    stats_.files_short.note();
    return refuse(metrics::connection_rejection::files, std::string(no_files));
  }
  stats_.connections.add(1);
  stats_.connections_total.add();
  return arrival{std::move(socket), text_of(from), next_++ % shards_.size(), secure};
}

void server::take_over(int socket, bound_tag tag) {
  asio::post(workers_.context(0), [this, socket, tag = std::move(tag)] {
    stream::endpoint from;
    auto bytes = static_cast<::socklen_t>(from.capacity());
    stream::socket taken(workers_.context(next_ % workers_.size()));
    boost::system::error_code failed;
    if (::getpeername(socket, from.data(), &bytes) == 0) from.resize(std::min<std::size_t>(bytes, from.capacity()));
    taken.assign(stream(from.protocol().family(), 0), socket, failed);
    if (failed) ::close(socket);
    if (failed || !settled_ || !accepting_) return;
    if (auto one = admit(std::move(taken), from, false)) serve(std::move(*one), tag);
  });
}

// Its session begins on its own thread.
void server::open(arrival one, session_maker make) {
  shard& target = *shards_[one.shard];
  auto on_thread = [this, &target, used = kept_use(used_), make = std::move(make), given = std::move(one)]() mutable {
    client_link client{std::move(given.socket), std::move(given.from)};
    if (given.secure) return secure(target, std::move(client), std::move(make), used);
    begin(target, std::move(client), make, used);
  };
  asio::post(target.context, std::move(on_thread));
}

void server::begin(shard& at, client_link client, const session_maker& make, const kept_use& used) {
  auto ended = [this, &at](const std::shared_ptr<session>& gone) {
    at.sessions.erase(gone);
    stats_.connections.add(-1);
  };
  const auto opened = make(at, std::move(client), ended);
  opened->keep(used);
  opened->count_among(shares_);
  at.sessions.insert(opened);
  opened->start();
  if (at.draining) return opened->drain();
  if (at.announced) static_cast<void>(opened->announce_end());
}

void server::serve(arrival one, bound_tag tag) {
  open(std::move(one), [tag = std::move(tag)](shard& at, client_link client, const session_ended& ended) {
    return at.common->open(std::move(client), ended, tag);
  });
}

void server::turn_away(int socket, metrics::connection_rejection counted, const std::string& why) {
  stats_.rejected(counted).add();
  const std::string words = tls_ ? "" : protocol_->turned_away(why);
  static_cast<void>(::send(socket, words.data(), words.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  ::shutdown(socket, SHUT_WR);
}

// False: there is nobody, or not even the spare descriptor could be had.
bool server::turn_one_away() {
  stats_.files_short.note();
  spare_.give_up();
  const int socket = ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (socket >= 0) {
    turn_away(socket, metrics::connection_rejection::files, std::string(no_files));
    ::close(socket);
  }
  spare_.take();
  return socket >= 0;
}

void server::tick(shard& s) {
  s.ticker.expires_after(tick_interval);
  auto on_tick = [this, &s](const boost::system::error_code& cancelled) {
    if (cancelled || s.stopped) return;
    const auto now = std::chrono::steady_clock::now();
    const std::vector<std::shared_ptr<session>> all(s.sessions.begin(), s.sessions.end());
    for (const auto& one : all) one->on_tick(now);
    rejections_.write_due(now);
    tick(s);
  };
  s.ticker.async_wait(on_tick);
}

void server::stop_accepting() {
  const auto used = in_use();
  if (!used) return;
  asio::post(workers_.context(0), [this, used] {
    accept_last();
    stop_listening();
    if (door_) door_->drop_waiting();
    // What was accepted last has had no time yet to ask for anything, and is then told as those before it were.
    after(next_request_within, [this] {
      drain();
      after(next_request_within, [this] { end_all(); });
    });
  });
}

// REQUIRES: one at a time.
void server::after(milliseconds pause, std::function<void()> next) {
  drain_timer_.expires_after(pause);
  auto then = [use = use_, next = std::move(next)](const boost::system::error_code& cancelled) {
    if (cancelled) return;
    if (const auto used = use.lock()) next();
  };
  drain_timer_.async_wait(std::move(then));
}

void server::drain() {
  tell_all([](shard& s, const std::vector<std::shared_ptr<session>>& all) {
    s.announced = true;
    for (const auto& one : all)
      if (!one->announce_end()) one->drain();
  });
}

void server::end_all() {
  tell_all([](shard& s, const std::vector<std::shared_ptr<session>>& all) {
    s.draining = true;
    for (const auto& one : all) one->drain();
  });
}

// On the thread of each shard, with its sessions, some of which may leave meanwhile.
void server::tell_all(void (*tell)(shard&, const std::vector<std::shared_ptr<session>>&)) {
  const auto used = in_use();
  if (!used) return;
  for (auto& s : shards_) {
    asio::post(s->context, [used, tell, raw = s.get()] { tell(*raw, {raw->sessions.begin(), raw->sessions.end()}); });
  }
}

// ── another server in its place ─────────────────────────────────────────────────────────────────────────────────────

void server::go_live(server* before) {
  if (before) listener_->take_file(*before->listener_);
  asio::post(workers_.context(0), [this, before] {
    if (before) before->succeeded_ = true;
    live_ = true;
    accept();
  });
}

void server::retire(std::function<void()> over) {
  used_->over = [this, over = std::move(over)] { end(over); };
  asio::post(workers_.context(0), [this] {
    if (!succeeded_) accept_last();
    stop_listening();
    listener_.reset();  // and the file of its socket, if it is still its own
    // Behind those that were accepted already, which are served.
    asio::post(workers_.context(0), [this] { used_.reset(); });
  });
}

// There is no connection, and none will come. What ends on one thread may leave something in its queue that names this
// server: it has gone when what is queued behind it is called.
void server::end(const std::function<void()>& over) {
  const auto left = std::make_shared<std::atomic<std::size_t>>(shards_.size());
  for (auto& s : shards_) {
    auto on_thread = [this, raw = s.get(), left, over] {
      if (raw == shards_.front().get()) alive_.reset();  // on whose thread it is asked for
      raw->stopped = true;
      raw->ticker.cancel();
      raw->common->stop();
      asio::post(raw->context, [left, over] {
        if (left->fetch_sub(1) == 1) over();
      });
    };
    asio::post(s->context, std::move(on_thread));
  }
}

}  // namespace fencegate::gate
