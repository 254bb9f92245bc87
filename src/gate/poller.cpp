#include "gate/poller.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <unistd.h>

#include <array>
#include <cerrno>

namespace fencegate::gate {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::uint32_t always = EPOLLIN | EPOLLRDHUP | EPOLLPRI | EPOLLET;
constexpr std::size_t events_at_once = 128;
// Under load the next events are there when the last are done. Then Asio is left aside, for this many rounds at most.
constexpr int rounds_max = 8;

error_code last_error() { return {errno, boost::system::system_category()}; }

int open_epoll() {
  const int descriptor = ::epoll_create1(EPOLL_CLOEXEC);
  if (descriptor < 0) throw boost::system::system_error(last_error(), "epoll");
  return descriptor;
}

}  // namespace

// ── the poller ──────────────────────────────────────────────────────────────────────────────────────────────────────

poller::poller(asio::io_context& context)
    : service(context),
      context_(context),
      epoll_(context, open_epoll()),
      scratch_(std::make_unique_for_overwrite<char[]>(limits::read_buffer_bytes_max)) {}

void poller::shutdown() {
  error_code ignored;
  epoll_.close(ignored);
}

poller::ticket poller::enter(polled_socket& socket) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  slots_[index].socket = &socket;
  if (!waiting_ && !turning_) wait();
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
  if (!epoll_.is_open()) return 0;
  epoll_event wanted{};
  wanted.events = events;
  wanted.data.u64 = of;
  return ::epoll_ctl(epoll_.native_handle(), operation, descriptor, &wanted);
}

void poller::again(ticket of) {
  again_.push_back(of);
  if (!turning_) post_turn();
}

void poller::wait() {
  waiting_ = true;
  auto on_events = [this](const error_code& failed) {
    if (failed) return;
    waiting_ = false;
    turn();
  };
  epoll_.async_wait(asio::posix::stream_descriptor::wait_read, on_events);
}

void poller::post_turn() {
  if (posted_) return;
  posted_ = true;
  asio::post(context_, [this] {
    posted_ = false;
    if (epoll_.is_open()) turn();
  });
}

// Whatever happens, one of the two brings us back here: the wait, which also sees events that came before it began, or
// the post.
void poller::turn() {
  turning_ = true;
  for (int round = 0; round < rounds_max; ++round) {
    const std::size_t events = take_events();
    take_again();
    // A single event is no load. (To wait here a little for the next one was tried: answers came later, not sooner.)
    if (events < 2 && again_.empty()) break;
  }
  turning_ = false;
  if (!again_.empty()) post_turn();
  if (!waiting_ && !posted_) wait();
}

// Calls the owners of all sockets that something has happened to.
std::size_t poller::take_events() {
  std::array<epoll_event, events_at_once> events;
  const int found = ::epoll_wait(epoll_.native_handle(), events.data(), static_cast<int>(events.size()), 0);
  const std::size_t count = found < 0 ? 0 : static_cast<std::size_t>(found);
  for (std::size_t i = 0; i < count; ++i) {
    polled_socket* const socket = find(events[i].data.u64);
    if (socket == nullptr) continue;  // closed by a call for an earlier event
    socket->on_event(events[i].events);
    socket->owner_.on_ready();
  }
  return count;
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

void polled_socket::take(asio::generic::stream_protocol::socket from, error_code& failed) {
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
  readable_ = ended_ = again_ = false;
  writable_ = true;
  interest_ = always;
  ticket_ = poller_.enter(*this);
  if (poller_.control(EPOLL_CTL_ADD, descriptor_, interest_, ticket_) == 0) return;
  failed = last_error();
  close();
}

void polled_socket::on_event(std::uint32_t events) {
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) ended_ = true;
  if ((events & (EPOLLIN | EPOLLPRI)) != 0 || ended_) readable_ = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) writable_ = true;
  // A read ends early at urgent data.
  if ((events & EPOLLPRI) != 0) short_read_drains_ = false;
}

std::size_t polled_socket::receive(std::span<char> room, error_code& failed) {
  failed = {};
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

std::size_t polled_socket::send(std::string_view bytes, error_code& failed) {
  failed = {};
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
  writable_ = false;
  if ((interest_ & EPOLLOUT) != 0) return 0;
  // Room is asked for by those who once had none; all others would be woken by each reader of a unix socket.
  interest_ |= EPOLLOUT;
  if (poller_.control(EPOLL_CTL_MOD, descriptor_, interest_, ticket_) != 0) failed = last_error();
  return 0;
}

void polled_socket::again() {
  if (again_ || !is_open()) return;
  again_ = true;
  poller_.again(ticket_);
}

void polled_socket::shutdown() {
  if (is_open()) ::shutdown(descriptor_, SHUT_RDWR);
}

void polled_socket::shutdown_send() {
  if (is_open()) ::shutdown(descriptor_, SHUT_WR);
}

void polled_socket::close() {
  if (!is_open()) return;
  static_cast<void>(poller_.control(EPOLL_CTL_DEL, descriptor_, 0, ticket_));
  poller_.leave(ticket_);
  ::close(descriptor_);
  descriptor_ = -1;
  readable_ = writable_ = again_ = false;
}

}  // namespace fencegate::gate
