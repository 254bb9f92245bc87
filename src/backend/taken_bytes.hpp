// How much of what came on a TCP connection was taken off its socket, by whomever: libpq says nothing of what it reads.
#pragma once

#include <cstdint>
#include <optional>

namespace fencegate::backend {

// Since the connection began, TLS and all; a little less while more is coming. nullopt: the kernel does not say, as of a
// unix socket.
[[nodiscard]] std::optional<std::uint64_t> taken_bytes(int socket);

}  // namespace fencegate::backend
