#include "backend/tls_handshake.hpp"

#include <utility>

namespace fencegate::backend {
namespace {

using stream = boost::asio::generic::stream_protocol;
using boost::system::error_code;

class handshake : public std::enable_shared_from_this<handshake> {
 public:
  handshake(std::shared_ptr<stream::socket> link, std::unique_ptr<tls_stream> over, tls_opened done)
      : link_(std::move(link)), over_(std::move(over)), done_(std::move(done)) {}

  void go_on() {
    using waits_for = tls_stream::waits_for;
    if (!link_->is_open()) return fail("the link was closed");  // its descriptor may be another's now
    const auto waits = over_->shake_hands();
    if (!waits) return done_(waits.error());
    if (*waits == waits_for::nothing) return done_(std::move(over_));
    link_->async_wait(*waits == waits_for::readable ? stream::socket::wait_read : stream::socket::wait_write,
                      [self = shared_from_this()](const error_code& failed) {
                        if (failed) return self->fail(failed.message());
                        self->go_on();
                      });
  }

 private:
  void fail(const std::string& why) { done_(error{"TLS: " + why}); }

  const std::shared_ptr<stream::socket> link_;
  std::unique_ptr<tls_stream> over_;
  const tls_opened done_;
};

}  // namespace

void shake_hands(std::shared_ptr<stream::socket> link, std::unique_ptr<tls_stream> over, tls_opened done) {
  std::make_shared<handshake>(std::move(link), std::move(over), std::move(done))->go_on();
}

void start_tls(std::shared_ptr<stream::socket> link, tls_context& context, tls_opened done) {
  error_code failed;
  link->native_non_blocking(true, failed);
  if (failed) return done(error{"TLS: " + failed.message()});
  auto over = context.open(link->native_handle());
  if (!over) return done(over.error());
  shake_hands(std::move(link), std::move(*over), std::move(done));
}

}  // namespace fencegate::backend
