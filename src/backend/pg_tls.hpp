// TLS on a fresh link to a PostgreSQL server: SSLRequest, its answer, the handshake.
// (https://www.postgresql.org/docs/15/protocol-flow.html, "SSL Session Encryption")
#pragma once

#include "backend/tls_handshake.hpp"

#include <boost/asio/generic/stream_protocol.hpp>

#include <memory>

namespace fencegate::backend {

// `done` once, on the socket's thread, also when the socket is closed meanwhile. A server that declines is an error:
// nothing is ever sent in plain text instead. REQUIRES: the context lives until then.
void start_pg_tls(std::shared_ptr<boost::asio::generic::stream_protocol::socket> link, tls_context& context,
                  tls_opened done);

}  // namespace fencegate::backend
