#include "client/private_gate.hpp"

#include "base/limits.hpp"
#include "client/sidecar_words.hpp"
#include "hold/descendants.hpp"
#include "lease/api_issuer.hpp"
#include "lease/gate_switch.hpp"
#include "lease/local_http.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

namespace fencegate::client {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using any_stream = asio::generic::stream_protocol;
using boost::system::error_code;
using local = asio::local::stream_protocol;

constexpr auto no_throw = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds accept_pause{100};
constexpr std::chrono::seconds connection_patience{10};  // of the sidecar, to each connection
constexpr std::size_t relay_bytes = 16 * 1024;

boost::beast::string_view to_beast(std::string_view text) { return {text.data(), text.size()}; }

// Of mode 0700, where the system wants such files of this user, if that is there. libpq takes a comma in PGHOST for two hosts.
result<std::string> make_folder() {
  std::string failed;
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR", ""}) {
    const char* parent = name[0] == '\0' ? "/tmp" : std::getenv(name);
    if (parent == nullptr || parent[0] != '/' || std::strchr(parent, ',') != nullptr) continue;
    std::string path = std::string(parent) + "/fencegate-hold-XXXXXX";
    if (::mkdtemp(path.data()) != nullptr) return {boost::system::in_place_value, std::move(path)};
    failed = path + ": " + std::strerror(errno);
  }
  return error{failed};
}

// Each takes two descriptors: some are left for renewals, and for the list of what runs.
std::size_t connections_most() {
  constexpr rlim_t kept = 64;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur <= kept) return 1;
  return static_cast<std::size_t>((files.rlim_cur - kept) / 2);
}

bool is_of_the_command(int socket) {
  ucred peer{};
  ::socklen_t bytes = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && hold::descends_from_here(peer.pid);
}

enum class relayed : std::uint8_t { all, broken, not_taken };

// Until `from` has no more, or `to` takes no more.
asio::awaitable<relayed> relay(any_stream::socket& from, any_stream::socket& to) {
  std::array<char, relay_bytes> bytes{};
  while (true) {
    const auto [ended, got] = co_await from.async_read_some(asio::buffer(bytes), no_throw);
    if (ended == asio::error::eof) {
      error_code ignored;
      to.shutdown(any_stream::socket::shutdown_send, ignored);
      co_return relayed::all;
    }
    if (ended) co_return relayed::broken;
    const auto [unsent, sent] = co_await asio::async_write(to, asio::buffer(bytes, got), no_throw);
    if (unsent) co_return relayed::not_taken;
  }
}

}  // namespace

class private_gate::state : public std::enable_shared_from_this<state> {
 public:
  state(asio::io_context& io, plan wanted) : io_(io), plan_(std::move(wanted)), acceptor_(io), pause_(io) {}

  void open(const lease::term& held, opened_callback done) {
    held_ = held;
    auto run = [](std::shared_ptr<state> self, opened_callback tell) -> asio::awaitable<void> {
      tell(co_await self->open_now());
    };
    asio::co_spawn(io_, run(shared_from_this(), std::move(done)), asio::detached);
  }

  void close() {
    closed_ = true;
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    for (auto* one : pairs_) one->close();
    if (place_.folder.empty()) return;
    ::unlink(place_.path().c_str());
    ::rmdir(place_.folder.c_str());
  }

 private:
  // A connection of the command, and the one to the sidecar behind it.
  struct pair {
    pair(std::shared_ptr<state> s, any_stream::socket c) : owner(std::move(s)), client(std::move(c)), gate(owner->io_) {
      owner->pairs_.insert(this);
    }
    ~pair() { owner->pairs_.erase(this); }
    pair(const pair&) = delete;
    pair& operator=(const pair&) = delete;

    void close() {
      error_code ignored;
      client.close(ignored);
      gate.close();
    }

    const std::shared_ptr<state> owner;
    any_stream::socket client;
    lease::local_stream gate;
    boost::beast::flat_buffer from_gate;  // what came behind the sidecar's answer
  };

  asio::awaitable<opened> open_now() {
    // One connection, for what the sidecar says to it.
    pair first(shared_from_this(), any_stream::socket(io_));
    const auto protocol = co_await connect(first);
    if (!protocol) co_return protocol.error();
    if (closed_) co_return trouble{hold::outcome::error, "it was closed"};
    place_.of_postgres = *protocol == "postgres";
    auto folder = make_folder();
    if (!folder) co_return trouble{hold::outcome::error, folder.error().message};
    place_.folder = std::move(*folder);
    if (auto listening = listen(); !listening) co_return trouble{hold::outcome::error, listening.error().message};
    asio::co_spawn(io_, accept_all(shared_from_this()), asio::detached);
    co_return place_;
  }

  result<void> listen() {
    const auto path = place_.path();
    error_code failed;
    if (path.size() >= sizeof(sockaddr_un::sun_path)) return error{path + " is too long for a socket: set TMPDIR"};
    acceptor_.open(local(), failed);
    if (!failed) acceptor_.bind(local::endpoint(path), failed);
    if (!failed) acceptor_.listen(asio::socket_base::max_listen_connections, failed);
    if (failed) return error{path + ": " + failed.message()};
    return {};
  }

