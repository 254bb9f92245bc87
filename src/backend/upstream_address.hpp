// Where a server is now: resolves its name at the start and every half minute, and keeps what was known while that fails.
#pragma once

#include "base/settings.hpp"

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fencegate::backend {

class upstream_address : public std::enable_shared_from_this<upstream_address> {
 public:
  using endpoint = boost::asio::generic::stream_protocol::endpoint;

  upstream_address(boost::asio::io_context& context, settings::address of);

  // On the context's thread. Keeps `unsettled` until the name was resolved, or could not be, for the first time.
  void start(std::shared_ptr<void> unsettled);
  void stop();

  // Any thread. Empty until the name was resolved; then why_unresolved() says what is wrong.
  [[nodiscard]] std::vector<endpoint> endpoints() const;
  [[nodiscard]] std::string why_unresolved() const;

 private:
  void resolve();
  void resolve_later(bool failed);

  const settings::address address_;
  boost::asio::ip::tcp::resolver resolver_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<void> unsettled_;
  bool stopped_ = false;
  mutable std::mutex mutex_;
  std::vector<endpoint> endpoints_;
  std::string unresolved_ = "its name was not resolved yet";
};

}  // namespace fencegate::backend
