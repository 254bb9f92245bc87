#include "backend/plain_answer.hpp"

#include "base/ascii.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

namespace fencegate::backend {
namespace {

using plain_socket = boost::asio::generic::stream_protocol::socket;

// Of a client that never ends its request.
constexpr std::size_t dropped_bytes_max = 1024 * 1024;

class last_words : public std::enable_shared_from_this<last_words> {
 public:
  last_words(std::shared_ptr<plain_socket> link, std::function<void()> done)
      : link_(std::move(link)), done_(std::move(done)) {}

  void drain() {
    if (!link_->is_open()) return done_();  // its descriptor may be another's now
    std::array<char, 16 * 1024> room;
    ssize_t got = 0;
    while ((got = ::recv(link_->native_handle(), room.data(), room.size(), MSG_DONTWAIT)) > 0) {
      dropped_ += static_cast<std::size_t>(got);
      if (dropped_ > dropped_bytes_max) return done_();
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return done_();
    link_->async_wait(plain_socket::wait_read, [self = shared_from_this()](const boost::system::error_code& failed) {
      failed ? self->done_() : self->drain();
    });
  }

 private:
  const std::shared_ptr<plain_socket> link_;
  const std::function<void()> done_;
  std::size_t dropped_ = 0;
};

}  // namespace

bool begins_in_plain_text(int socket) {
  char first = 0;
  const auto lower = [&] { return ascii_lower(first); };
  return ::recv(socket, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && lower() >= 'a' && lower() <= 'z';
}

void answer_in_plain_text(std::shared_ptr<plain_socket> link, std::string_view answer, std::function<void()> done) {
  // The first bytes of a connection: an empty buffer takes them.
  static_cast<void>(::send(link->native_handle(), answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  ::shutdown(link->native_handle(), SHUT_WR);
  std::make_shared<last_words>(std::move(link), std::move(done))->drain();
}

}  // namespace fencegate::backend
