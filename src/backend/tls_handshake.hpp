// The handshake of TLS on a connected socket of Asio's, without blocking.
#pragma once

#include "backend/tls.hpp"

#include <boost/asio/generic/stream_protocol.hpp>

#include <functional>
#include <memory>

namespace fencegate::backend {

using tls_opened = std::function<void(result<std::unique_ptr<tls_stream>>)>;

// `done` once, on the socket's thread, also when the socket is closed meanwhile. REQUIRES: the stream is of the socket, which
// does not block.
void shake_hands(std::shared_ptr<boost::asio::generic::stream_protocol::socket> link, std::unique_ptr<tls_stream> over,
                 tls_opened done);

// The same, as the client of a server from which nothing was read.
void start_tls(std::shared_ptr<boost::asio::generic::stream_protocol::socket> link, tls_context& context,
               tls_opened done);

}  // namespace fencegate::backend
