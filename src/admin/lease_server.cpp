#include "admin/lease_server.hpp"

#include "admin/lease_http.hpp"
#include "admin/lease_pages.hpp"
#include "admin/peer_listener.hpp"
#include "admin/writer_pages.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <optional>
#include <set>
#include <string>
#include <utility>

namespace fencegate::admin {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using lease::clock_reading;
using stream = peer_stream;

constexpr std::size_t first_read_bytes = 512;

constexpr std::string_view events_head =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nX-Content-Type-Options: "
    "nosniff\r\n"
    "Connection: close\r\n\r\n";

}  // namespace

class lease_server::state : public std::enable_shared_from_this<state> {
 public:
  state(asio::io_context& io, const std::vector<settings::address>& listen, ::mode_t socket_mode, lease::desk& desk,
        metrics::process& process, lease_server_times times)
      : io_(io), socket_mode_(socket_mode), desk_(&desk), times_(times) {
    for (const auto& one : listen) {
      listeners_.push_back(
          std::make_shared<peer_listener>(io, one, process, "API of leases", limits::lease_connections_max));
    }
  }

  result<void> start() {
    for (const auto& one : listeners_) {
      auto accepted = [weak = weak_from_this(), address = one->address()](peer_listener::place at) {
        if (auto self = weak.lock()) asio::co_spawn(self->io_, serve(self, address, std::move(at)), asio::detached);
      };
      const auto started = one->start(accepted, socket_mode_);
      if (!started) return error{started.error().message + "; leases.listen changes it"};
    }
    return {};
  }

  std::vector<std::uint16_t> ports() const {
    std::vector<std::uint16_t> out;
    for (const auto& one : listeners_) out.push_back(one->port());
    return out;
  }

  void serve_writers(lease::writer_desk& writers) { writers_ = &writers; }
  void serve_gates(lease::gate_switch& gates) { gates_ = &gates; }
  void serve_operators(lease::operator_desk& operators) { operators_ = &operators; }

  void close() {
    for (const auto& one : listeners_) one->close();
    for (auto* one : exchanges_) one->leave();
    desk_ = nullptr;
  }

 private:
  // What one client waits for. The desk's answer may come when it is gone.
  struct exchange {
    exchange(std::shared_ptr<state> s, stream& c)
        : owner(std::move(s)), client(c), happened(owner->io_, asio::steady_timer::time_point::max()) {
      owner->exchanges_.insert(this);
    }
    ~exchange() {
      leave();
      owner->exchanges_.erase(this);
    }
    exchange(const exchange&) = delete;
    exchange& operator=(const exchange&) = delete;

    // Nobody waits any more.
    void leave() {
      gone = true;
      asked.reset();
      if (const auto given = std::exchange(untold, std::nullopt); given && owner->desk_ != nullptr)
        owner->desk_->not_told(given->id, given->claims);
      happened.cancel();
    }
    void take(lease_answer given) {
      answer = std::move(given);
      happened.cancel();
    }
    void tell(const lease::lease_event& event) {
      if (gone || over) return;
      events += lease_event_text(event);
      over = event.what == lease::lease_event::kind::lost;
      if (events.size() > limits::lease_events_bytes_max) {
        gone = true;
        client.close();
      }
      happened.cancel();
    }

    const std::shared_ptr<state> owner;
    stream& client;
    asio::steady_timer happened;
    lease::desk::call asked;
    std::optional<lease_answer> answer;
    std::optional<lease_question> connects;    // to a gate, with an answer of 101
    std::optional<lease::lease_given> untold;  // granted, and the client does not know
    std::string events;                        // not sent yet
    bool over = false;                         // no event follows
    bool reading = false, gone = false;
  };
  using exchange_ref = std::shared_ptr<exchange>;

  // Reads on while the client waits: this is how its end is seen. What it sends is kept for the next request.
  static void watch_client(const exchange_ref& x, incoming& in) {
    if (x->reading || x->gone) return;
    if (in.buffer.size() >= limits::lease_pipelined_bytes_max) {
      x->gone = true;
      return;
    }
    x->reading = true;
    // `in` stays: see end_watch.
    auto on_read = [x, &in](const error_code& failed, std::size_t bytes) {
      x->reading = false;
      in.buffer.commit(bytes);
      if (bytes != 0) in.received = clock_reading::now();
      if (failed && failed != asio::error::operation_aborted) x->gone = true;
      x->happened.cancel();
    };
    x->client.plain_socket().async_read_some(in.buffer.prepare(first_read_bytes), on_read);
  }

  static asio::awaitable<void> end_watch(exchange_ref x) {
    error_code ignored;
    if (x->reading) x->client.plain_socket().cancel(ignored);
    x->happened.expires_at(asio::steady_timer::time_point::max());
    while (x->reading) co_await x->happened.async_wait(no_throw);
  }

