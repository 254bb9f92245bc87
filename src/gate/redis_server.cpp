#include "gate/redis_server.hpp"

#include "base/log.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <sys/stat.h>
#include <sys/un.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

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

std::string text_of(const backend::stream::endpoint& from) {
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
  backend::stream::socket probe(context);
  boost::system::error_code failed;
  const backend::stream::endpoint target{asio::local::stream_protocol::endpoint(path)};
  probe.connect(target, failed);
  if (failed != asio::error::connection_refused) return false;
  return ::unlink(path.c_str()) == 0;
}

}  // namespace

struct redis_server::shard {
  shard(asio::io_context& context, std::shared_ptr<backend::redis_state> state, rejection_log& rejections)
      : common(context, std::move(state), rejections), ticker(context) {}

  redis_shard common;
  std::unordered_set<std::shared_ptr<redis_session>> sessions;
  asio::steady_timer ticker;
  bool draining = false;
};

redis_server::redis_server(workers& threads, const settings::redis_gate& gate, metrics::gate& figures,
                           rejection_log& rejections)
    : workers_(threads),
      gate_(gate),
      figures_(figures),
      state_(std::make_shared<backend::redis_state>(gate, figures)),
      acceptor_(threads.context(0)),
      accept_pause_(threads.context(0)) {
  for (std::size_t i = 0; i < threads.size(); ++i)
    shards_.push_back(std::make_unique<shard>(threads.context(i), state_, rejections));
}

// REQUIRES: the workers have stopped.
redis_server::~redis_server() {
  for (auto& s : shards_) {
    const auto left = s->sessions;
    for (const auto& session : left) session->close();
    s->common.control->stop();
  }
  if (gate_.listen.is_unix()) ::unlink(gate_.listen.path.c_str());
}

result<void> redis_server::start() {
  const std::string where = text_of(gate_.listen);
  std::vector<backend::stream::endpoint> endpoints;
  boost::system::error_code failed;
  if (gate_.listen.is_unix()) {
    if (gate_.listen.path.size() >= sizeof(sockaddr_un::sun_path))
      return error{"gate " + gate_.name + ": " + where + ": the path is too long for a unix socket"};
    if (!remove_stale_socket(workers_.context(0), gate_.listen.path))
      return error{"gate " + gate_.name + ": " + where + " is in use or is not a socket"};
    endpoints.emplace_back(asio::local::stream_protocol::endpoint(gate_.listen.path));
  } else {
    asio::ip::tcp::resolver resolver(workers_.context(0));
    const auto found = resolver.resolve(gate_.listen.host, std::to_string(gate_.listen.port),
                                        asio::ip::tcp::resolver::passive, failed);
    for (const auto& one : found) endpoints.emplace_back(one.endpoint());
  }
  if (!failed && endpoints.empty()) failed = asio::error::host_not_found;
  if (!failed) acceptor_.open(endpoints[0].protocol(), failed);
  if (!failed && !gate_.listen.is_unix()) acceptor_.set_option(acceptor::reuse_address(true), failed);
  if (!failed) acceptor_.bind(endpoints[0], failed);
  if (!failed) acceptor_.listen(acceptor::max_listen_connections, failed);
  if (failed) return error{"gate " + gate_.name + ": cannot listen on " + where + ": " + failed.message()};
  for (auto& s : shards_) {
    asio::post(s->common.context, [this, raw = s.get()] {
      raw->common.control->start();
      tick(*raw);
    });
  }
  asio::post(workers_.context(0), [this] { accept(); });
  log::write(log::level::info, "listening", {{"gate", gate_.name}, {"address", where}});
  return {};
}

void redis_server::accept() {
  auto from = std::make_shared<backend::stream::endpoint>();
  auto on_accepted = [this, from](const boost::system::error_code& failed, backend::stream::socket socket) {
    if (failed == asio::error::operation_aborted) return;
    if (failed) {
      log::write(log::level::warn, "accept failed", {{"gate", gate_.name}, {"detail", failed.message()}});
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

void redis_server::welcome(backend::stream::socket socket, const backend::stream::endpoint& from) {
  if (figures_.connections.value() >= static_cast<std::int64_t>(gate_.connections_max)) {
    figures_.rejected(metrics::connection_rejection::limit).add();
    boost::system::error_code ignored;
    const std::string text = "-ERR max number of clients reached (connections_max of gate " + gate_.name + ")\r\n";
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(text), ignored);
    socket.shutdown(backend::stream::socket::shutdown_send, ignored);
    return;
  }
  figures_.connections.add(1);
  figures_.connections_total.add();
  shard& target = *shards_[next_++ % shards_.size()];
  auto begin = [this, &target, address = text_of(from), socket = std::move(socket)]() mutable {
    auto ended = [this, &target](const std::shared_ptr<redis_session>& session) {
      target.sessions.erase(session);
      figures_.connections.add(-1);
    };
    auto session = std::make_shared<redis_session>(target.common, std::move(socket), std::move(address), ended);
    target.sessions.insert(session);
    session->start();
    if (target.draining) session->drain();
  };
  asio::post(target.common.context, std::move(begin));
}

void redis_server::tick(shard& s) {
  s.ticker.expires_after(tick_interval);
  auto on_tick = [this, &s](const boost::system::error_code& cancelled) {
    if (cancelled) return;
    const auto now = std::chrono::steady_clock::now();
    const std::vector<std::shared_ptr<redis_session>> all(s.sessions.begin(), s.sessions.end());
    for (const auto& session : all) session->on_tick(now);
    s.common.rejections.write_due(now);
    tick(s);
  };
  s.ticker.async_wait(on_tick);
}

void redis_server::drain() {
  for (auto& s : shards_) {
    asio::post(s->common.context, [raw = s.get()] {
      raw->draining = true;
      const auto all = raw->sessions;
      for (const auto& session : all) session->drain();
    });
  }
}

}  // namespace fencegate::gate
