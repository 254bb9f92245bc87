#include "gate/postgres/pg_flight.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::gate {

void pg_flight::on_sent(char type) {
  // The server takes it for the end of the data, and does nothing else with it.
  if (copying_ && std::string_view("QFPBCED").find(type) != std::string_view::npos) certain_ = false;
  switch (type) {
    case 'Q':
    case 'F':
      if (unsynced_) query_unsynced_ = true;
      unsynced_ = false;
      ++runs_;
      waiting_.push_back({kind::query, runs_, parses_.sent, binds_.sent});
      break;
    case 'S':
      failing_ = false;
      if (copying_) {
        ++eaten_;
        last_eaten_ = {kind::sync, runs_, parses_.sent, binds_.sent};
        break;
      }
      waiting_.push_back({kind::sync, runs_, parses_.sent, binds_.sent});
      unsynced_ = false;
      query_unsynced_ = false;
      break;
    case 'c':
    case 'f':
      // Outside COPY the server drops these; one that stands in front of the data's end tells on_copy_in() where to stop.
      if (copying_)
        copying_ = false;
      else if (!idle())
        waiting_.push_back({kind::copy_end, runs_});
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
    case 'D': unsynced_ = true; break;
    case 'E':
      ++runs_;
      unsynced_ = true;
      break;
    default: break;  // CopyData, Terminate; Flush, which asks for answers to what was sent before it
  }
}

bool pg_flight::on_ready(char status) {
  // Ends of data for what was answered by now. What was sent since may still become a COPY, which needs its own.
  const auto drop_ends = [this](std::uint64_t runs) {
    while (!waiting_.empty() && waiting_.front().what == kind::copy_end && waiting_.front().runs <= runs)
      waiting_.pop_front();
  };
  drop_ends(runs_);
  if (!waiting_.empty()) {
    const sent answered = waiting_.front();
    waiting_.pop_front();
    parses_.skip_to(answered.parses);
    binds_.skip_to(answered.binds);
    drop_ends(answered.runs);
  } else if (surplus_ != 0) {
    --surplus_;
    parses_.skip_to(last_eaten_.parses);
    binds_.skip_to(last_eaten_.binds);
    unsynced_ = false;
  } else {
    return false;
  }
  if (waiting_.empty()) query_unsynced_ = false;
  status_ = status;
  left_ = false;
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
    if (at->what == kind::sync) {
      ++eaten_;
      last_eaten_ = *at;
    } else {
      left.push_back(*at);
    }
  }
  if (ended) left.insert(left.end(), end + 1, waiting_.end());
  if (!ended) copying_ = true;
  // Extended: the Sync that is answered, behind the data's end, is still to come.
  if (left.empty()) unsynced_ = true;
  waiting_ = std::move(left);
}

void pg_flight::on_injected_statement() {
  parses_.ours.push_back(parses_.sent - 1);
  binds_.ours.push_back(binds_.sent - 1);
  failing_ = true;
}

bool pg_flight::on_statement_reply(char type) { return (type == '1' ? parses_ : binds_).on_answer(); }

bool pg_flight::count::on_answer() {
  const bool mine = !ours.empty() && ours.front() == answered;
  skip_to(answered + 1);
  return mine;
}

void pg_flight::count::skip_to(std::uint64_t n) {
  answered = std::max(answered, n);
  while (!ours.empty() && ours.front() < answered) ours.pop_front();
}

// A COPY that fails ends there: the next Sync is answered. Those taken for ignored may have come behind what failed.
void pg_flight::on_error() {
  if (query_unsynced_ || eaten_ != 0) certain_ = false;
  surplus_ += std::exchange(eaten_, 0);
  copying_ = false;
}

void pg_flight::on_complete(std::string_view tag) {
  eaten_ = 0;
  // Behind a ROLLBACK in the same message, statements commit by themselves.
  const bool ends = tag == "COMMIT" || tag == "ROLLBACK" || tag == "PREPARE TRANSACTION";
  if (ends || tag == "CALL" || tag == "DO") left_ = true;
}

}  // namespace fencegate::gate
