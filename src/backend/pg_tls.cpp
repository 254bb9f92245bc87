#include "backend/pg_tls.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <utility>

namespace fencegate::backend {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using stream = asio::generic::stream_protocol;

// SSLRequest: its length, and 1234 and 5679 in place of a version.
constexpr std::array<unsigned char, 8> ssl_request{0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f};

class opening : public std::enable_shared_from_this<opening> {
 public:
  opening(std::shared_ptr<stream::socket> link, tls_context& context, tls_opened done)
      : link_(std::move(link)), context_(context), done_(std::move(done)) {}

  void ask() {
    asio::async_write(*link_, asio::buffer(ssl_request),
                      [self = shared_from_this()](const error_code& failed, std::size_t) {
                        if (failed) return self->fail(failed.message());
                        self->read_answer();
                      });
  }

 private:
  // One byte and no more: what stands behind it came without TLS, and must not be taken for what TLS protects
  // (CVE-2021-23222). It is left for the handshake, which fails.
  void read_answer() {
    asio::async_read(*link_, asio::buffer(&answer_, 1),
                     [self = shared_from_this()](const error_code& failed, std::size_t) {
                       if (failed) return self->fail(failed.message());
                       self->on_answer();
                     });
  }

  void on_answer() {
    if (!link_->is_open()) return fail("the link was closed");
    // An error's text is not shown: nobody knows yet who says it (CVE-2024-10977).
    if (answer_ != 'S') return fail(answer_ == 'N' ? "the server does not offer it" : "the server did not understand");
    start_tls(link_, context_, done_);
  }

  void fail(const std::string& why) { done_(error{"TLS: " + why}); }

  const std::shared_ptr<stream::socket> link_;
  tls_context& context_;
  const tls_opened done_;
  char answer_ = 0;
};

}  // namespace

void start_pg_tls(std::shared_ptr<stream::socket> link, tls_context& context, tls_opened done) {
  std::make_shared<opening>(std::move(link), context, std::move(done))->ask();
}

}  // namespace fencegate::backend