  static asio::awaitable<void> wait_for_answer(exchange_ref x, incoming& in) {
    while (!x->answer && !x->gone) {
      watch_client(x, in);
      if (!x->gone) co_await x->happened.async_wait(no_throw);
    }
    co_await end_watch(x);
  }

  static asio::awaitable<void> send_events(exchange_ref x, incoming& in, std::chrono::milliseconds timeout,
                                           std::chrono::milliseconds heartbeat) {
    x->events.insert(0, events_head);
    while (true) {
      if (!x->events.empty()) {
        const std::string now = std::exchange(x->events, {});
        x->client.expires_after(timeout);
        const auto [unsent, sent] = co_await asio::async_write(x->client, asio::buffer(now), no_throw);
        if (unsent) break;
        continue;
      }
      watch_client(x, in);
      if (x->over || x->gone) break;
      x->happened.expires_after(heartbeat);
      const auto [woken] = co_await x->happened.async_wait(no_throw);
      if (!woken) x->events += ":\n\n";
    }
    co_await end_watch(x);
  }

  // Asks the desk; an answer that is known at once is in the exchange.
  void ask(const exchange_ref& x, lease_question asked, const clock_reading& arrived) {
    using kind = lease_question::kind;
    const std::weak_ptr<exchange> weak(x);
    const auto on_outcome = [weak, grants = asked.what == kind::acquire](const lease::desk::outcome& came) {
      const auto there = weak.lock();
      if (!there) return;
      if (!came) return there->take(lease_refused(came.error()));
      if (grants) there->untold = *came;
      there->take(grants ? lease_granted(*came) : lease_renewed(*came));
    };
    switch (asked.what) {
      case kind::acquire: x->asked = desk_->acquire(asked.wish, arrived, on_outcome); break;
      case kind::renew: desk_->renew(asked.id, asked.tokens, arrived, on_outcome); break;
      case kind::release:
        desk_->release(asked.id, asked.tokens, [weak](const std::optional<lease::lease_refusal>& why) {
          if (const auto there = weak.lock()) there->take(why ? lease_refused(*why) : lease_released());
        });
        break;
      case kind::connect: connect(x, std::move(asked), arrived); break;
      case kind::operate: operate(x, std::move(asked)); break;
      case kind::list: x->answer = leases_listed(desk_->list()); break;
      case kind::watch:
        x->asked = desk_->watch(asked.id, [weak](const lease::lease_event& event) {
          if (const auto there = weak.lock()) there->tell(event);
        });
        if (!x->asked) x->answer = lease_unknown();
    }
  }

  // The lease is confirmed by its issuer before anything is bound to it.
  void connect(const exchange_ref& x, lease_question asked, const clock_reading& arrived) {
    const auto protocol =
        gates_ == nullptr ? result<std::string_view>(error{"there is no gate here"}) : gates_->protocol_of(asked.gate);
    if (!protocol) return void(x->answer = lease_problem(404, protocol.error().message));
    const auto confirmed = [weak = std::weak_ptr<exchange>(x), asked,
                            protocol = *protocol](const lease::desk::outcome& came) {
      const auto there = weak.lock();
      if (!there) return;
      there->take(came ? lease_connected(protocol) : lease_refused(came.error()));
    };
    desk_->renew(asked.id, asked.tokens, arrived, confirmed);
    x->connects = std::move(asked);
  }

  void operate(const exchange_ref& x, lease_question asked) {
    if (operators_ == nullptr) return void(x->answer = lease_problem(404, "no operator is heard here"));
    auto by = peer_process(x->client.socket());
    if (!asked.by.empty()) by += ": " + asked.by;
    auto done = [weak =
                     std::weak_ptr<exchange>(x)](const boost::system::result<std::string, lease::lease_refusal>& told) {
      const auto there = weak.lock();
      if (there) there->take(told ? operation_done(*told) : lease_refused(told.error()));
    };
    x->asked = operators_->ask(std::move(asked.operation), std::move(by), std::move(done));
  }

  // What was an exchange of HTTP is a connection of the gate from here on.
  void hand_over(const peer_listener::place& at, lease_question asked) {
    auto socket = at.stream().release_socket();
    error_code failed;
    const int released = socket.release(failed);
    if (!failed) gates_->hand_over(asked.gate, released, std::move(asked.tokens));
  }

  lease_question_result judge(const http::request<http::string_body>& request, const any_stream::socket& peer,
                              const settings::address& listen) const {
    const auto hosts = request.count(http::field::host);
    if (hosts > 1 || (hosts == 0 && request.version() >= 11)) return lease_problem(400, "exactly one Host is needed");
    if (request.count(http::field::content_type) > 1) return lease_problem(400, "one Content-Type is enough");
    const auto text = [](boost::beast::string_view t) { return std::string_view(t.data(), t.size()); };
    lease_request asked;
    asked.head.method = text(request.method_string());
    asked.head.target = text(request.target());
    if (hosts == 1) asked.head.host = text(request[http::field::host]);
    asked.head.from_browser = request.count(http::field::origin) != 0 || request.count("Sec-Fetch-Site") != 0;
    asked.head.from_loopback = is_local(peer);
    asked.upgrades = asks_for_gate(request);
    if (request.count(http::field::content_type) == 1) asked.content_type = text(request[http::field::content_type]);
    asked.body = request.body();
    if (writers_ != nullptr)
      if (auto answered = answer_about_writers(asked, listen, *writers_)) return std::move(*answered);
    return held_by_gate(read_lease_request(asked, listen));
  }

