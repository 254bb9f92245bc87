// The gates of this process, to which a connection of the API may be handed over: it goes on as a connection of that gate's
// client, bound to a grant for its whole life.
#pragma once

#include "base/result.hpp"
#include "fence/tag.hpp"

#include <string>
#include <string_view>

namespace fencegate::lease {

// The protocol to which a connection of the API changes then (RFC 9110, 7.8), and the field of the answer that says what the
// gate speaks.
inline constexpr std::string_view gate_upgrade = "fencegate-gate", gate_protocol_field = "Fencegate-Protocol";

class gate_switch {
 public:
  gate_switch() = default;
  gate_switch(const gate_switch&) = delete;
  gate_switch& operator=(const gate_switch&) = delete;
  virtual ~gate_switch() = default;

  // What a gate speaks: "redis", "postgres" or "http". Errors: there is no such gate, or what its connections are bound to is
  // settled already.
  [[nodiscard]] virtual result<std::string_view> protocol_of(std::string_view gate) const = 0;
  // Takes `socket`, a descriptor, which is closed where the gate is gone by now. REQUIRES: protocol_of(gate) was no error.
  virtual void hand_over(std::string_view gate, int socket, fence::claims_list tag) = 0;
};

}  // namespace fencegate::lease
