#include "admin/admin_server.hpp"

#include "base/limits.hpp"
#include "base/listening_socket.hpp"
#include "base/log.hpp"
#include "base/spare_descriptor.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <sys/socket.h>

#include <unistd.h>

#include <cstring>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::admin {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using any_stream = asio::generic::stream_protocol;  // TCP or a unix socket
using boost::system::error_code;

constexpr auto no_throw = asio::as_tuple(asio::use_awaitable);

using response = http::response<http::string_body>;

tcp::endpoint tcp_endpoint_of(const any_stream::endpoint& from) {
  tcp::endpoint out;
  if (from.size() > out.capacity()) return out;
  std::memcpy(out.data(), from.data(), from.size());
  out.resize(from.size());
  return out;
}

// Of this machine: on loopback, or on a unix socket, whose file says who may.
bool is_local(const any_stream::endpoint& from) {
  if (from.protocol().family() == AF_UNIX) return true;
  const auto a = tcp_endpoint_of(from).address();
  if (a.is_v6() && a.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, a.to_v6()).is_loopback();
  return a.is_loopback();
}

std::string to_text(const any_stream::endpoint& from) {
  if (from.protocol().family() == AF_UNIX) return "unix";
  const auto at = tcp_endpoint_of(from);
  const std::string host = at.address().to_string();
  return (at.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(at.port());
}

// The answer to a head that could not be read; 0: none, the peer is gone or was too slow.
unsigned status_of(const error_code& failed) {
  if (failed == http::error::header_limit || failed == http::error::buffer_overflow) return 431;
  if (failed == http::error::unexpected_body || failed == http::error::body_limit) return 413;
  if (failed == http::error::end_of_stream || failed == http::error::partial_message) return 0;
  return failed.category() == make_error_code(http::error::bad_method).category() ? 400 : 0;
}

response to_response(page_answer answer, unsigned version, bool keep_alive, bool head_only) {
  response out;
  out.version(version);
  out.result(answer.status);
  out.set(http::field::content_type, answer.content_type);
  out.set(http::field::cache_control, "no-store");
  out.set("X-Content-Type-Options", "nosniff");
  if (!answer.allow.empty()) out.set(http::field::allow, answer.allow);
  if (!answer.fencing_mark.empty()) out.set("Fencing-Mark", answer.fencing_mark);
  if (answer.status == 503) out.set(http::field::retry_after, "1");
  out.keep_alive(keep_alive);
  out.content_length(answer.body.size());
  if (!head_only) out.body() = std::move(answer.body);
  return out;
}

}  // namespace

class admin_server::state : public std::enable_shared_from_this<state> {
 public:
  state(asio::io_context& io, settings::address listen, metrics::process& process, std::function<void()> on_quit,
        std::chrono::milliseconds timeout)
      : io_(io),
        acceptor_(io),
        retry_(io),
        listen_(std::move(listen)),
        process_(process),
        timeout_(timeout),
        on_quit_(std::move(on_quit)) {}

  result<void> start() {
    auto opened = listening_socket::open(listen_);
    if (!opened) return error{"admin listener: " + opened.error().message + "; admin.listen changes it"};
    listener_.emplace(std::move(*opened));
    port_ = listener_->port();
    error_code failed;
    acceptor_.assign(any_stream(listener_->family(), 0), listener_->release(), failed);
    if (failed) return error{"admin listener: " + failed.message()};
    asio::co_spawn(io_, accept_all(shared_from_this()), asio::detached);
    return {};
  }

  std::uint16_t port() const { return port_; }
  void serve_marks(marks_service marks) { marks_ = std::move(marks); }

  void close() {
    error_code ignored;
    acceptor_.close(ignored);
    listener_.reset();
    retry_.cancel();
    for (connection& c : connections_) c.stream.close();
    on_quit_ = nullptr;
  }

 private:
  struct connection {
    explicit connection(any_stream::socket socket) : stream(std::move(socket)) {}
    boost::beast::basic_stream<any_stream> stream;
    bool waiting = false;  // for its next request's head
  };
  using connection_ref = std::list<connection>::iterator;

  // Gives a connection's place back however its coroutine ends.
  struct place {
    state& owner;
    connection_ref at;
    ~place() {
      owner.connections_.erase(at);
      owner.spare_.take();
    }
  };

  static asio::awaitable<void> accept_all(std::shared_ptr<state> self) {
    while (self->acceptor_.is_open()) {
      auto [failed, socket] = co_await self->acceptor_.async_accept(no_throw);
      if (failed == asio::error::operation_aborted) co_return;
      if (failed && !self->accept_with_spare(socket)) {
        log::write(log::level::warn, "admin connection not accepted", {{"error", failed.message()}});
        self->retry_.expires_after(std::chrono::milliseconds(100));
        co_await self->retry_.async_wait(no_throw);
        continue;
      }
      if (self->make_room()) {
        const auto at = self->connections_.emplace(self->connections_.end(), std::move(socket));
        asio::co_spawn(self->io_, serve(self, at), asio::detached);
      }
    }
  }

