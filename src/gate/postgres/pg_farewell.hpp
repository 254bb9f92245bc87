// The last words to a client whose session at the server is over, said when it can hear them: drivers lose an error that
// comes while they are at rest, or with the end of the connection and nothing behind it. So what is in flight is answered
// by the FATAL error and a ReadyForQuery, behind the client's Sync where it speaks extended; a client at rest is told
// nothing until it speaks, and then the same. Pure.
#pragma once

#include "base/byte_queue.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace fencegate::gate {

class pg_farewell {
 public:
  struct moment {
    bool owes_ready = false;   // a Query or a Sync was sent whose ReadyForQuery will never come
    bool in_flight = false;    // messages were sent, and no Sync yet
    std::size_t unfinished{};  // bytes of the client's last message that are still to come
  };

  pg_farewell() = default;
  // `words`: the ErrorResponse, and what goes in front of it.
  pg_farewell(std::string words, const moment& at) : words_(std::move(words)), at_(at), settled_(false) {}

  // Reads what the client sends, which reaches nobody; what it is told is appended. true: all was said, or it has left.
  [[nodiscard]] bool read(byte_queue& from_client, std::string& to_client);
  // Whatever was not said yet.
  void tell(std::string& to_client);
  [[nodiscard]] bool told() const { return words_.empty(); }

 private:
  [[nodiscard]] bool settle(std::string& to_client);
  [[nodiscard]] bool on_message(char type, std::string& to_client);

  std::string words_;
  moment at_;
  bool settled_ = true;  // what was in flight at the moment is answered
  char type_ = 0;        // of the message that is passed over
  std::size_t left_ = 0;
};

}  // namespace fencegate::gate
