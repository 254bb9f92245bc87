#include "gate/postgres/pg_unguarded.hpp"

#include "base/limits.hpp"
#include "wire/pg_message.hpp"
#include "wire/sql_pieces.hpp"

#include <utility>

namespace fencegate::gate {

void pg_unguarded::on_parameter(std::string_view name, std::string_view value) {
  if (name == "standard_conforming_strings") backslashes_ = value == "off";
}

std::string_view pg_unguarded::on_message(char type, std::string_view body, std::size_t body_bytes) {
  const bool whole = body.size() == body_bytes;
  if (type == 'S') end_segment();
  if (skipping_ || std::string_view("QFPBDEC").find(type) == std::string_view::npos) return {};
  begin_segment();
  if (type == 'Q') return on_query(body, body_bytes);
  if (type == 'F') {
    const auto why = refusal_to_call();
    end_segment();
    return why;
  }
  const auto why = type == 'P'   ? on_parse(body, whole)
                   : type == 'B' ? on_bind(body)
                   : type == 'E' ? on_execute(body)
                                 : on_target(type, body);
  skipping_ = !why.empty();
  return why;
}

bool pg_unguarded::on_refused(char type) {
  if (skipping_) return false;
  begin_segment();
  if (type == 'Q' || type == 'F')
    end_segment();
  else
    skipping_ = true;
  return true;
}

void pg_unguarded::on_ready(char status) {
  if (segment_.open) return;
  if (status == 'I' && status_ != 'I') ++transaction_;
  status_ = status;
}

// ── segments ────────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_unguarded::begin_segment() {
  if (!segment_.open) open_segment(status_, false);
}

// What is the machine's own ends here. Statements are kept as if all of them had been parsed.
void pg_unguarded::end_segment() {
  skipping_ = false;
  if (!segment_.open) return;
  for (auto& [key, what] : new_statements_) {
    if (!what)
      statements_.erase(key);
    else if (statements_.contains(key) || statements_.size() < names_max)
      statements_[key] = {*what, transaction_};
  }
  status_ = !segment_.block || segment_.own ? 'I' : segment_.failed ? 'E' : 'T';
  if (status_ == 'I') ++transaction_;
  segment_ = {};
}

// In front of what it is about.
std::string_view pg_unguarded::judge(kind what, bool several) {
  const auto why = refusal_of(what, several);
  if (why.empty() && !goes_bare(what) && needs_block(what, several)) begin_own_block();
  return why;
}

// ── messages ────────────────────────────────────────────────────────────────────────────────────────────────────────

std::string_view pg_unguarded::on_query(std::string_view body, std::size_t body_bytes) {
  const bool whole = body.size() == body_bytes;
  const auto why = judge_query(body.substr(0, body.size() - (whole ? 1 : 0)), body_bytes, whole);
  end_segment();
  statements_.erase("");
  return why;
}

std::string_view pg_unguarded::judge_query(std::string_view sql, std::size_t body_bytes, bool whole) {
  wire::sql_pieces pieces(sql, backslashes_);
  auto next = pieces.next(), after = pieces.next();
  const bool several = after.has_value();
  if (several && !whole && body_bytes > limits::pg_gathered_bytes_max) return too_large_to_split;
  if (const auto why = several ? refusal_of_several(sql) : std::string_view{}; !why.empty()) return why;
  for (; next; next = std::exchange(after, after ? pieces.next() : std::nullopt)) {
    const auto what = kind_of_statement(next->text, whole || after);
    if (const auto why = judge(what, several); !why.empty()) return why;
    run(what);
  }
  return {};
}

std::string_view pg_unguarded::on_parse(std::string_view body, bool whole) {
  const auto name = take_string(body);
  if (!name) return {};
  const auto end = body.find('\0');
  const auto what = kind_of_statement(body.substr(0, end), end != std::string_view::npos || whole);
  const auto key = wire::pg_name_key(*name);
  if (const auto why = refusal_to_parse(key, what); !why.empty()) return why;
  if (const auto why = judge(what); !why.empty()) return why;
  note_parse(key, what);
  return {};
}

std::string_view pg_unguarded::on_bind(std::string_view body) {
  const auto portal = take_string(body);
  const auto name = portal ? take_string(body) : std::nullopt;
  if (!name) return {};
  const auto key = wire::pg_name_key(*name), portal_key = wire::pg_name_key(*portal);
  if (const auto why = refusal_to_bind(portal_key, key); !why.empty()) return why;
  const auto what = kind_of_name(key).value_or(kind::unknown);
  if (const auto why = judge(what); !why.empty()) return why;
  note_bind(portal_key, what);
  return {};
}

std::string_view pg_unguarded::on_target(char type, std::string_view body) {
  const auto target = take_target(body);
  if (!target) return {};
  if (type == 'D') return judge(note_describe(target->first, target->second));
  note_close(target->first, target->second);
  return {};
}

std::string_view pg_unguarded::on_execute(std::string_view body) {
  const auto name = take_string(body);
  if (!name) return {};
  const auto what = kind_of_portal(wire::pg_name_key(*name));
  if (const auto why = judge(what); !why.empty()) return why;
  fresh_.clear();
  run(what);
  return {};
}

}  // namespace fencegate::gate
