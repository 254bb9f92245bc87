#include "admin/admin_server.hpp"

#include "admin/peer_listener.hpp"
#include "admin/status_desk.hpp"
#include "admin/status_pages.hpp"
#include "base/limits.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::admin {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

using response = http::response<http::string_body>;

// They end with the connection, so that none is idle behind them.
constexpr std::string_view watch_head =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
    "X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n";

response to_response(page_answer answer, unsigned version, bool keep_alive, bool head_only) {
  response out;
  out.version(version);
  out.result(answer.status);
  out.set(http::field::content_type, answer.content_type);
  out.set(http::field::cache_control, "no-store");
  out.set("X-Content-Type-Options", "nosniff");
  out.set("Cross-Origin-Resource-Policy", "same-origin");
  if (!answer.content_security_policy.empty()) {
    out.set("Content-Security-Policy", answer.content_security_policy);
    out.set("Referrer-Policy", "no-referrer");
  }
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
        listener_(std::make_shared<peer_listener>(io, std::move(listen), process, "admin listener",
                                                  limits::admin_connections_max)),
        process_(process),
        timeout_(timeout),
        on_quit_(std::move(on_quit)) {}

  result<void> start() {
    if (tls_)
      if (const auto loaded = tls_->load(); !loaded) return error{"admin.tls: " + loaded.error().message};
    auto accepted = [weak = weak_from_this()](peer_listener::place at) {
      if (auto self = weak.lock()) asio::co_spawn(self->io_, serve(self, std::move(at)), asio::detached);
    };
    const auto started = listener_->start(accepted);
    const char* key = pages_ ? "leases.probes" : "admin.listen";
    if (!started) return error{started.error().message + "; " + key + " changes it"};
    return {};
  }

  std::uint16_t port() const { return listener_->port(); }
  void secure(const settings::listener_tls& how) {
    tls_ = std::make_shared<backend::tls_server_context>(how, "listener", "admin", "",
                                                         process_.admin_tls_files_refused_total);
    listener_->secure(tls_, timeout_);
  }
  void serve_marks(marks_service marks) { marks_ = std::move(marks); }
  void serve_reloads(reload_service reloads) { reloads_ = std::move(reloads); }
  void serve_only(std::function<page_answer(const page_request&)> pages) { pages_ = std::move(pages); }
  void serve_status(status_desk& status) { status_ = &status; }

  void close() {
    listener_->close();
    on_quit_ = nullptr;
    reloads_ = nullptr;
    status_ = nullptr;
  }

 private:
  static asio::awaitable<void> serve(std::shared_ptr<state> self, peer_listener::place at) {
    boost::beast::flat_buffer buffer(limits::admin_head_bytes_max);
    bool keep_alive = true;
    while (keep_alive) {
      http::request_parser<http::empty_body> parser;
      parser.header_limit(limits::admin_head_bytes_max);
      at.stream().expires_after(self->timeout_);
      at.wait_for_request();
      const auto [unread, size] = co_await http::async_read(at.stream(), buffer, parser, no_throw);
      at.serve_request();

      page_answer answer;
      if (unread) {
        answer.status = status_of_unread(unread);
        if (answer.status == 0) co_return;
        answer.body = "cannot read this request: " + unread.message() + "\n";
        keep_alive = false;
      } else {
        answer = self->answer(parser.get(), at.stream().socket());
        if (answer.events && self->watchers_ < limits::status_watchers_max) co_return co_await send_events(self, at);
        if (answer.events) answer = too_many("too many watch the status at this moment\n");
        if (answer.marks) answer = co_await ask_marks(self, parser.get(), at.stream().socket());
        if (answer.reload) answer = co_await reload(self);
        keep_alive = parser.get().keep_alive() && answer.status != 400 && !answer.quit;
      }
      const bool quit = answer.quit;
      const bool head_only = !unread && parser.get().method() == http::verb::head;
      response out = to_response(std::move(answer), unread ? 11 : parser.get().version(), keep_alive, head_only);
      at.stream().expires_after(self->timeout_);
      const auto [unsent, sent] = co_await http::async_write(at.stream(), out, no_throw);
      if (quit) {
        // A copy: it may destroy the server, and close() drops the original.
        const auto on_quit = self->on_quit_;
        if (on_quit) on_quit();
      }
      if (unsent) co_return;
    }
    at.stream().shutdown_send();
  }

  page_answer answer(const http::request<http::empty_body>& request, const any_stream::socket& socket) const {
    const auto hosts = request.count(http::field::host);
    if (hosts > 1 || (hosts == 0 && request.version() >= 11)) {
      page_answer bad;
      bad.status = 400;
      bad.body = "exactly one Host is needed\n";
      return bad;
    }
    page_request asked;
    asked.method = request.method_string();
    asked.target = request.target();
    if (hosts == 1) asked.host = request[http::field::host];
    asked.from_browser = request.count(http::field::origin) != 0 || request.count("Sec-Fetch-Site") != 0;
    asked.from_loopback = is_local(socket);
    if (pages_) return pages_(asked);
    if (status_ != nullptr)
      if (auto told = answer_status(asked, *status_, listener_->address())) return std::move(*told);
    return answer_page(asked, process_, listener_->address(), marks_ != nullptr);
  }

  static page_answer too_many(std::string why) {
    page_answer busy;
    busy.status = 503;
    busy.body = std::move(why);
    return busy;
  }

  // One more, as long as this lives. REQUIRES: the figure lives longer.
  struct counted {
    explicit counted(std::size_t& in) : of(in) { ++of; }
    ~counted() { --of; }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;

    std::size_t& of;
  };

  // Until the peer is gone, or does not take an event in time: nothing is kept for it but the one event that is being sent.
  static asio::awaitable<void> send_events(std::shared_ptr<state> self, const peer_listener::place& at) {
    const counted one(self->watchers_);
    asio::steady_timer pause(self->io_);
    std::uint64_t version = 0;
    std::string event(watch_head);
    while (self->status_ != nullptr) {
      event += "event: status\ndata: " + self->status_->json_since(version) + "\n\n";
      at.stream().expires_after(self->timeout_);
      const auto [unsent, sent] = co_await asio::async_write(at.stream(), asio::buffer(event), no_throw);
      if (unsent) co_return;
      event.clear();
      at.stream().expires_never();
      pause.expires_after(limits::status_interval);
      const auto [cancelled] = co_await pause.async_wait(no_throw);
      if (cancelled) co_return;
    }
  }

  // A question under way, as its coroutine knows it; the service's answer may come when both are gone.
  struct waiting {
    explicit waiting(asio::io_context& io) : answered(io, asio::steady_timer::time_point::max()) {}

    asio::steady_timer answered;
    std::optional<page_answer> answer;
  };

  // `ask` is given what takes the answer.
  template <class Ask>
  static asio::awaitable<page_answer> answer_of(asio::io_context& io, Ask ask) {
    const auto question = std::make_shared<waiting>(io);
    ask([asked = std::weak_ptr(question)](page_answer given) {
      const auto there = asked.lock();
      if (!there) return;
      there->answer = std::move(given);
      there->answered.cancel();
    });
    if (!question->answer) co_await question->answered.async_wait(no_throw);
    co_return std::move(*question->answer);
  }

  static asio::awaitable<page_answer> ask_marks(std::shared_ptr<state> self,
                                                const http::request<http::empty_body>& request,
                                                const any_stream::socket& socket) {
    if (self->marks_asked_ >= limits::admin_marks_max) {
      co_return too_many("too many requests for marks at this moment\n");
    }
    const counted one(self->marks_asked_);
    std::vector<header_field> fields;
    for (const auto& field : request) fields.push_back({field.name_string(), field.value()});
    const std::string client = peer_name(socket);
    auto ask = [&](auto done) {
      self->marks_({request.method_string(), request.target(), request[http::field::host], fields, client},
                   std::move(done));
    };
    co_return co_await answer_of(self->io_, ask);
  }

  static asio::awaitable<page_answer> reload(std::shared_ptr<state> self) {
    if (!self->reloads_) {
      page_answer none;
      none.status = 404;
      none.body = "nothing is read again here\n";
      co_return none;
    }
    auto ask = [&self](auto done) { self->reloads_(std::move(done)); };
    co_return co_await answer_of(self->io_, ask);
  }

  asio::io_context& io_;
  const std::shared_ptr<peer_listener> listener_;
  std::shared_ptr<backend::tls_server_context> tls_;  // nullptr: peers come in plain text
  metrics::process& process_;
  const std::chrono::milliseconds timeout_;
  std::function<void()> on_quit_;                          // empty once the server is closed
  marks_service marks_;                                    // empty: there are none
  reload_service reloads_;                                 // the same
  std::function<page_answer(const page_request&)> pages_;  // empty: those of the admin listener
  std::size_t marks_asked_ = 0;                            // and not answered yet
  status_desk* status_ = nullptr;                          // nullptr: there is none, or it is closed
  std::size_t watchers_ = 0;
};

admin_server::admin_server(asio::io_context& io, settings::address listen, metrics::process& process,
                           std::function<void()> on_quit, std::chrono::milliseconds timeout)
    : state_(std::make_shared<state>(io, std::move(listen), process, std::move(on_quit), timeout)) {}

admin_server::~admin_server() { state_->close(); }

result<void> admin_server::start() { return state_->start(); }

void admin_server::serve_only(std::function<page_answer(const page_request&)> pages) {
  state_->serve_only(std::move(pages));
}

void admin_server::secure(const settings::listener_tls& how) { state_->secure(how); }

void admin_server::serve_status(status_desk& status) { state_->serve_status(status); }

void admin_server::serve_reloads(reload_service reloads) { state_->serve_reloads(std::move(reloads)); }

void admin_server::serve_marks(marks_service marks) { state_->serve_marks(std::move(marks)); }

std::uint16_t admin_server::port() const { return state_->port(); }

}  // namespace fencegate::admin
