#include "gate/postgres/pg_farewell.hpp"

#include "wire/pg_message.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::gate {
namespace {

// There is no transaction any more.
std::string ready() { return wire::encode_pg_message('Z', "I"); }

}  // namespace

bool pg_farewell::read(byte_queue& from_client, std::string& to_client) {
  const auto drop = [&from_client](std::size_t& bytes) {
    const std::size_t n = std::min(bytes, from_client.size());
    from_client.consume(n);
    bytes -= n;
    return bytes == 0;
  };
  if (!settled_) {
    if (!drop(at_.unfinished)) return false;
    if (settle(to_client)) return true;
  }
  for (;;) {
    if (left_ == 0) {
      const auto head = wire::decode_pg_head(from_client.view());
      if (!head) return true;
      if (!*head) return false;
      type_ = (*head)->type;
      left_ = wire::pg_head_bytes + (*head)->body_bytes;
    }
    if (!drop(left_)) return false;
    if (on_message(type_, to_client)) return true;
  }
}

bool pg_farewell::settle(std::string& to_client) {
  settled_ = true;
  if (at_.owes_ready || at_.in_flight) tell(to_client);
  if (at_.owes_ready) to_client += ready();
  return at_.owes_ready;
}

// As behind an error of the server's: everything up to the Sync is passed over.
bool pg_farewell::on_message(char type, std::string& to_client) {
  if (type == 'X') return true;
  const bool asks = type == 'Q' || type == 'F' || type == 'S';
  if (asks || type == 'H') tell(to_client);
  if (asks) to_client += ready();
  return asks;
}

void pg_farewell::tell(std::string& to_client) { to_client += std::exchange(words_, {}); }

}  // namespace fencegate::gate
