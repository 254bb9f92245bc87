#include "gate/relay/poller.hpp"

#include <boost/asio/detail/epoll_reactor.hpp>
#include <boost/asio/error.hpp>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <sched.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace fencegate::gate {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::uint32_t always = EPOLLIN | EPOLLRDHUP | EPOLLPRI | EPOLLET;
constexpr std::size_t events_at_once = 128;
constexpr std::uint64_t asios = ~std::uint64_t{0};  // the ticket of Asio's epoll

// A look and a yield to nobody take less, on a slow machine, too.
constexpr auto crowded_after = std::chrono::microseconds(20);

error_code last_error() { return {errno, boost::system::system_category()}; }

int open_epoll() {
  const int descriptor = ::epoll_create1(EPOLL_CLOEXEC);
  if (descriptor < 0) throw boost::system::system_error(last_error(), "epoll");
  return descriptor;
}

// Asio does not tell its epoll's descriptor. An explicit instantiation may name what is private (C++20 [temp.spec.general]).
int epoll_of(asio::detail::epoll_reactor& of);
template <int asio::detail::epoll_reactor::*descriptor>
struct reveal {
  friend int epoll_of(asio::detail::epoll_reactor& of) { return of.*descriptor; }
};
template struct reveal<&asio::detail::epoll_reactor::epoll_fd_>;

}  // namespace

// Asio's own epoll inside the poller's, not the other way round: most events are for the poller's sockets, and would
// otherwise cost two more waits and an epoll_ctl() each time. The scheduler calls run() where it would wait.
class poller::reactor final : public asio::detail::epoll_reactor {
 public:
  reactor(asio::io_context& context, poller& first) : epoll_reactor(context), first_(first) {
    if (first_.control(EPOLL_CTL_ADD, epoll_of(*this), EPOLLIN, asios) != 0)
      throw boost::system::system_error(last_error(), "epoll");
  }

  // `usec`: microseconds; negative: without end.
  void run(long usec, asio::detail::op_queue<asio::detail::scheduler_operation>& ready) override {
    const bool at_once = usec == 0 || !first_.again_.empty();
    const int timeout = at_once ? 0 : usec < 0 ? -1 : static_cast<int>((usec - 1) / 1000 + 1);
    if (first_.turn(timeout)) epoll_reactor::run(0, ready);
  }

 private:
  poller& first_;
};

// ── the poller ──────────────────────────────────────────────────────────────────────────────────────────────────────

poller::poller(asio::io_context& context)
    : service(context),
      epoll_(open_epoll()),
      scratch_(std::make_unique_for_overwrite<char[]>(limits::read_buffer_bytes_max)) {
  auto waiting = std::make_unique<reactor>(context, *this);
  asio::add_service<asio::detail::epoll_reactor>(context, waiting.get());
  waiting.release()->init_task();
}

poller::~poller() { shutdown(); }

void poller::shutdown() {
  if (epoll_ >= 0) ::close(epoll_);
  epoll_ = -1;
}

poller::ticket poller::enter(polled_socket& socket) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  slots_[index].socket = &socket;
  return ticket{slots_[index].generation} << 32 | index;
}

void poller::leave(ticket of) {
  const auto index = static_cast<std::uint32_t>(of);
  slots_[index].socket = nullptr;
  ++slots_[index].generation;
  free_.push_back(index);
}

polled_socket* poller::find(ticket of) const {
  const slot& one = slots_[static_cast<std::uint32_t>(of)];
  return one.generation == of >> 32 ? one.socket : nullptr;
}

int poller::control(int operation, int descriptor, std::uint32_t events, ticket of) {
  if (epoll_ < 0) return 0;
  epoll_event wanted{};
  wanted.events = events;
  wanted.data.u64 = of;
  return ::epoll_ctl(epoll_, operation, descriptor, &wanted);
}

void poller::again(ticket of) { again_.push_back(of); }

int poller::ask(std::span<epoll_event> events, int timeout) const {
  return ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), timeout);
}

int poller::wait(std::span<epoll_event> events, int timeout) {
  if (timeout != 0 && busy_poll_.count() != 0 && credit_.may_spin())
    if (const int found = spin(events); found != 0) return found;
  return ask(events, timeout);
}

// 0: nothing came. Who else wants this processor gets it between two looks, and is noticed by the time that it took.
int poller::spin(std::span<epoll_event> events) {
  const auto end = std::chrono::steady_clock::now() + busy_poll_;
  auto looked = end - busy_poll_;
  for (bool crowded = false, over = false;;) {
    if (const int found = ask(events, 0); found != 0) {
      credit_.found();
      return found;
    }
    if (crowded || over) {
      credit_.in_vain(crowded);
      return 0;
    }
    ::sched_yield();
    const auto now = std::chrono::steady_clock::now();
    crowded = now - looked > crowded_after;
    over = now >= end;
    looked = now;
  }
}

