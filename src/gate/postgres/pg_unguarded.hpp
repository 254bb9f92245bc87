// guard: transaction in mode: monitor. The client's messages go on as they are; this machine says which of them
// gate/postgres/pg_guarded.hpp would refuse, and why. Pure.
//
// Of the transaction it knows what the last ReadyForQuery said, and what was sent since: of that it believes that nothing has
// failed. What is behind the first limits::pg_statement_buffered_bytes_max bytes of a message it does not see.
#pragma once

#include "gate/postgres/pg_guard_rules.hpp"

namespace fencegate::gate {

class pg_unguarded : private pg_guard_rules {
 public:
  explicit pg_unguarded(pg_session_kind at) : pg_guard_rules(at) {}

  // Why the message would be refused; "": it would not, or what is in front of it is refused already. The body as
  // pg_guarded::on_message() asks for it.
  [[nodiscard]] std::string_view on_message(char type, std::string_view body, std::size_t body_bytes);
  // The same, for one that is refused for another reason; false: what is in front of it is refused already.
  [[nodiscard]] bool on_refused(char type);
  // All that was sent is answered, and so is the Sync behind it.
  void on_ready(char status);
  // Something of what no Sync stands behind yet has failed.
  void on_error() { skipping_ = true; }
  void on_parameter(std::string_view name, std::string_view value);

 private:
  void begin_segment();
  void end_segment();
  [[nodiscard]] std::string_view judge(kind what, bool several = false);
  [[nodiscard]] std::string_view on_query(std::string_view body, std::size_t body_bytes);
  [[nodiscard]] std::string_view judge_query(std::string_view sql, std::size_t body_bytes, bool whole);
  [[nodiscard]] std::string_view on_parse(std::string_view body, bool whole);
  [[nodiscard]] std::string_view on_bind(std::string_view body);
  [[nodiscard]] std::string_view on_execute(std::string_view body);
  // Describe, Close.
  [[nodiscard]] std::string_view on_target(char type, std::string_view body);

  char status_ = 'I';      // as far as one knows
  bool skipping_ = false;  // the server would skip everything up to a Sync
  bool backslashes_ = false;
};

}  // namespace fencegate::gate
