// What a client hears that speaks HTTP in plain text where TLS is wanted: an answer that it can read, and a clean end.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace fencegate::backend {

inline constexpr std::string_view plain_http_on_tls = "The plain HTTP request was sent to a TLS port";

// Whether the first byte that waits on this socket begins a method of HTTP, which no TLS begins with. It stays there.
[[nodiscard]] bool begins_in_plain_text(int socket);

// Sends this, and drops what the client sends until it closes: unread bytes would take the answer back with the connection.
// `done` once, on the socket's thread, also when the socket is closed meanwhile. REQUIRES: it does not block.
void answer_in_plain_text(std::shared_ptr<boost::asio::generic::stream_protocol::socket> link, std::string_view answer,
                          std::function<void()> done);

}  // namespace fencegate::backend
