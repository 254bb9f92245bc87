#include "gate/http/http_body.hpp"

#include <algorithm>

namespace fencegate::gate {

using wire::http_chunk_decoder;
using wire::http_framing;

void http_body::begin(const http_framing& as_it_comes, http_framing::kind as_it_goes_on) {
  *this = http_body{};
  from_ = as_it_comes;
  to_ = as_it_goes_on;
  left_ = from_.length;
  complete_ = from_.what == http_framing::kind::none || (from_.what == http_framing::kind::length && left_ == 0);
}

void http_body::let_trailers_through(const wire::http_trailer_rules& rules) {
  chunks_.keep_trailers();
  trailer_rules_ = rules;
}

http_body::progress http_body::move(byte_queue& from, std::string& to) {
  if (complete_) return progress::complete;
  while (!from.empty()) {
    const std::string_view there = from.view();
    if (from_.what == http_framing::kind::chunked) {
      const auto step = chunks_.advance(there);
      if (step.what == http_chunk_decoder::step::status::malformed) {
        wrong_ = step.message;
        return progress::malformed;
      }
      put(step.data, to);
      from.consume(step.consumed);
      if (step.what == http_chunk_decoder::step::status::complete) return finish(to);
    } else if (from_.what == http_framing::kind::until_close) {
      put(there, to);
      from.consume(there.size());
    } else {
      const auto take = static_cast<std::size_t>(std::min<std::uint64_t>(left_, there.size()));
      put(there.substr(0, take), to);
      from.consume(take);
      left_ -= take;
      if (left_ == 0) return finish(to);
    }
  }
  return progress::waiting;
}

http_body::progress http_body::on_end(std::string& to) {
  if (complete_) return progress::complete;
  if (from_.what == http_framing::kind::until_close) return finish(to);
  wrong_ = "the connection was closed in the middle of the body";
  return progress::malformed;
}

void http_body::put(std::string_view bytes, std::string& to) {
  if (bytes.empty()) return;
  moved_ += bytes.size();
  if (to_ == http_framing::kind::none) return;  // nobody wants it
  if (to_ == http_framing::kind::chunked) wire::append_chunk_head(to, bytes.size());
  to += bytes;
  if (to_ == http_framing::kind::chunked) to += wire::http_chunk_end;
}

http_body::progress http_body::finish(std::string& to) {
  if (to_ == http_framing::kind::chunked) {
    to += wire::http_last_chunk;
    wire::append_trailers(to, chunks_.trailers(), trailer_rules_);
    to += "\r\n";
    chunks_ = {};  // the next message may be long in coming
  }
  complete_ = true;
  return progress::complete;
}

}  // namespace fencegate::gate
