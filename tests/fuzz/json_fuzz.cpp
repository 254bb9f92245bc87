// uses: wire fence
// Whatever a peer says, what is written about it is JSON. First byte: a type of PostgreSQL; the rest: a value, a text of a
// problem, and where it is one, a reply of Redis.
#include "base/json_text.hpp"
#include "base/utf8.hpp"
#include "fence/problem.hpp"
#include "wire/reply_json.hpp"
#include "wire/sql_json.hpp"

#include <boost/json/parse.hpp>

#include <array>
#include <cstdint>
#include <cstdlib>

using namespace fencegate;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

boost::json::value read_back(const std::string& text) {
  boost::json::parse_options options;
  options.max_depth = 300;  // replies nest up to 128, documents up to 256
  boost::json::error_code wrong;
  auto value = boost::json::parse(text, wrong, {}, options);
  require(!wrong && is_utf8(text));
  return value;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  constexpr std::array<std::uint32_t, 12> types{16, 17, 20, 21, 23, 25, 26, 114, 700, 701, 1700, 3802};
  const auto type = types[data[0] % types.size()];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);

  std::string out;
  append_json_string(out, text);
  const auto value = read_back(out);
  if (is_utf8(text)) require(value.as_string() == text);

  out.clear();
  wire::sql_row_writer(std::vector<wire::sql_column>{{text, type}, {text, 25}})
      .append(out, std::vector<std::optional<std::string_view>>{text, std::nullopt});
  require(read_back(out).as_object().size() == 2);

  const auto described = read_back(fence::problem_json(fence::problem_of(
      fence::rejection{fence::reason::refused, std::string(text), fence::token(1), {}, std::string(text)})));
  require(described.at("applied").as_string() == "no");
  read_back(fence::problem_json(fence::problem_of(fence::sql_error{text.substr(0, 5), text, text, text})));

  const auto reply = wire::parse_value(text);
  if (reply && *reply) {
    out.clear();
    wire::append_reply_json(out, (*reply)->first);
    read_back(out);
  }
  return 0;
}
