#include "admin/log_sink.hpp"

#include "base/limits.hpp"

#include <spdlog/async_logger.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/sinks/base_sink.h>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

namespace fencegate::admin {
namespace {

std::string_view name_of(log::level l) {
  switch (l) {
    case log::level::debug: return "debug";
    case log::level::info: return "info";
    case log::level::warn: return "warn";
    case log::level::error: return "error";
  }
  return "error";
}

unsigned char byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

// Bytes of the UTF-8 character at `text[0]`; 0 where there is none (RFC 3629: no overlong form, no surrogate, not above
// U+10FFFF). REQUIRES: text is not empty.
std::size_t utf8_length(std::string_view text) {
  const unsigned char first = byte_at(text, 0);
  if (first < 0x80) return 1;
  std::size_t length = 0;
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) second_min = 0xA0;
    if (first == 0xED) second_max = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) second_min = 0x90;
    if (first == 0xF4) second_max = 0x8F;
  }
  if (length == 0 || text.size() < length) return 0;
  if (byte_at(text, 1) < second_min || byte_at(text, 1) > second_max) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte_at(text, i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

void append_code_unit(std::string& out, unsigned value) {
  constexpr std::string_view digits = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += digits[(value >> shift) & 0xF];
}

// `text` between quotes, escaped as in JSON.
void append_quoted(std::string& out, std::string_view text) {
  const bool cut = text.size() > limits::log_value_bytes_max;
  text = text.substr(0, limits::log_value_bytes_max);
  out += '"';
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const unsigned char first = byte_at(text, 0);
    if (length == 0) {
      append_code_unit(out, 0xFFFD);
    } else if (first == '"' || first == '\\') {
      out += '\\';
      out += text[0];
    } else if (first < 0x20 || first == 0x7F) {
      append_code_unit(out, first);
    } else if (first == 0xC2 && byte_at(text, 1) < 0xA0) {
      append_code_unit(out, byte_at(text, 1));  // U+0080 … U+009F: 8-bit control sequences of terminals
    } else {
      out.append(text, 0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  out += cut ? "…\"" : "\"";
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_.:/-@+,%").find(c) != std::string_view::npos;
}

// logfmt: a word as it is, anything else between quotes.
void append_word(std::string& out, std::string_view text) {
  if (!text.empty() && text.size() <= limits::log_value_bytes_max && std::all_of(text.begin(), text.end(), is_plain)) {
    out += text;
  } else {
    append_quoted(out, text);
  }
}

std::string json_line(std::chrono::system_clock::time_point at, log::level l, std::string_view message,
                      const log::field* fields, std::size_t count) {
  std::string out = "{\"ts\":\"" + time_text(at) + "\",\"level\":\"";
  out += name_of(l);
  out += "\",\"msg\":";
  append_quoted(out, message);
  for (const log::field* f = fields; f != fields + count; ++f) {
    out += ',';
    append_quoted(out, f->key);
    out += ':';
    if (const auto* number = std::get_if<std::int64_t>(&f->value)) {
      out += std::to_string(*number);
    } else {
      append_quoted(out, std::get<std::string_view>(f->value));
    }
  }
  out += '}';
  return out;
}

std::string text_line(std::chrono::system_clock::time_point at, log::level l, std::string_view message,
                      const log::field* fields, std::size_t count) {
  std::string out = "ts=" + time_text(at) + " level=";
  out += name_of(l);
  out += " msg=";
  append_quoted(out, message);
  for (const log::field* f = fields; f != fields + count; ++f) {
    out += ' ';
    append_word(out, f->key);
    out += '=';
    if (const auto* number = std::get_if<std::int64_t>(&f->value)) {
      out += std::to_string(*number);
    } else {
      append_word(out, std::get<std::string_view>(f->value));
    }
  }
  return out;
}

// How many lines wait for a reader. A line takes about half a KiB.
constexpr std::size_t lines_queued_max = 2048;

// Writes to stderr by its descriptor: a thread that waits in fwrite() would hold up the end of the process, too.
class stderr_sink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  // Lines that were taken out of the queue and written, or could not be.
  [[nodiscard]] std::uint64_t done() const { return done_.load(); }
  std::function<void()> before_line;

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (before_line) before_line();
    std::string line(message.payload.data(), message.payload.size());
    write_whole(line += '\n');
    done_.fetch_add(1);
  }
  void flush_() override {}

 public:
  static void write_whole(std::string_view text) {
    while (!text.empty()) {
      const auto written = ::write(STDERR_FILENO, text.data(), text.size());
      if (written >= 0) {
        text.remove_prefix(static_cast<std::size_t>(written));
        continue;
      }
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return;  // nobody reads any more
      pollfd writable{STDERR_FILENO, POLLOUT, 0};
      ::poll(&writable, 1, -1);
    }
  }

 private:
  std::atomic<std::uint64_t> done_{0};
};

// The queue, its thread and its sink.
class queued_log {
 public:
  queued_log()
      : pool_(std::make_shared<spdlog::details::thread_pool>(lines_queued_max, 1)),
        sink_(std::make_shared<stderr_sink>()),
        logger_(std::make_shared<spdlog::async_logger>("fencegate", sink_, pool_,
                                                       spdlog::async_overflow_policy::overrun_oldest)) {
    logger_->set_level(spdlog::level::trace);  // base/log has decided already
    sink_->before_line = [this] { tell_of_dropped(); };
  }

  void add(const std::string& line) {
    added_.fetch_add(1);
    logger_->log(spdlog::level::info, spdlog::string_view_t(line.data(), line.size()));
  }
  [[nodiscard]] std::uint64_t dropped() const { return pool_->overrun_counter(); }
  [[nodiscard]] std::uint64_t waiting() const {
    const auto over = sink_->done() + dropped();
    return std::max(added_.load(), over) - over;
  }
  void write_as(settings::log_format format) { format_ = format; }
  [[nodiscard]] settings::log_format format() const { return format_; }

 private:
  // On the log's thread, which has room again.
  void tell_of_dropped() {
    const auto all = dropped();
    if (all == told_) return;
    const log::field count{"lines", static_cast<std::int64_t>(all - std::exchange(told_, all))};
    stderr_sink::write_whole(log_line(format_, std::chrono::system_clock::now(), log::level::warn,
                                      "log lines were dropped: stderr was not read in time", &count, 1) +
                             '\n');
  }

  std::shared_ptr<spdlog::details::thread_pool> pool_;
  std::shared_ptr<stderr_sink> sink_;
  std::shared_ptr<spdlog::async_logger> logger_;
  std::atomic<std::uint64_t> added_{0};
  std::atomic<settings::log_format> format_{settings::log_format::json};
  std::uint64_t told_ = 0;
};

// Lives until the process has ended: other threads may log while main's static objects are destroyed, and its own may wait for
// a reader.
queued_log& queue() {
  static queued_log& one = *new queued_log;
  return one;
}

void write_line(log::level l, std::string_view message, const log::field* fields, std::size_t count) {
  queue().add(log_line(queue().format(), std::chrono::system_clock::now(), l, message, fields, count));
}

}  // namespace

