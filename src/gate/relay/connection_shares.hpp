// How many connections of a gate each tag has: a resource with its token. An eighth of connections_max is kept from any one of
// them, so that a storm of one holder's clients leaves room for others: for those of the next holder of the same resource, too,
// whose raise ends it.
#pragma once

#include "fence/tag.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace fencegate::gate {

// What a client is told for which there is no room; Redis has words of its own.
[[nodiscard]] inline std::string too_many_connections(const std::string& why) {
  return "too many connections (" + why + ")";
}

// Any thread.
class connection_shares {
 public:
  connection_shares(std::string gate, std::size_t connections_max);

  // One connection's part in them; for one thread at a time.
  class part {
   public:
    part() = default;  // of none: there is always room
    explicit part(std::shared_ptr<connection_shares> of) : of_(std::move(of)) {}
    ~part();
    part(const part&) = delete;
    part& operator=(const part&) = delete;
    part(part&&) = delete;
    part& operator=(part&& other) noexcept;

    // Counts the connection for this tag, in place of the one before; without a tag it stays as it is. Else, why there is no
    // room, and nothing has changed.
    [[nodiscard]] std::optional<std::string> take(const fence::claims_list& tag);

   private:
    std::shared_ptr<connection_shares> of_;
    fence::claims_list tag_;
  };

  // Of one tag.
  [[nodiscard]] std::size_t most() const { return most_; }
  // How many tags have connections.
  [[nodiscard]] std::size_t tags() const;

 private:
  // nullopt: `counted` is `wanted` now.
  [[nodiscard]] std::optional<std::string> exchange(fence::claims_list& counted, const fence::claims_list& wanted);

  const std::string gate_;
  const std::size_t most_;
  mutable std::mutex mutex_;
  std::map<std::string, std::size_t> connections_;  // by resource and token
};

}  // namespace fencegate::gate
