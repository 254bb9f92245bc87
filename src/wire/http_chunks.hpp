// The chunked coding of bodies (RFC 9112 section 7.1), read strictly in any pieces, without buffering any of the body.
// Extensions and trailers are checked, bounded and dropped; trailers are kept where that was asked for, see http_trailers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fencegate::wire {

class http_chunk_decoder {
 public:
  struct step {
    enum class status : std::uint8_t {
      more,      // all was taken; the body goes on
      data,      // `data` belongs to the body; call again with what is left
      complete,  // the body and its trailers are over; what is left belongs to the next message
      malformed
    };
    status what = status::more;
    std::size_t consumed = 0;
    std::string_view data = {};     // into the input
    std::string_view message = {};  // malformed only; static storage
  };

  // REQUIRES: no call returned complete or malformed yet.
  // Malformed: a size without digits, of more than 16 of them or above 2^63 - 1; a sign, a prefix or a blank around it; a
  // bare CR or LF; a control character; extensions beyond limits::http_chunk_extension_bytes_max, in all beyond
  // limits::http_chunk_extensions_bytes_max; a malformed trailer, more than
  // limits::http_fields_max of them, or more than limits::http_trailer_bytes_max bytes of them.
  [[nodiscard]] step advance(std::string_view input);

  // From now on trailers are kept. REQUIRES: nothing was read.
  void keep_trailers() { keeps_trailers_ = true; }
  // REQUIRES: complete. The lines of all trailers, each with its CRLF, as they came.
  [[nodiscard]] std::string_view trailers() const { return kept_; }

 private:
  enum class state : std::uint8_t {
    size,           // hexadecimal digits
    extension,      // behind ';'
    size_lf,        // LF of the size line is due
    data,           // `left_` bytes of the chunk are to come
    data_cr,        // behind the chunk: CR is due
    data_lf,        // LF is due
    trailer_start,  // behind the last chunk, or a trailer: CR ends the body
    trailer_name,   // up to ':'
    trailer_value,  // up to CR
    trailer_lf,     // LF of a trailer is due
    end_lf          // LF of the empty line is due
  };

  // Takes one byte outside a chunk's data. nullptr: it fits. Else what is wrong.
  const char* take(char c);
  const char* take_size(char c);
  const char* take_extension(char c);
  const char* take_trailer(char c);

  state at_ = state::size;
  std::uint64_t left_ = 0;
  std::size_t digits_ = 0;
  std::size_t extension_bytes_ = 0;   // of this chunk
  std::size_t extensions_bytes_ = 0;  // of the body
  std::size_t trailer_bytes_ = 0;
  std::size_t trailers_ = 0;
  std::string kept_;
  bool keeps_trailers_ = false;
  bool over_ = false;
};

// One chunk is its head, its bytes, and chunk_end. REQUIRES: size > 0; a chunk of none would end the body.
void append_chunk_head(std::string& out, std::uint64_t size);
inline constexpr std::string_view http_chunk_end = "\r\n";
// The last chunk; its trailers and an empty line follow.
inline constexpr std::string_view http_last_chunk = "0\r\n";

}  // namespace fencegate::wire
