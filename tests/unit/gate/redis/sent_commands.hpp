// Counts the whole commands in what a machine sends piece by piece: each must be expected to be answered. No gtest here:
// the fuzz targets use it, too.
#pragma once

#include "base/demand.hpp"
#include "wire/resp_request.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace fencegate::test {

class sent_commands {
 public:
  void take(std::string_view bytes) {
    left_ += bytes;
    std::size_t at = 0;
    while (at < left_.size()) {
      wire::request_decoder decoder;
      wire::request one;
      const auto rest = std::string_view(left_).substr(at);
      const auto decoded = decoder.decode(rest, std::numeric_limits<std::size_t>::max(), one);
      if (decoded.status == wire::request_status::need_more) break;
      demand(decoded.status == wire::request_status::complete, "what is sent is a command");
      at += decoded.consumed;
      ++count_;
      streams_ = streams_ || wire::iequals(one.name(), "MONITOR");  // from where on replies are not counted
    }
    left_.erase(0, at);
  }
  // `out` has grown since it was last looked at, or was emptied in between.
  void look(std::string_view out) {
    if (out.size() < looked_) looked_ = 0;
    take(out.substr(looked_));
    looked_ = out.size();
  }
  void emptied() { looked_ = 0; }
  [[nodiscard]] std::uint64_t count() const { return count_; }

  // `expected`: how many commands the machine expects to be answered, of all that it has sent so far.
  void compare(std::uint64_t expected) const {
    demand(!left_.empty() || streams_ || count_ == expected, "each command that was sent is expected to be answered");
  }

 private:
  std::string left_;  // of a command that is not whole yet
  std::size_t looked_ = 0;
  std::uint64_t count_ = 0;
  bool streams_ = false;
};

}  // namespace fencegate::test
