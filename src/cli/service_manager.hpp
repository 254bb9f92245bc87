// What systemd, or another that reads sd_notify(3), is told about this process: Type=notify in its unit. It says in
// NOTIFY_SOCKET where it listens; without that nobody is told.
#pragma once

#include "base/result.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace fencegate::cli {

// Its gates listen, with the configuration that it read last, or, if that was wrong, as before.
void tell_ready();
// It reads its configuration again; tell_ready() comes behind it.
void tell_reloading();
// It drains, and may take as long as this: the time that the unit gives to a stop (TimeoutStopSec=) is no less.
void tell_stopping(std::chrono::milliseconds longest);

// Sends `state`, lines NAME=VALUE, to the datagram socket at `address`: a path, or an abstract name behind '@'. Blocks for
// two seconds at most.
[[nodiscard]] result<void> notify(const std::string& address, std::string_view state);

}  // namespace fencegate::cli
