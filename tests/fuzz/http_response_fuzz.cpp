// uses: wire
// An upstream's stream: how TCP cuts it changes nothing. First byte: the request's method; second: the size of the pieces.
#include "support/http_readers.hpp"

#include <cstdint>
#include <cstdlib>

using namespace fencegate;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

// What becomes of it; the last one is the trailers that go on.
std::vector<std::string> verdicts(const char* method, std::string_view stream, std::size_t piece) {
  test::http_response_reader reader(method);
  for (std::size_t at = 0; at < stream.size(); at += piece) reader.feed(stream.substr(at, piece));
  auto lines = reader.verdicts();
  require(!lines.empty());
  lines.push_back(reader.trailers());
  return lines;
}

// They are read back as what they are, and none of them could be taken for the gate's own word.
void check_trailers(const std::string& trailers) {
  const auto head = "HTTP/1.1 200 OK\r\n" + trailers + "\r\n";
  wire::http_response_head read;
  require(wire::parse_response_head(head, read).has_value());
  std::string again;
  for (const auto& field : read.fields) {
    require(wire::may_be_trailer(field.name, {}) && !same_field_name(field.name, "Fencing-Mark"));
    wire::append_header_field(again, field.name, field.value);
  }
  require(again == trailers);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto* method = data[0] == 'H' ? "HEAD" : "GET";
  const std::string_view stream(reinterpret_cast<const char*>(data) + 2, size - 2);
  auto whole = verdicts(method, stream, stream.size() + 1);
  require(verdicts(method, stream, std::size_t{1} + data[1] % 64) == whole);
  check_trailers(whole.back());
  whole.pop_back();
  // Interim responses, then one answer or none; no body where there may be none.
  for (const auto& line : whole) require((line.size() == 3 && line < "200") == (&line != &whole.back()));
  if (data[0] == 'H') require(whole.back().size() <= std::string_view("200 close").size());
  return 0;
}