  // What a gate of this process holds, no client gets.
  lease_question_result held_by_gate(lease_question_result asked) const {
    if (writers_ == nullptr || !asked || asked->what != lease_question::kind::acquire) return asked;
    for (const auto& resource : asked->wish.resources)
      if (const auto gate = writers_->holder_of(resource); !gate.empty())
        return lease_refused(
            {lease::lease_refusal::kind::busy, resource + " is held by gate " + gate, resource, "gate " + gate});
    return asked;
  }

  static asio::awaitable<void> serve(std::shared_ptr<state> self, settings::address listen, peer_listener::place at) {
    incoming in;
    answer_form form{.keep_alive = true};
    while (form.keep_alive) {
      if (in.buffer.size() == 0) {
        at.wait_for_request();
        at.stream().expires_after(self->times_.idle);
        const auto [failed, bytes] =
            co_await at.stream().async_read_some(in.buffer.prepare(first_read_bytes), no_throw);
        in.received = clock_reading::now();
        if (failed) co_return;
        in.buffer.commit(bytes);
      }
      at.serve_request();
      at.stream().expires_after(self->times_.request);
      lease_parser parser;
      const clock_reading arrived = in.received;
      const auto unread = co_await read_request(at.stream(), in, parser);
      in.received = clock_reading::now();

      const auto x = std::make_shared<exchange>(self, at.stream());
      if (unread) {
        const auto status = status_of_unread(unread);
        if (status == 0) co_return;
        x->answer = lease_problem(status, "cannot read this request: " + unread.message());
        form = {};
      } else {
        form.version = parser.get().version();
        form.keep_alive = parser.get().keep_alive();
        form.head_only = parser.get().method() == http::verb::head;
        auto asked = self->judge(parser.get(), at.stream().socket(), listen);
        if (self->desk_ == nullptr) co_return;
        // It may have to wait for hours.
        std::string().swap(parser.get().body());
        in.buffer.shrink_to_fit();
        const bool watches = asked && asked->what == lease_question::kind::watch;
        if (asked) {
          self->ask(x, std::move(*asked), arrived);
        } else {
          x->answer = std::move(asked.error());
        }
        if (watches && !x->answer) {
          co_await send_events(x, in, self->times_.request, self->times_.heartbeat);
          break;
        }
      }
      if (!x->answer) co_await wait_for_answer(x, in);
      if (!x->answer || x->gone) co_return;
      const bool connected = x->answer->status == 101 && in.buffer.size() == 0;
      if (x->answer->status == 101 && !connected)
        x->answer = lease_problem(400, "a gate's client sends nothing before the answer");
      auto out = to_response(std::move(*x->answer), form);
      at.stream().expires_after(self->times_.request);
      const auto [unsent, sent] = co_await http::async_write(at.stream(), out, no_throw);
      if (unsent) co_return;
      if (const auto given = std::exchange(x->untold, std::nullopt); given && self->desk_ != nullptr)
        self->desk_->told(given->id);
      if (connected) co_return self->hand_over(at, std::move(*x->connects));
      if (unread) co_return co_await swallow_rest(at.stream(), in.buffer);
    }
    at.stream().shutdown_send();
  }

  asio::io_context& io_;
  std::vector<std::shared_ptr<peer_listener>> listeners_;
  const ::mode_t socket_mode_;
  lease::desk* desk_;                      // nullptr once it is closed
  lease::writer_desk* writers_ = nullptr;  // nullptr: no gate holds a lease
  lease::gate_switch* gates_ = nullptr;
  lease::operator_desk* operators_ = nullptr;
  const lease_server_times times_;
  std::set<exchange*> exchanges_;
};

lease_server::lease_server(asio::io_context& io, const std::vector<settings::address>& listen, ::mode_t socket_mode,
                           lease::desk& desk, metrics::process& process, lease_server_times times)
    : state_(std::make_shared<state>(io, listen, socket_mode, desk, process, times)) {}

lease_server::~lease_server() { state_->close(); }

void lease_server::serve_writers(lease::writer_desk& writers) { state_->serve_writers(writers); }

void lease_server::serve_gates(lease::gate_switch& gates) { state_->serve_gates(gates); }

void lease_server::serve_operators(lease::operator_desk& operators) { state_->serve_operators(operators); }

result<void> lease_server::start() { return state_->start(); }

std::vector<std::uint16_t> lease_server::ports() const { return state_->ports(); }

}  // namespace fencegate::admin
