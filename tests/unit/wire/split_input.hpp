// Every way to cut an input in two, and the input byte by byte: what a decoder does may not depend on how TCP cut it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::test {

// Calls check(pieces) for each; the pieces joined are `input`.
template <class Check>
void for_each_split(std::string_view input, Check check) {
  for (std::size_t cut = 0; cut <= input.size(); ++cut) {
    check(std::vector<std::string_view>{input.substr(0, cut), input.substr(cut)});
  }
  std::vector<std::string_view> bytes;
  for (std::size_t i = 0; i < input.size(); ++i) {
    bytes.push_back(input.substr(i, 1));
  }
  check(bytes);
}

}  // namespace fencegate::test