  static asio::awaitable<void> accept_all(std::shared_ptr<state> self) {
    while (!self->closed_) {
      auto [failed, socket] = co_await self->acceptor_.async_accept(no_throw);
      if (self->closed_) co_return;
      if (failed) {
        self->complain(failed.message());
        self->pause_.expires_after(accept_pause);
        co_await self->pause_.async_wait(no_throw);
        continue;
      }
      if (!is_of_the_command(socket.native_handle())) {
        self->complain("refused a connection of a process that has ended, or is not the command's");
        continue;
      }
      if (self->pairs_.size() >= self->connections_most_) {
        self->complain("refused a connection: " + std::to_string(self->connections_most_) +
                       " at once are all that the limit of open files allows (ulimit -n)");
        continue;
      }
      asio::co_spawn(self->io_, serve(std::make_shared<pair>(self, any_stream::socket(std::move(socket)))),
                     asio::detached);
    }
  }

  static asio::awaitable<void> serve(std::shared_ptr<pair> p) {
    const auto connected = co_await p->owner->connect(*p);
    if (!connected) co_return p->owner->complain(connected.error().message);
    p->gate.expires_never();
    auto back = [](std::shared_ptr<pair> both) -> asio::awaitable<void> {
      const auto [unsent, sent] = co_await asio::async_write(both->client, both->from_gate.data(), no_throw);
      both->from_gate.clear();
      if (unsent || co_await relay(both->gate.socket(), both->client) != relayed::all) both->close();
    };
    asio::co_spawn(p->owner->io_, back(p), asio::detached);
    // What a gate that takes no more has answered still reaches the client.
    if (co_await relay(p->client, p->gate.socket()) == relayed::broken) p->close();
  }

  // One line a second at most: whoever reads them may be slow, and nobody may keep the lease from being renewed.
  void complain(const std::string& what) {
    if (closed_) return;
    const auto now = std::chrono::steady_clock::now();
    if (complained_ && now - *complained_ < std::chrono::seconds(1)) {
      ++unsaid_;
      return;
    }
    complained_ = now;
    const auto others = std::exchange(unsaid_, 0);
    plan_.say("--private-gate: " + what + (others == 0 ? "" : " (" + std::to_string(others) + " more before)"));
  }

  // What the gate speaks.
  asio::awaitable<boost::system::result<std::string, trouble>> connect(pair& p) {
    using protocol_result = boost::system::result<std::string, trouble>;
    p.gate.expires_after(connection_patience);
    if (const auto failed = co_await lease::connect_local(p.gate, plan_.api)) co_return unreached(failed);
    auto request = request_text();
    const auto [unsent, sent] = co_await http::async_write(p.gate, request, no_throw);
    if (unsent) co_return unreached(unsent);
    http::response_parser<http::string_body> answer;
    answer.body_limit(limits::lease_body_bytes_max);
    const auto [unread, got] = co_await http::async_read(p.gate, p.from_gate, answer, no_throw);
    if (unread) co_return unreached(unread);
    const auto status = answer.get().result_int();
    if (status == 101) {
      const auto said = answer.get()[to_beast(lease::gate_protocol_field)];
      if (said == "redis" || said == "postgres" || said == "http")
        co_return protocol_result(boost::system::in_place_value, said.data(), said.size());
      co_return trouble{hold::outcome::error, "the sidecar does not say what the gate speaks"};
    }
    const auto detail = sidecar_words(answer.get().body());
    const auto what = status == 410   ? hold::outcome::lost
                      : status >= 500 ? hold::outcome::unreachable
                                      : hold::outcome::error;
    co_return trouble{what, detail.empty() ? "the sidecar answered with status " + std::to_string(status) : detail};
  }

  [[nodiscard]] http::request<http::string_body> request_text() const {
    http::request<http::string_body> out{http::verb::post, "/v1/leases/" + held_.grant + "/gates/" + plan_.gate, 11,
                                         lease::tokens_body(held_.claims)};
    out.set(http::field::host, "localhost");
    out.set(http::field::connection, "Upgrade");
    out.set(http::field::upgrade, to_beast(lease::gate_upgrade));
    out.set(http::field::content_type, "application/json");
    out.prepare_payload();
    return out;
  }

  [[nodiscard]] trouble unreached(const error_code& why) const {
    return {hold::outcome::unreachable, to_string(plan_.api) + ": " + why.message()};
  }

  asio::io_context& io_;
  const plan plan_;
  lease::term held_;
  hold::private_socket place_;
  local::acceptor acceptor_;
  asio::steady_timer pause_;
  const std::size_t connections_most_ = connections_most();
  std::set<pair*> pairs_;
  std::optional<std::chrono::steady_clock::time_point> complained_;
  std::size_t unsaid_ = 0;
  bool closed_ = false;
};

private_gate::private_gate(asio::io_context& context, plan wanted)
    : state_(std::make_shared<state>(context, std::move(wanted))) {}

private_gate::~private_gate() { state_->close(); }

void private_gate::open(const lease::term& held, opened_callback done) { state_->open(held, std::move(done)); }

}  // namespace fencegate::client
