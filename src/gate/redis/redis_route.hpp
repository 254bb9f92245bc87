// Where a command goes: one pure function for all of them, be they whole, larger than the buffer, in a transaction of the
// client's, sent again, or in FENCE CALL. The engine gathers the facts, and does what it is told.
#pragma once

#include <cstdint>

namespace fencegate::gate {

enum class route : std::uint8_t {
  reject,       // answered by the gate, for `refusal`
  raise_first,  // a mark may be lower than its token: the control link raises it, then the command is judged again
  arm_first,    // the link does not stand behind the proof of all marks that it needs
  bare,         // to Redis as it is, outside MULTI
  batch,        // into our MULTI
  poll,         // as a batch of its own, again and again until it finds something
  by_pieces,    // into our MULTI while it still comes
  wrap,         // alone, with its check in the same script, or behind it
  queue,        // into the client's own MULTI
};

enum class refusal : std::uint8_t {
  none,
  by_rules,    // of the verdict
  no_table,    // what it touches is not known
  not_ready,   // the backend is not
  by_claim,    // a claim that it needs is refused, or could not be raised
  waits,       // a fenced read that waits would show data long after its check
  too_large,   // a fenced read of which half is sent when its marks are read again
  watching,    // between the client's WATCH and MULTI there is no place for an arm, and it cannot be wrapped
  caching,     // CLIENT CACHING would be used up by the arm, and not reach what it is meant for
  unsettled,   // the marks move all the time
  arm_failed,  // the server has refused the arm
  unproven,    // the transaction, or the stream, was begun without the proof that it needs
};

struct route_facts {
  // The command.
  enum class stand : std::uint8_t {
    plain,      // whole
    again,      // Redis does not take it inside MULTI
    queued,     // in the client's MULTI
    streaming,  // its beginning has come
    streamed,   // all of it has come; its end was not sent
    called,     // in FENCE CALL
  } where = stand::plain;
  enum class kind : std::uint8_t { read, blocking_read, write, blocking_write } what = kind::write;
  bool waits = false;       // it asks Redis to
  bool scriptable = true;   // Redis runs it in a script
  bool shows_data = false;  // what Redis keeps in mind behind CLIENT CACHING
  // What the rules say of it.
  bool rejected = false;  // it may not be sent
  bool required = false;  // marks must be proven for it
  // Its claims.
  bool unraised = false;  // one was not raised yet, and that was not tried for this command
  bool refused = false;   // one may not be used
  // The link.
  enum class proof : std::uint8_t { none, other, whole } proven = proof::none;  // inside our MULTI: of what it needs
  bool table_known = true;
  bool ready = true;
  bool watching = false;     // the client's WATCH stands
  bool caching = false;      // behind CLIENT CACHING
  bool unsettled = false;    // it was armed for this command too often
  bool arm_failed = false;   // and the last time in vain
  bool filling = false;      // a batch is being gathered
  bool reads_inside = true;  // a read costs less in our MULTI than leaving it does
};

struct routed {
  route to;
  refusal why = refusal::none;

  friend bool operator==(const routed&, const routed&) = default;
};

[[nodiscard]] routed route_of(const route_facts& f);

}  // namespace fencegate::gate