bool poller::turn(int timeout) {
  std::array<epoll_event, events_at_once> events;
  const int found = wait(events, timeout);
  bool others = false;
  for (int i = 0; i < found; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == asios) {
      others = true;
    } else if (polled_socket* const socket = find(event.data.u64)) {  // not closed by a call for an earlier event
      socket->on_event(event.events);
      socket->owner_.on_ready();
    }
  }
  take_again();
  return others;
}

void poller::take_again() {
  again_now_.swap(again_);
  for (const ticket one : again_now_) {
    polled_socket* const socket = find(one);
    if (socket == nullptr) continue;
    socket->again_ = false;
    socket->owner_.on_ready();
  }
  again_now_.clear();
}

// ── a socket ────────────────────────────────────────────────────────────────────────────────────────────────────────

void polled_socket::take(asio::generic::stream_protocol::socket from, std::unique_ptr<backend::tls_stream> secured,
                         error_code& failed) {
  from.native_non_blocking(true, failed);
  if (failed) return;
  // A unix socket's read may end early between messages that carry credentials or descriptors.
  const auto end = from.local_endpoint(failed);
  if (failed) return;
  short_read_drains_ = end.protocol().family() != AF_UNIX;
  descriptor_ = from.release(failed);
  if (failed) {
    descriptor_ = -1;
    return;
  }
  tls_ = std::move(secured);
  readable_ = ended_ = gone_ = again_ = false;
  writable_ = true;
  interest_ = always;
  ticket_ = poller_.enter(*this);
  if (poller_.control(EPOLL_CTL_ADD, descriptor_, interest_, ticket_) == 0) return;
  failed = last_error();
  close();
}

void polled_socket::on_event(std::uint32_t events) {
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    ended_ = true;
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) gone_ = true;
  }
  if ((events & (EPOLLIN | EPOLLPRI)) != 0 || ended_) readable_ = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) {
    writable_ = true;
    if (tls_ != nullptr && tls_->receive_waits_to_write()) readable_ = true;
  }
  // A read ends early at urgent data.
  if ((events & EPOLLPRI) != 0) short_read_drains_ = false;
}

std::size_t polled_socket::receive(std::span<char> room, error_code& failed) {
  failed = {};
  if (tls_ != nullptr) return receive_secured(room, failed);
  ssize_t got = 0;
  do {
    got = ::recv(descriptor_, room.data(), room.size(), MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got > 0) {
    // What arrives from now on is told by another event; an end that was told already is not.
    if (static_cast<std::size_t>(got) < room.size() && short_read_drains_ && !ended_) readable_ = false;
    return static_cast<std::size_t>(got);
  }
  readable_ = false;
  if (got == 0)
    failed = asio::error::eof;
  else
    failed = errno == EAGAIN || errno == EWOULDBLOCK ? error_code(asio::error::would_block) : last_error();
  return 0;
}

// TLS may hold bytes of which the kernel has told already.
std::size_t polled_socket::receive_secured(std::span<char> room, error_code& failed) {
  const std::size_t got = tls_->receive(room, failed);
  if (got != 0) return got;
  readable_ = false;
  if (failed == asio::error::would_block && tls_->receive_waits_to_write()) wait_for_room(failed);
  return 0;
}

std::size_t polled_socket::send(std::string_view bytes, error_code& failed) {
  failed = {};
  if (tls_ != nullptr) {
    const std::size_t gone = tls_->send(bytes, failed);
    if (failed == asio::error::would_block) wait_for_room(failed);
    return gone;
  }
  ssize_t gone = 0;
  do {
    gone = ::send(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (gone < 0 && errno == EINTR);
  if (gone >= 0) return static_cast<std::size_t>(gone);
  if (errno != EAGAIN && errno != EWOULDBLOCK) {
    failed = last_error();
    return 0;
  }
  failed = asio::error::would_block;
  wait_for_room(failed);
  return 0;
}

void polled_socket::wait_for_room(error_code& failed) {
  writable_ = false;
  if ((interest_ & EPOLLOUT) != 0) return;
  // Room is asked for by those who once had none; all others would be woken by each reader of a unix socket.
  interest_ |= EPOLLOUT;
  if (poller_.control(EPOLL_CTL_MOD, descriptor_, interest_, ticket_) != 0) failed = last_error();
}

void polled_socket::again() {
  if (again_ || !is_open()) return;
  again_ = true;
  poller_.again(ticket_);
}

void polled_socket::shutdown() {
  if (tls_ != nullptr) tls_->say_goodbye();
  if (is_open()) ::shutdown(descriptor_, SHUT_RDWR);
}

void polled_socket::shutdown_send() {
  if (tls_ != nullptr) tls_->say_goodbye();
  if (is_open()) ::shutdown(descriptor_, SHUT_WR);
}

void polled_socket::close() {
  if (!is_open()) return;
  static_cast<void>(poller_.control(EPOLL_CTL_DEL, descriptor_, 0, ticket_));
  poller_.leave(ticket_);
  if (tls_ != nullptr) tls_->say_goodbye();
  tls_.reset();
  ::close(descriptor_);
  descriptor_ = -1;
  readable_ = writable_ = again_ = false;
}

}  // namespace fencegate::gate
