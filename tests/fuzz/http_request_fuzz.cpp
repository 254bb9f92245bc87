// uses: wire
// A client's stream: how TCP cuts it changes nothing, and what goes out canonically is read again as the same.
// First byte: the size of the pieces.
#include "support/http_readers.hpp"

#include <cstdint>
#include <cstdlib>

using namespace fencegate;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

std::vector<std::string> verdicts(std::string_view stream, std::size_t piece) {
  test::http_request_reader reader;
  for (std::size_t at = 0; at < stream.size(); at += piece) reader.feed(stream.substr(at, piece));
  return reader.verdicts();
}

// The request of a verdict "pass METHOD TARGET [BODY]", as the gate would write it.
std::string written_anew(std::string_view verdict) {
  verdict.remove_prefix(5);
  const auto method = verdict.substr(0, verdict.find(' '));
  verdict.remove_prefix(method.size() + 1);
  const auto target = verdict.substr(0, verdict.find(' '));
  verdict.remove_prefix(std::min(verdict.size(), target.size() + 1));
  std::string out;
  wire::append_request_line(out, method, target);
  wire::append_header_field(out, "Host", "a");
  wire::append_framing_field(out, {.what = wire::http_framing::kind::chunked});
  out += "\r\n";
  if (!verdict.empty()) {
    wire::append_chunk_head(out, verdict.size());
    out.append(verdict).append(wire::http_chunk_end);
  }
  out.append(wire::http_last_chunk).append("\r\n");
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto whole = verdicts(stream, stream.size() + 1);
  require(verdicts(stream, std::size_t{1} + data[0] % 64) == whole);
  for (const auto& verdict : whole) {
    if (verdict.starts_with("pass ")) require(verdicts(written_anew(verdict), 1U << 20) == std::vector{verdict});
  }
  return 0;
}
