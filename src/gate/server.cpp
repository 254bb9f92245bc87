#include "gate/server.hpp"

#include "base/log.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <sys/stat.h>
#include <sys/un.h>

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <unordered_set>
#include <utility>

namespace fencegate::gate {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

constexpr milliseconds tick_interval{500};
// Out of file descriptors: pause instead of spinning.
constexpr milliseconds accept_pause{100};

std::string text_of(const settings::address& a) {
  if (a.is_unix()) return "unix:" + a.path;
  return (a.host.find(':') != std::string::npos ? "[" + a.host + "]" : a.host) + ":" + std::to_string(a.port);
}

std::string text_of(const stream::endpoint& from) {
  if (from.protocol().family() == AF_UNIX) return "unix";
  asio::ip::tcp::endpoint tcp;
  if (from.size() > tcp.capacity()) return "?";
  std::memcpy(tcp.data(), from.data(), from.size());
  tcp.resize(from.size());
  const std::string host = tcp.address().to_string();
  return (tcp.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(tcp.port());
}

// A socket file that nobody listens on was left behind by a process that was killed.
bool remove_stale_socket(asio::io_context& context, const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return true;
  if (!S_ISSOCK(info.st_mode)) return false;
  stream::socket probe(context);
  boost::system::error_code failed;
  const stream::endpoint target{asio::local::stream_protocol::endpoint(path)};
  probe.connect(target, failed);
  if (failed != asio::error::connection_refused) return false;
  return ::unlink(path.c_str()) == 0;
}

}  // namespace

struct server::shard {
  shard(asio::io_context& io, std::unique_ptr<protocol_shard> spoken)
      : context(io), common(std::move(spoken)), ticker(io) {}

