// uses: wire
// A stream of messages from a client behind its opening: heads, and the statements of Query and Parse.
#include "wire/pg_message.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

using namespace fencegate::wire;

namespace {

void require(bool claim) {
  if (!claim) {
    std::abort();
  }
}

void check_query(std::string_view body) {
  const auto got = decode_pg_query(body);
  require(got.has_value() == (body.find('\0') == body.size() - 1 && !body.empty()));
  if (got) {
    require(encode_pg_query(got->sql) == encode_pg_message('Q', body));
  }
}

void check_parse(std::string_view body) {
  const auto got = decode_pg_parse(body);
  if (!got) {
    return;
  }
  std::string again = std::string(got->name) + '\0' + std::string(got->sql) + '\0';
  require(body.starts_with(again) && body.size() >= again.size() + 2 && (body.size() - again.size()) % 4 == 2);
  require(!decode_pg_parse(body.substr(0, body.size() - 1)) && !decode_pg_parse(std::string(body) + '\0'));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  for (;;) {
    const auto head = decode_pg_head(rest);
    if (!head) {
      return 0;
    }
    require(head->has_value() == (rest.size() >= pg_head_bytes));
    if (!*head) {
      return 0;
    }
    require((*head)->type == rest[0] && (*head)->body_bytes <= 0x7FFF'FFFB);
    if (rest.size() - pg_head_bytes < (*head)->body_bytes) {
      return 0;
    }
    const std::string_view body = rest.substr(pg_head_bytes, (*head)->body_bytes);
    require(encode_pg_message(rest[0], body) == rest.substr(0, pg_head_bytes + body.size()));
    check_query(body);
    check_parse(body);
    rest.remove_prefix(pg_head_bytes + body.size());
  }
}
