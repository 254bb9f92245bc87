#include "gate/relay/link_owner.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace fencegate::gate {

namespace asio = boost::asio;

result<void> take_over(peer& to, stream::socket& from, std::unique_ptr<backend::tls_stream> secured) {
  boost::system::error_code failed, tcp_only;
  from.set_option(asio::ip::tcp::no_delay(true), tcp_only);  // a unix socket knows no such thing
  to.socket.take(std::move(from), std::move(secured), failed);
  if (failed) return error{failed.message()};
  return {};
}

void link_owner::dial(const std::vector<stream::endpoint>& targets, std::function<void(const result<void>&)> done) {
  connecting_ = std::make_shared<stream::socket>(context_);
  const auto wanted = [self = shared_from_this(), mine = attempt_] { return !self->closed_ && mine == self->attempt_; };
  auto on_secured = [this, wanted, done](result<std::unique_ptr<backend::tls_stream>> link) {
    if (!wanted()) return;
    backend_.ended = false;
    const auto fresh = std::exchange(connecting_, nullptr);
    done(link ? take_over(backend_, *fresh, std::move(*link)) : result<void>(link.error()));
  };
  auto on_connected = [this, wanted, done = std::move(done), on_secured, fresh = connecting_](
                          const boost::system::error_code& failed, const stream::endpoint& answered) {
    if (!wanted()) return;
    if (failed) return done(error{failed.message()});
    linked_to_ = answered;
    if (tls_ == nullptr) return on_secured(std::unique_ptr<backend::tls_stream>());
    secure(fresh, on_secured);
  };
  asio::async_connect(*connecting_, targets, std::move(on_connected));
}

void link_owner::hang_up() {
  ++attempt_;
  boost::system::error_code ignored;
  if (connecting_ != nullptr) connecting_->close(ignored);
  connecting_ = nullptr;
  backend_.socket.close();
  backend_.sent = 0;
}

void link_owner::send_to_backend(std::string& bytes) {
  if (!backend_.send(bytes)) return;
  backend_.forget(bytes);
  backend_.socket.suspect();
}

}  // namespace fencegate::gate
