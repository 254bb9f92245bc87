// Where log lines go: stderr, one line per event, as JSON or as logfmt, written through spdlog.
//
// A thread of its own writes them, out of a bounded queue: a reader that stops reading holds nothing up. Then the oldest lines are
// dropped; they are counted, and a line says so once there is room.
//
// Events carry bytes that peers chose. A line is valid UTF-8 and, as JSON, valid RFC 8259 whatever they are; no byte of
// theirs can end a line, start another one or reach a terminal as a control sequence.
#pragma once

#include "base/log.hpp"
#include "base/settings.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fencegate::admin {

// From here on base/log writes to stderr, each line whole, from any thread; no call waits. May be called again.
void install_log_sink(settings::log_level least, settings::log_format format);
// Waits until all lines are written, for so long at most. Before the process ends.
void flush_log(std::chrono::milliseconds patience);
// Lines that wait to be written.
[[nodiscard]] std::uint64_t log_lines_queued();
// Lines that were dropped since the start.
[[nodiscard]] std::uint64_t log_lines_dropped();

// "2026-01-31T12:00:00.250Z".
[[nodiscard]] std::string time_text(std::chrono::system_clock::time_point at);

// The line of one event, without its newline.
//   json: {"ts":"2026-01-31T12:00:00.250Z","level":"warn","msg":"write rejected","gate":"cache","token":33}
//   text: ts=2026-01-31T12:00:00.250Z level=warn msg="write rejected" gate=cache token=33
// A byte that is not part of valid UTF-8 becomes U+FFFD; a value is cut after limits::log_value_bytes_max.
[[nodiscard]] std::string log_line(settings::log_format format, std::chrono::system_clock::time_point at, log::level l,
                                   std::string_view message, const log::field* fields, std::size_t count);

}  // namespace fencegate::admin
