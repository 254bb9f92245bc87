// uses: wire
// A stream of messages from a server: every body is given to every decoder, whatever its type says.
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

bool lies_in(std::string_view part, std::string_view whole) {
  return part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size();
}

void check_error(std::string_view body) {
  const auto got = decode_pg_error(body);
  if (!got) {
    return;
  }
  const std::string again = encode_pg_error(*got);
  require(decode_pg_error(std::string_view(again).substr(pg_head_bytes)).value() == *got);
  require(!decode_pg_error(body.substr(0, body.size() - 1)) && !decode_pg_error(std::string(body) + 'x'));
}

void check_strings(std::string_view body) {
  int counts = 0;
  for (std::size_t count = 0; count < 4; ++count) {
    const auto got = decode_pg_strings(body, count);
    if (!got) {
      continue;
    }
    ++counts;
    std::string again;
    for (const std::string_view text : *got) {
      again += std::string(text) + '\0';
    }
    require(got->size() == count && again == body);
  }
  require(counts <= 1);
}

void check_row(std::string_view body) {
  const auto got = decode_pg_row(body);
  if (!got) {
    return;
  }
  std::size_t bytes = 2;
  for (const auto& value : *got) {
    require(!value || lies_in(*value, body));
    bytes += 4 + (value ? value->size() : 0);
  }
  require(bytes == body.size());
}

void check_sasl(std::string_view body) {
  const auto got = without_sasl_mechanism(body, "SCRAM-SHA-256-PLUS");
  if (got) {
    require(got->size() < body.size() && got->starts_with(body.substr(0, 4)) && got->back() == '\0');
    require(!without_sasl_mechanism(*got, "SCRAM-SHA-256-PLUS"));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  for (;;) {
    const auto head = decode_pg_head(rest);
    if (!head || !*head || rest.size() - pg_head_bytes < (*head)->body_bytes) {
      return 0;
    }
    const std::string_view body = rest.substr(pg_head_bytes, (*head)->body_bytes);
    check_error(body);
    check_strings(body);
    check_row(body);
    check_sasl(body);
    const auto ready = decode_pg_ready(body);
    require(ready.has_value() == (body == "I" || body == "T" || body == "E"));
    rest.remove_prefix(pg_head_bytes + body.size());
  }
}
