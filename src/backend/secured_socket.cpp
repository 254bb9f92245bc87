#include "backend/secured_socket.hpp"

#include <boost/asio/buffer.hpp>

namespace fencegate::backend {

secured_socket::secured_socket(std::shared_ptr<stream::socket> of, std::unique_ptr<tls_stream> over)
    : socket_(std::move(of)), tls_(std::move(over)), drained_(false) {
  boost::system::error_code ignored;
  socket_->non_blocking(true, ignored);
}

secured_socket& secured_socket::operator=(secured_socket&& other) noexcept {
  close();
  socket_ = std::move(other.socket_);
  tls_ = std::move(other.tls_);
  drained_ = other.drained_;
  return *this;
}

void secured_socket::secure(std::unique_ptr<tls_stream> over) {
  tls_ = std::move(over);
  drained_ = false;
}

std::size_t secured_socket::receive(std::span<char> room, boost::system::error_code& failed) {
  if (tls_ == nullptr) return socket_->read_some(boost::asio::buffer(room.data(), room.size()), failed);
  const std::size_t bytes = tls_->receive(room, failed);
  drained_ = bytes == 0;
  return bytes;
}

std::size_t secured_socket::send(std::string_view bytes, boost::system::error_code& failed) {
  if (tls_ == nullptr) return socket_->write_some(boost::asio::buffer(bytes), failed);
  return tls_->send(bytes, failed);
}

void secured_socket::shutdown_send() {
  boost::system::error_code ignored;
  if (tls_ != nullptr) tls_->say_goodbye();
  socket_->shutdown(stream::socket::shutdown_send, ignored);
}

void secured_socket::close() {
  if (socket_ == nullptr) return;
  if (tls_ != nullptr) tls_->say_goodbye();
  tls_.reset();
  boost::system::error_code ignored;
  socket_->close(ignored);
  socket_.reset();
}

}  // namespace fencegate::backend