  asio::io_context& context;
  std::unique_ptr<protocol_shard> common;
  std::unordered_set<std::shared_ptr<session>> sessions;
  asio::steady_timer ticker;
  bool draining = false;
};

server::server(workers& threads, place where, std::unique_ptr<protocol> spoken, metrics::gate& figures,
               rejection_log& rejections)
    : workers_(threads),
      place_(std::move(where)),
      protocol_(std::move(spoken)),
      figures_(figures),
      rejections_(rejections),
      acceptor_(threads.context(0)),
      accept_pause_(threads.context(0)) {
  for (std::size_t i = 0; i < threads.size(); ++i)
    shards_.push_back(std::make_unique<shard>(threads.context(i), protocol_->make_shard(threads.context(i))));
}

// REQUIRES: the workers have stopped.
server::~server() {
  for (auto& s : shards_) {
    const auto left = s->sessions;
    for (const auto& one : left) one->close();
    s->common->stop();
  }
  if (place_.listen.is_unix()) ::unlink(place_.listen.path.c_str());
}

result<void> server::start() {
  if (auto listening = listen(); listening.has_error()) return listening;
  // Until it is known whether the backend answers, clients wait in the kernel's queue. What the workers' queues still
  // hold is let go after the server's end: when another gate could not start, or the backend never answered.
  std::shared_ptr<void> unsettled(nullptr, [this, alive = std::weak_ptr(alive_)](void*) {
    if (!alive.expired()) asio::post(workers_.context(0), [this] { accept(); });
  });
  for (auto& s : shards_) {
    asio::post(s->context, [this, unsettled, raw = s.get()]() mutable {
      raw->common->start(std::move(unsettled));
      tick(*raw);
    });
  }
  log::write(log::level::info, "listening", {{"gate", place_.name}, {"address", text_of(place_.listen)}});
  return {};
}

result<void> server::listen() {
  const std::string where = text_of(place_.listen);
  std::vector<stream::endpoint> endpoints;
  boost::system::error_code failed;
  if (place_.listen.is_unix()) {
    if (place_.listen.path.size() >= sizeof(sockaddr_un::sun_path))
      return error{"gate " + place_.name + ": " + where + ": the path is too long for a unix socket"};
    if (!remove_stale_socket(workers_.context(0), place_.listen.path))
      return error{"gate " + place_.name + ": " + where + " is in use or is not a socket"};
    endpoints.emplace_back(asio::local::stream_protocol::endpoint(place_.listen.path));
  } else {
    asio::ip::tcp::resolver resolver(workers_.context(0));
    const auto found = resolver.resolve(place_.listen.host, std::to_string(place_.listen.port),
                                        asio::ip::tcp::resolver::passive, failed);
    for (const auto& one : found) endpoints.emplace_back(one.endpoint());
  }
  if (!failed && endpoints.empty()) failed = asio::error::host_not_found;
  if (!failed) acceptor_.open(endpoints[0].protocol(), failed);
  if (!failed && !place_.listen.is_unix()) acceptor_.set_option(acceptor::reuse_address(true), failed);
  if (!failed) acceptor_.bind(endpoints[0], failed);
  if (!failed) acceptor_.listen(acceptor::max_listen_connections, failed);
  if (failed) return error{"gate " + place_.name + ": cannot listen on " + where + ": " + failed.message()};
  return {};
}

void server::accept() {
  if (!accepting_) return;
  auto from = std::make_shared<stream::endpoint>();
  auto on_accepted = [this, from](const boost::system::error_code& failed, stream::socket socket) {
    if (failed == asio::error::operation_aborted) return;
    if (failed) {
      log::write(log::level::warn, "accept failed", {{"gate", place_.name}, {"detail", failed.message()}});
      accept_pause_.expires_after(accept_pause);
      auto again = [this](const boost::system::error_code& cancelled) {
        if (!cancelled) accept();
      };
      accept_pause_.async_wait(again);
      return;
    }
    welcome(std::move(socket), *from);
    accept();
  };
  acceptor_.async_accept(workers_.context(next_ % workers_.size()), *from, std::move(on_accepted));
}

void server::welcome(stream::socket socket, const stream::endpoint& from) {
  if (figures_.connections.value() >= static_cast<std::int64_t>(place_.connections_max)) return turn_away(socket);
  figures_.connections.add(1);
  figures_.connections_total.add();
  shard& target = *shards_[next_++ % shards_.size()];
  auto begin = [this, &target, address = text_of(from), client = std::move(socket)]() mutable {
    auto ended = [this, &target](const std::shared_ptr<session>& one) {
      target.sessions.erase(one);
      figures_.connections.add(-1);
    };
    const auto opened = target.common->open(std::move(client), std::move(address), ended);
    target.sessions.insert(opened);
    opened->start();
    if (target.draining) opened->drain();
  };
  asio::post(target.context, std::move(begin));
}

void server::turn_away(stream::socket& socket) {
  figures_.rejected(metrics::connection_rejection::limit).add();
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  const std::string why = protocol_->too_many_clients();
  socket.write_some(asio::buffer(why), ignored);
  socket.shutdown(stream::socket::shutdown_send, ignored);
}

void server::tick(shard& s) {
  s.ticker.expires_after(tick_interval);
  auto on_tick = [this, &s](const boost::system::error_code& cancelled) {
    if (cancelled) return;
    const auto now = std::chrono::steady_clock::now();
    const std::vector<std::shared_ptr<session>> all(s.sessions.begin(), s.sessions.end());
    for (const auto& one : all) one->on_tick(now);
    rejections_.write_due(now);
    tick(s);
  };
  s.ticker.async_wait(on_tick);
}

void server::stop_accepting() {
  asio::post(workers_.context(0), [this] {
    accepting_ = false;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    // Behind what was accepted before.
    for (auto& s : shards_) asio::post(s->context, [raw = s.get()] { raw->draining = true; });
    drain();
  });
}

void server::drain() {
  for (auto& s : shards_) {
    asio::post(s->context, [raw = s.get()] {
      const auto all = raw->sessions;
      for (const auto& one : all) one->drain();
    });
  }
}

}  // namespace fencegate::gate
