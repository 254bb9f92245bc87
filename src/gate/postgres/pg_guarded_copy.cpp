// guard: transaction: COPY from the client. While the server reads data, messages mean something else to it; and when it stops
// to, by an error, is known only when the error has come.
#include "gate/postgres/pg_guarded.hpp"
#include "wire/pg_message.hpp"

#include <algorithm>

namespace fencegate::gate {

using namespace std::string_literals;

// Outside COPY it goes nowhere: there the server would take it for no part of the extended messages around it, and not skip
// what follows when a timeout falls due just then. A COPY may still be to come.
pg_guarded::verdict pg_guarded::on_data(char type) {
  if (!copy_in_) {
    if (query_) return verdict::wait;
    if (std::none_of(expected_.begin(), expected_.end(), [](const entry& e) { return may_turn(e); }))
      return verdict::drop;
    if (segment_.open) static_cast<void>(all_answered());
    return verdict::wait;
  }
  sync_held_ = false;
  if (type == 'd') return verdict::pass;
  copy_in_ = flushed_ = false;  // COPY has taken the Flush that was sent
  if (query_) behind += wire::encode_pg_message('H', {});
  return verdict::pass;
}

// The server would fail the COPY for it. Whether it still reads data is not certain: what fails it must mean nothing where
// it does not, and so must a Sync, which means nothing where it does.
pg_guarded::verdict pg_guarded::on_unexpected_in_copy(char type) {
  if (type == 'S') {
    sync_held_ = !query_ && segment_.open;
    return verdict::drop;
  }
  skipping_ = !query_ && segment_.open;
  copy_in_ = false;
  behind += wire::encode_pg_message('f', "unexpected message of type "s + type + " during COPY from stdin" + '\0');
  return verdict::drop;
}

// What was sent behind it already fails it.
pg_guarded::passage pg_guarded::on_copy_in() {
  if (!may_turn(expected_.front())) return passage::broken;
  copy_in_ = expected_.size() == 1;
  expected_.front().runs = kind::plain;  // it turns only once
  return passage::pass;
}

}  // namespace fencegate::gate
