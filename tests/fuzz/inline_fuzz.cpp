// uses: wire hiredis
// Inline command lines against sdssplitargs, the function that Redis splits them with (hiredis carries a copy).
#include "wire/resp_inline.hpp"
#include "wire/resp_request.hpp"

extern "C" {  // which this header leaves to its reader
#include <hiredis/sds.h>
}

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

using namespace fencegate::wire;

namespace {

void require(bool claim) {
  if (!claim) {
    std::abort();
  }
}

struct reference {
  bool balanced = false;
  std::vector<std::string> words;
};

reference split_as_redis(const std::string& line) {
  int count = 0;
  sds* words = sdssplitargs(line.c_str(), &count);
  reference out;
  out.balanced = words != nullptr;
  for (int i = 0; i < count; ++i) {
    out.words.emplace_back(words[i], sdslen(words[i]));
  }
  sdsfreesplitres(words, count);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string line(reinterpret_cast<const char*>(data), size);
  const reference theirs = split_as_redis(line);
  const auto ours = split_inline(line);
  require(ours.has_value() == theirs.balanced);
  if (ours) {
    require(*ours == theirs.words);
  }
  if (line.find_first_of(std::string_view("\"'\0", 3)) == std::string::npos) {
    std::vector<std::string_view> views;
    split_plain(line, views);
    require(std::vector<std::string>(views.begin(), views.end()) == theirs.words);
  }

  // The decoder, on a line that is one: not an array, no line end inside, no NUL.
  if (line.empty() || line[0] == '*' || line.find_first_of(std::string_view("\n\0", 2)) != std::string::npos) {
    return 0;
  }
  const std::string input = line + "\r\n";
  request_decoder decoder;
  request command;
  require(decoder.decode(std::string_view(input).substr(0, size / 2), 1024, command).status ==
          request_status::need_more);
  const decoded_request got = decoder.decode(input, 1024, command);
  if (!theirs.balanced) {
    require(got.status == request_status::malformed);
  } else if (theirs.words.empty()) {
    require(got.status == request_status::empty && got.consumed == input.size());
  } else if (got.status == request_status::malformed) {
    require(got.message == "possible cross-protocol request");
    require(iequals(theirs.words[0], "post") || iequals(theirs.words[0], "host:"));
  } else {
    require(got.status == request_status::complete && got.consumed == input.size() && command.inlined);
    require(std::vector<std::string>(command.arguments.begin(), command.arguments.end()) == theirs.words);
  }
  return 0;
}
