// uses: wire
// The first packet of a client, at every size that it can have arrived in, and the options in it.
#include "wire/pg_opening.hpp"

#include <algorithm>
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

bool same(const std::vector<pg_option>& a, const std::vector<pg_option>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const pg_option& x, const pg_option& y) { return x.name == y.name && x.value == y.value; });
}

void check_options(std::string_view options) {
  const auto all = pg_settings_in_options(options);
  for (const pg_option& unwanted : all) {
    const std::string rest = pg_options_without(options, unwanted.name);
    auto expected = all;
    std::erase_if(expected, [&](const pg_option& s) { return s.name == unwanted.name; });
    require(same(pg_settings_in_options(rest), expected));
    require(pg_options_without(rest, unwanted.name) == rest);
  }
  require(same(pg_settings_in_options(pg_options_without(options, "no.such")), all) ||
          std::any_of(all.begin(), all.end(), [](const pg_option& s) { return s.name == "no.such"; }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check_options(input);
  const auto whole = decode_pg_opening(input);
  // Once decided, it stays so: more bytes change nothing.
  const std::size_t decided = whole && *whole ? (*whole)->bytes : size;
  require(decided <= size);
  for (std::size_t part = 0; part < std::min<std::size_t>(decided, 64); ++part) {
    const auto early = decode_pg_opening(input.substr(0, part));
    if (whole) {
      require(early && !*early);
    } else if (!early) {
      require(early.error().message == whole.error().message);
    } else {
      require(!*early);
    }
  }
  if (!whole || !*whole) {
    return 0;
  }
  const pg_opening& got = **whole;
  if (got.what != pg_opening::kind::start) {
    require(got.parameters.empty() && got.version == 0);
    return 0;
  }
  require(got.version >> 16 == 3);
  require(encode_pg_start(got.version, got.parameters) == input.substr(0, got.bytes));
  for (const auto& [name, value] : got.parameters) {
    require(!name.empty() && got.parameter(name).has_value());
  }
  if (const auto options = got.parameter("options")) {
    check_options(*options);
  }
  return 0;
}
