// guard: transaction: the server's replies. Those to the machine's own statements are taken out.
#include "gate/postgres/pg_guarded.hpp"
#include "wire/pg_message.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace fencegate::gate {
pg_guarded::passage pg_guarded::on_reply(char type, std::string_view body) {
  const auto out = judge_reply(type, body);
  if (query_ && query_->waits && expected_.empty()) {
    query_->waits = false;
    send_pieces();
  }
  return out;
}

pg_guarded::passage pg_guarded::judge_reply(char type, std::string_view body) {
  if (type == 'A' || type == 'S') return passage::pass;
  if (type == 'N') return on_notice(body);
  if (type == 'E') return on_error(body);
  if (expected_.empty()) return passage::broken;
  if (own_turn()) return on_own_reply(type, body);
  const entry& first = expected_.front();
  const bool runs = first.what == asked::execute || first.what == asked::query;
  switch (type) {
    case 'Z': return on_ready(body);
    case 'C':
    case 'I':
    case 's': return on_complete(type, body);
    case '1': {
      if (first.what != asked::parse) return passage::broken;
      const bool known = statements_.contains(first.name);
      const bool keeps = !first.of_query && first.name != wire::pg_unsure_name;
      if (keeps && (known || statements_.size() < names_max)) statements_[first.name] = {first.runs, transaction_};
      unnamed_changed(first);
      return answered();
    }
    case '2': return first.what == asked::bind ? answered() : passage::broken;
    case '3':
      if (first.what != asked::close) return passage::broken;
      statements_.erase(first.name);
      unnamed_changed(first);
      return answered();
    case 't':
    case 'n': return on_described(type);
    case 'T': return runs ? passage::pass : on_described(type);
    case 'G':
    case 'W': return on_copy_in();
    case 'D':
    case 'd':
    case 'H':
    case 'c': return runs ? passage::pass : passage::broken;
    case 'V': return first.what == asked::call ? passage::pass : passage::broken;
    default: return passage::broken;
  }
}

// Of a translated Query only the results are the client's.
pg_guarded::passage pg_guarded::answered() {
  const bool of_query = expected_.front().of_query;
  expected_.pop_front();
  return of_query ? passage::drop : passage::pass;
}

pg_guarded::passage pg_guarded::on_described(char type) {
  const entry& first = expected_.front();
  if (first.what != asked::describe) return passage::broken;
  if (type == 't') return passage::pass;
  const bool says_nothing = first.of_query && type == 'n';
  expected_.pop_front();
  return says_nothing ? passage::drop : passage::pass;
}

pg_guarded::passage pg_guarded::on_own_reply(char type, std::string_view body) {
  entry& own = expected_.front();
  const char next = own.replies[own.answered];
  if (type == 'D' && next == 'C') {
    const auto row = wire::decode_pg_row(body);
    const bool one = row && row->size() == 1 && (*row)[0];
    if (own.does == task::isolation && one) read_committed_ = (*row)[0] == "read committed";
    return passage::drop;
  }
  if (type != next) return passage::broken;
  if (type == '1' && own.unnamed) kept_ = own.unnamed;
  if (type == '1') unnamed_changed(own);
  if (type == 'C') {
    const auto tag = body.substr(0, body.find('\0'));
    if (own.does == task::guard && tag != "SELECT 1") return passage::broken;
    if (own.does == task::guard) guard_holds_ = true;
    note_tag(tag);
    if (own.does == task::begin) own_open_ = true;
  }
  if (++own.answered == own.replies.size()) expected_.pop_front();
  return passage::drop;
}

// That a block is open already, or is not open any more, is what the client's own statements have made.
pg_guarded::passage pg_guarded::on_notice(std::string_view body) const {
  if (!own_turn()) return passage::pass;
  if (expected_.front().does != task::commit) return passage::drop;
  const auto notice = wire::decode_pg_error(body);
  return notice && notice->sqlstate == "25P01" ? passage::drop : passage::pass;
}

// RELEASE gives back what a savepoint has made of the transaction: it may have been read only when the guard looked.
void pg_guarded::note_tag(std::string_view tag) {
  if (tag == "RELEASE") guard_holds_ = false;
  if (tag == "BEGIN" || tag == "START TRANSACTION") own_open_ = false;
  if (tag != "COMMIT" && tag != "ROLLBACK" && tag != "PREPARE TRANSACTION") return;
  guard_holds_ = own_open_ = false;
  left_ = true;
}