std::string time_text(std::chrono::system_clock::time_point at) {
  using namespace std::chrono;
  const auto seconds = floor<std::chrono::seconds>(at);
  const auto millis = static_cast<int>(duration_cast<milliseconds>(at - seconds).count());
  const std::time_t since_epoch = system_clock::to_time_t(seconds);
  std::tm parts{};
  gmtime_r(&since_epoch, &parts);
  char text[64];
  const int length = std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900,
                                   parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, millis);
  return std::string(text, static_cast<std::size_t>(length));
}

std::string log_line(settings::log_format format, std::chrono::system_clock::time_point at, log::level l,
                     std::string_view message, const log::field* fields, std::size_t count) {
  return format == settings::log_format::json ? json_line(at, l, message, fields, count)
                                              : text_line(at, l, message, fields, count);
}

void install_log_sink(settings::log_level least, settings::log_format format) {
  queue().write_as(format);  // made here and not by the first event, which may come when memory is short
  const log::level from = [&] {
    switch (least) {
      case settings::log_level::debug: return log::level::debug;
      case settings::log_level::info: return log::level::info;
      case settings::log_level::warn: return log::level::warn;
      case settings::log_level::error: return log::level::error;
    }
    return log::level::info;
  }();
  log::set_sink(write_line, from);
}

void flush_log(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (queue().waiting() != 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

std::uint64_t log_lines_queued() { return queue().waiting(); }

std::uint64_t log_lines_dropped() { return queue().dropped(); }

}  // namespace fencegate::admin
