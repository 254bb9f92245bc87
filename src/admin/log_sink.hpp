// Where log lines go: stderr, one line per event, as JSON or as logfmt, written through spdlog.
//
// Events carry bytes that peers chose. A line is valid UTF-8 and, as JSON, valid RFC 8259 whatever they are; no byte of
// theirs can end a line, start another one or reach a terminal as a control sequence.
#pragma once

#include "base/log.hpp"
#include "base/settings.hpp"

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::admin {

// From here on base/log writes to stderr: each line at once and whole, from any thread. May be called again.
void install_log_sink(settings::log_level least, settings::log_format format);

// "2026-01-31T12:00:00.250Z".
[[nodiscard]] std::string time_text(std::chrono::system_clock::time_point at);

// The line of one event, without its newline.
//   json: {"ts":"2026-01-31T12:00:00.250Z","level":"warn","msg":"write rejected","gate":"cache","token":33}
//   text: ts=2026-01-31T12:00:00.250Z level=warn msg="write rejected" gate=cache token=33
// A byte that is not part of valid UTF-8 becomes U+FFFD; a value is cut after limits::log_value_bytes_max.
[[nodiscard]] std::string log_line(settings::log_format format, std::chrono::system_clock::time_point at, log::level l,
                                   std::string_view message, const log::field* fields, std::size_t count);

}  // namespace fencegate::admin