pg_guarded::passage pg_guarded::on_complete(char type, std::string_view body) {
  const entry first = expected_.front();
  if (first.what != asked::execute && first.what != asked::query) return passage::broken;
  if (type == 'C') note_tag(body.substr(0, body.find('\0')));
  if (first.what == asked::query) return passage::pass;
  expected_.pop_front();
  copy_in_ = sync_held_ = false;
  if (!first.of_query || type != 'C') return passage::pass;
  reply = std::exchange(held_, wire::encode_pg_message('C', body));
  return reply.empty() ? passage::drop : passage::replace;
}

std::string pg_guarded::take_held(char next) { return next == 'N' ? std::string() : std::exchange(held_, {}); }

// One that nothing is expected for comes at a Flush: a timeout that fell due.
pg_guarded::passage pg_guarded::on_error(std::string_view body) {
  if (expected_.empty() && !segment_.open) return passage::broken;
  const entry first = expected_.empty() ? entry{.what = asked::close} : expected_.front();
  const bool told = calls_ && std::exchange(call_failed_, true);
  const bool held = std::exchange(sync_held_, false);
  guard_holds_ = copy_in_ = false;
  if (first.does == task::guard) kept_.reset();
  if (first.does == task::rollback) own_open_ = true;                          // a cancel has hit it: it is sent again
  if (first.what == asked::sync || first.does == task::commit) held_.clear();  // it was not committed
  if (first.what == asked::query || first.what == asked::call) return told ? passage::drop : passage::pass;
  while (!expected_.empty() && expected_.front().what != asked::sync) expected_.pop_front();
  undo_unnamed(first);
  if (expected_.empty()) {
    segment_.own = false;
    skipping_ = !query_ && !held;
    if (query_) {
      query_->next.reset();
      query_->waits = false;
      query_->synced = true;
    }
    if (!skipping_) end_segment(query_.has_value());
  }
  if (told || first.does == task::rollback) return passage::drop;  // the client has the error that it is for
  return first.of_query && first.at != 0 && !body.empty() ? with_position(body, first.at) : passage::pass;
}

pg_guarded::passage pg_guarded::on_ready(std::string_view body) {
  const entry done = expected_.front();
  const auto status = wire::decode_pg_ready(body);
  const bool stands_alone = done.what == asked::sync || done.what == asked::query || done.what == asked::call;
  if (!status || !stands_alone) return passage::broken;
  status_ = *status;
  left_ = copy_in_ = false;
  if (status_ != 'T') {
    guard_holds_ = false;
    read_committed_.reset();
  }
  if (status_ == 'I') ++transaction_;
  expected_.pop_front();
  if (done.quiet) return passage::drop;
  if (done.opens && status_ == 'T' && guard_holds_) {
    calls_ = false;
    return passage::drop;
  }
  if (std::exchange(own_open_, false) && status_ == 'E') {
    send_own("ROLLBACK", task::rollback);
    send('S', {}, done);
    return passage::drop;
  }
  if (done.of_query) query_.reset();
  call_is_answered_ = done.opens;
  calls_ = call_failed_ = false;
  return passage::pass;
}

// The server counts from the start of the piece, in characters.
pg_guarded::passage pg_guarded::with_position(std::string_view body, std::size_t at) {
  if (!query_) return passage::pass;
  const auto in_front_of_it = std::string_view(query_->text).substr(0, at);
  const auto begins_character = [this](char c) { return !utf8_ || (c & 0xC0) != 0x80; };
  const auto more = std::count_if(in_front_of_it.begin(), in_front_of_it.end(), begins_character);
  std::string out;
  while (!body.empty() && body.front() != '\0') {
    const auto field = body.substr(0, body.find('\0'));
    if (field.size() == body.size()) return passage::pass;
    body.remove_prefix(field.size() + 1);
    std::size_t position = 0;
    const bool is_position = field.front() == 'P';
    if (is_position) std::from_chars(field.data() + 1, field.data() + field.size(), position);
    out += is_position ? "P" + std::to_string(position + static_cast<std::size_t>(more)) : std::string(field);
    out += '\0';
  }
  reply = std::exchange(held_, {}) + wire::encode_pg_message('E', out + '\0');
  return passage::replace;
}

}  // namespace fencegate::gate
