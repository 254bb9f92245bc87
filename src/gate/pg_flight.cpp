#include "gate/pg_flight.hpp"

#include <algorithm>

namespace fencegate::gate {

void pg_flight::on_sent(char type) {
  switch (type) {
    case 'Q':
    case 'F':
      if (unsynced_) query_unsynced_ = true;
      unsynced_ = false;
      waiting_.push_back({kind::query, parses_.sent, binds_.sent, closes_.sent});
      break;
    case 'S':
      if (copying_) {
        eaten_ = true;
        break;
      }
      waiting_.push_back({kind::sync, parses_.sent, binds_.sent, closes_.sent});
      unsynced_ = false;
      query_unsynced_ = false;
      break;
    case 'c':
    case 'f':
      // Outside COPY the server drops these; one that stands in front of the data's end tells on_copy_in() where to stop.
      if (copying_)
        copying_ = false;
      else if (!idle())
        waiting_.push_back({kind::copy_end});
      break;
    case 'P':
      ++parses_.sent;
      unsynced_ = true;
      break;
    case 'B':
      ++binds_.sent;
      unsynced_ = true;
      break;
    case 'C':
      ++closes_.sent;
      unsynced_ = true;
      break;
    case 'E':
    case 'D':
    case 'H': unsynced_ = true; break;
    default: break;  // CopyData, Terminate
  }
}

bool pg_flight::on_ready(char status) {
  const auto drop_ends = [this] {
    while (!waiting_.empty() && waiting_.front().what == kind::copy_end) waiting_.pop_front();
  };
  drop_ends();
  if (waiting_.empty() && !eaten_) return false;
  if (!waiting_.empty()) {
    parses_.skip_to(waiting_.front().parses);
    binds_.skip_to(waiting_.front().binds);
    closes_.skip_to(waiting_.front().closes);
    waiting_.pop_front();
  } else {
    // The server failed before it read the Sync that we thought it would ignore.
    eaten_ = false;
    unsynced_ = false;
  }
  drop_ends();
  if (waiting_.empty()) eaten_ = query_unsynced_ = false;
  status_ = status;
  committed_ = false;
  copying_ = false;
  return true;
}

// The messages up to the end of the data are the server's COPY, in which a Sync means nothing. A simple Query stays: its
// ReadyForQuery comes when the COPY has ended.
void pg_flight::on_copy_in() {
  const auto end =
      std::find_if(waiting_.begin(), waiting_.end(), [](const sent& s) { return s.what == kind::copy_end; });
  const bool ended = end != waiting_.end();
  std::deque<sent> left;
  for (auto at = waiting_.begin(); at != end; ++at) {
    if (at->what == kind::sync)
      eaten_ = true;
    else
      left.push_back(*at);
  }
  if (ended) left.insert(left.end(), end + 1, waiting_.end());
  // Extended: the Sync behind the data's end is still to come.
  if (!ended) {
    copying_ = true;
    if (left.empty()) unsynced_ = true;
  }
  waiting_ = std::move(left);
}

void pg_flight::on_injected_statement() {
  parses_.ours.push_back(parses_.sent - 1);
  binds_.ours.push_back(binds_.sent - 1);
}

// Not `unsynced`: what follows, a Query or the client's own messages, says so or answers for it.
void pg_flight::on_injected_guard() {
  closes_.ours.push_back(closes_.sent);
  closes_.sent += 2;
  ++parses_.sent;
  ++binds_.sent;
}

bool pg_flight::on_statement_reply(char type) {
  return (type == '1' ? parses_ : type == '2' ? binds_ : closes_).on_answer();
}

bool pg_flight::count::on_answer() {
  const bool mine = !ours.empty() && ours.front() == answered;
  skip_to(answered + 1);
  return mine;
}

void pg_flight::count::skip_to(std::uint64_t n) {
  answered = n;
  while (!ours.empty() && ours.front() < answered) ours.pop_front();
}

void pg_flight::on_error() {
  if (query_unsynced_) certain_ = false;
}

void pg_flight::on_complete(std::string_view tag) {
  if (tag == "COMMIT" || tag == "PREPARE TRANSACTION" || tag == "CALL" || tag == "DO") committed_ = true;
}

}  // namespace fencegate::gate