  // The process has no file descriptor left, most likely: there is one for a probe or a scrape at a time.
  bool accept_with_spare(any_stream::socket& into) {
    process_.files_short.note();
    spare_.give_up();
    const int socket = ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) return false;
    error_code failed;
    into.assign(any_stream(listener_->family(), 0), socket, failed);
    if (failed) ::close(socket);
    return !failed;
  }

  // False: everyone is being served at this moment, and the new connection is dropped.
  bool make_room() {
    if (connections_.size() < limits::admin_connections_max) return true;
    for (connection& c : connections_) {
      if (!c.waiting) continue;
      c.stream.close();
      c.waiting = false;
      return true;
    }
    return false;
  }

  static asio::awaitable<void> serve(std::shared_ptr<state> self, connection_ref at) {
    const place held{*self, at};
    boost::beast::flat_buffer buffer(limits::admin_head_bytes_max);
    bool keep_alive = true;
    while (keep_alive) {
      http::request_parser<http::empty_body> parser;
      parser.header_limit(limits::admin_head_bytes_max);
      // The one waiting longest is the first in the list.
      self->connections_.splice(self->connections_.end(), self->connections_, at);
      at->stream.expires_after(self->timeout_);
      at->waiting = true;
      const auto [unread, size] = co_await http::async_read(at->stream, buffer, parser, no_throw);
      at->waiting = false;

      page_answer answer;
      if (unread) {
        answer.status = status_of(unread);
        if (answer.status == 0) co_return;
        answer.body = "cannot read this request: " + unread.message() + "\n";
        keep_alive = false;
      } else {
        answer = self->answer(parser.get(), at->stream.socket());
        if (answer.marks) answer = co_await ask_marks(self, parser.get(), at->stream.socket());
        keep_alive = parser.get().keep_alive() && answer.status != 400 && !answer.quit;
      }
      const bool quit = answer.quit;
      const bool head_only = !unread && parser.get().method() == http::verb::head;
      response out = to_response(std::move(answer), unread ? 11 : parser.get().version(), keep_alive, head_only);
      at->stream.expires_after(self->timeout_);
      const auto [unsent, sent] = co_await http::async_write(at->stream, out, no_throw);
      if (quit) {
        // A copy: it may destroy the server, and close() drops the original.
        const auto on_quit = self->on_quit_;
        if (on_quit) on_quit();
      }
      if (unsent) co_return;
    }
    error_code ignored;
    at->stream.socket().shutdown(any_stream::socket::shutdown_send, ignored);
  }

  page_answer answer(const http::request<http::empty_body>& request, const any_stream::socket& socket) const {
    const auto hosts = request.count(http::field::host);
    if (hosts > 1 || (hosts == 0 && request.version() >= 11)) {
      page_answer bad;
      bad.status = 400;
      bad.body = "exactly one Host is needed\n";
      return bad;
    }
    error_code gone;
    const auto peer = socket.remote_endpoint(gone);
    page_request asked;
    asked.method = request.method_string();
    asked.target = request.target();
    if (hosts == 1) asked.host = request[http::field::host];
    asked.from_browser = request.count(http::field::origin) != 0 || request.count("Sec-Fetch-Site") != 0;
    asked.from_loopback = !gone && is_local(peer);
    return answer_page(asked, process_, listen_, marks_ != nullptr);
  }

  // A question under way, as its coroutine knows it; the service's answer may come when both are gone.
  struct waiting {
    waiting(state& s) : owner(s), answered(s.io_, asio::steady_timer::time_point::max()) { ++owner.marks_asked_; }
    ~waiting() { --owner.marks_asked_; }
    waiting(const waiting&) = delete;
    waiting& operator=(const waiting&) = delete;

    state& owner;
    asio::steady_timer answered;
    std::optional<page_answer> answer;
  };

  static asio::awaitable<page_answer> ask_marks(std::shared_ptr<state> self,
                                                const http::request<http::empty_body>& request,
                                                const any_stream::socket& socket) {
    if (self->marks_asked_ >= limits::admin_marks_max) {
      page_answer busy;
      busy.status = 503;
      busy.body = "too many requests for marks at this moment\n";
      co_return busy;
    }
    const auto question = std::make_shared<waiting>(*self);
    std::vector<header_field> fields;
    for (const auto& field : request) fields.push_back({field.name_string(), field.value()});
    error_code gone;
    const std::string client = to_text(socket.remote_endpoint(gone));
    auto on_answer = [asked = std::weak_ptr(question)](page_answer given) {
      const auto there = asked.lock();
      if (!there) return;
      there->answer = std::move(given);
      there->answered.cancel();
    };
    self->marks_({request.method_string(), request.target(), request[http::field::host], fields, client}, on_answer);
    if (!question->answer) co_await question->answered.async_wait(no_throw);
    co_return std::move(*question->answer);
  }

  asio::io_context& io_;
  std::optional<listening_socket> listener_;  // for its file; the socket is the acceptor's
  asio::basic_socket_acceptor<any_stream> acceptor_;
  spare_descriptor spare_;
  asio::steady_timer retry_;
  const settings::address listen_;
  metrics::process& process_;
  const std::chrono::milliseconds timeout_;
  std::function<void()> on_quit_;  // empty once the server is closed
  marks_service marks_;            // empty: there are none
  std::size_t marks_asked_ = 0;    // and not answered yet
  std::list<connection> connections_;
  std::uint16_t port_ = 0;
};

admin_server::admin_server(asio::io_context& io, settings::address listen, metrics::process& process,
                           std::function<void()> on_quit, std::chrono::milliseconds timeout)
    : state_(std::make_shared<state>(io, std::move(listen), process, std::move(on_quit), timeout)) {}

admin_server::~admin_server() { state_->close(); }

result<void> admin_server::start() { return state_->start(); }

void admin_server::serve_marks(marks_service marks) { state_->serve_marks(std::move(marks)); }

std::uint16_t admin_server::port() const { return state_->port(); }

}  // namespace fencegate::admin
