// A body on its way through the gate: taken out of one framing, put into another, in whatever pieces it comes.
#pragma once

#include "base/byte_queue.hpp"
#include "wire/http_chunks.hpp"
#include "wire/http_framing.hpp"
#include "wire/http_trailers.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fencegate::gate {

class http_body {
 public:
  enum class progress : std::uint8_t {
    waiting,   // all that was there is taken; more is to come
    complete,  // the body is over, and its end is written; what is left belongs to the next message
    malformed  // the chunked coding is broken: nothing behind it can be told apart
  };

  // As it comes, and as it goes on. REQUIRES: a length is not changed.
  void begin(const wire::http_framing& as_it_comes, wire::http_framing::kind as_it_goes_on);
  // Its trailers go on, too, those that are safe; else they are dropped. REQUIRES: it comes and goes on in chunks, and has
  // just begun; what `rules` looks at lives until the body is complete.
  void let_trailers_through(const wire::http_trailer_rules& rules);
  // Moves what is there.
  [[nodiscard]] progress move(byte_queue& from, std::string& to);
  // The connection that it came by was closed: that ends a body without a length, and breaks any other.
  [[nodiscard]] progress on_end(std::string& to);

  [[nodiscard]] bool complete() const { return complete_; }
  // Bytes of content moved so far.
  [[nodiscard]] std::uint64_t moved() const { return moved_; }
  [[nodiscard]] const char* what_is_malformed() const { return wrong_.data(); }

 private:
  void put(std::string_view bytes, std::string& to);
  progress finish(std::string& to);

  wire::http_framing from_;
  wire::http_framing::kind to_ = wire::http_framing::kind::none;
  wire::http_chunk_decoder chunks_;
  wire::http_trailer_rules trailer_rules_;
  std::uint64_t left_ = 0;
  std::uint64_t moved_ = 0;
  bool complete_ = true;
  std::string_view wrong_ = "";
};

}  // namespace fencegate::gate
