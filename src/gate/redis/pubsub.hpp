// Messages that answer no command: RESP3 pushes, and what a subscribed RESP2 connection receives
// (https://redis.io/docs/manual/pubsub/, https://redis.io/docs/manual/client-side-caching/).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fencegate::gate::pubsub {

enum class message_kind : std::uint8_t {
  need_more,
  message,       // goes through
  confirmation,  // of a (un)subscription: counted
  invalidation,  // of client-side caching: marks are taken out of it
  other,         // RESP2: not a message at all; RESP3: a push that goes through
};

// From the elements behind the head of an array or push of `count` elements.
[[nodiscard]] message_kind kind_of(std::string_view elements, std::int64_t count);

// An invalidation without the keys of the fence; "" when none is left.
[[nodiscard]] std::string without_reserved_keys(std::string_view invalidation);

// How many channels, patterns and shard channels a connection is subscribed to, as its confirmations say.
class subscription_counts {
 public:
  // Takes a confirmation; returns the subscriptions in all.
  std::int64_t confirmed(std::string_view confirmation);
  // Confirmations that an unsubscribe command without arguments will have.
  [[nodiscard]] std::uint32_t unsubscribe_all(char family) const;

 private:
  std::int64_t channels_ = 0, patterns_ = 0, shards_ = 0;
};

}  // namespace fencegate::gate::pubsub
