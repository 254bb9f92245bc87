#include "wire/http_chunks.hpp"

#include "base/limits.hpp"
#include "wire/http_bytes.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace fencegate::wire {

namespace {

constexpr std::size_t size_digits_max = 16;

}  // namespace

http_chunk_decoder::step http_chunk_decoder::advance(std::string_view input) {
  std::size_t at = 0;
  while (at < input.size()) {
    if (at_ == state::data) {
      const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(left_, input.size() - at));
      left_ -= bytes;
      if (left_ == 0) at_ = state::data_cr;
      return {.what = step::status::data, .consumed = at + bytes, .data = input.substr(at, bytes)};
    }
    if (const char* wrong = take(input[at++])) {
      return {.what = step::status::malformed, .consumed = at, .message = wrong};
    }
    if (over_) return {.what = step::status::complete, .consumed = at};
  }
  return {.what = step::status::more, .consumed = at};
}

const char* http_chunk_decoder::take(char c) {
  switch (at_) {
    case state::size: return take_size(c);
    case state::extension: return take_extension(c);
    case state::size_lf:
      if (c != '\n') return "a bare CR in a chunk's head";
      at_ = left_ == 0 ? state::trailer_start : state::data;
      digits_ = 0;
      extension_bytes_ = 0;
      return nullptr;
    case state::data_cr: at_ = state::data_lf; return c == '\r' ? nullptr : "no CRLF behind a chunk";
    case state::data_lf: at_ = state::size; return c == '\n' ? nullptr : "no CRLF behind a chunk";
    case state::end_lf: over_ = c == '\n'; return over_ ? nullptr : "a bare CR behind the last chunk";
    default: return take_trailer(c);
  }
}

const char* http_chunk_decoder::take_size(char c) {
  if (const int digit = hex_digit(c); digit >= 0) {
    // The first of 16 digits may be 7 at most, so nothing overflows.
    if (++digits_ > size_digits_max || left_ > (INT64_MAX >> 4)) return "a chunk size that is too large";
    left_ = left_ * 16 + static_cast<std::uint64_t>(digit);
    return nullptr;
  }
  if (digits_ == 0 || (c != '\r' && c != ';')) return "a malformed chunk size";
  at_ = c == '\r' ? state::size_lf : state::extension;
  return nullptr;
}

const char* http_chunk_decoder::take_extension(char c) {
  if (c == '\r') {
    at_ = state::size_lf;
    return nullptr;
  }
  if (!is_http(c, http_class::chunk_extra)) return "a malformed chunk extension";
  if (++extension_bytes_ > limits::http_chunk_extension_bytes_max ||
      ++extensions_bytes_ > limits::http_chunk_extensions_bytes_max) {
    return "too many bytes of chunk extensions";
  }
  return nullptr;
}

const char* http_chunk_decoder::take_trailer(char c) {
  if (++trailer_bytes_ > limits::http_trailer_bytes_max) return "too many bytes of trailers";
  if (at_ == state::trailer_start && c == '\r') {
    at_ = state::end_lf;
    return nullptr;
  }
  if (keeps_trailers_) kept_ += c;
  switch (at_) {
    case state::trailer_start:
      if (++trailers_ > limits::http_fields_max) return "too many trailers";
      at_ = state::trailer_name;
      return is_http(c, http_class::token) ? nullptr : "a malformed trailer";
    case state::trailer_name:
      if (c == ':') {
        at_ = state::trailer_value;
        return nullptr;
      }
      return is_http(c, http_class::token) ? nullptr : "a malformed trailer";
    case state::trailer_value:
      if (c == '\r') {
        at_ = state::trailer_lf;
        return nullptr;
      }
      return is_http(c, http_class::text) ? nullptr : "a malformed trailer";
    default: at_ = state::trailer_start; return c == '\n' ? nullptr : "a bare CR in a trailer";
  }
}

void append_chunk_head(std::string& out, std::uint64_t size) {
  std::array<char, size_digits_max> digits{};
  const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), size, 16);
  out.append(digits.data(), written.ptr).append("\r\n");
}

}  // namespace fencegate::wire
