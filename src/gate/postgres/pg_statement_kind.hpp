// What a statement may do to the transaction around it, by its first words. Every statement that PostgreSQL's grammar
// accepts begins with a keyword or `(`; so the first word, behind blanks, comments and `;`, is known for certain, or the
// server refuses the text. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace fencegate::gate {

enum class pg_statement_kind : std::uint8_t {
  unsure,       // none of the words below: it may end a transaction, and commit inside unless in a block
  unknown,      // a name whose text is not known, or a text that does not begin where it could be seen: anything
  plain,        // ends no transaction, unless what it calls can
  copy,         // plain, and may turn the connection round
  wants_block,  // DECLARE: plain; the server asks for a transaction block
  locks,        // LOCK: the same; writes nothing, and takes no snapshot
  may_commit,   // CALL, DO: commit inside, unless in a transaction block
  begins,       // BEGIN, START TRANSACTION
  ends_surely,  // COMMIT, END, ROLLBACK, ABORT, perhaps with WORK or TRANSACTION, and nothing more
  ends,      // COMMIT AND CHAIN, ROLLBACK TO, SAVEPOINT and so on: what follows may be in another transaction, or none
  named,     // EXECUTE: may end the transaction, and commits nothing inside
  reused,    // a name of `bare`, `begins` or an end that may by now mean something else: the same, but COPY
  prepares,  // PREPARE: plain, and leaves a name behind
  hands_over,  // PREPARE TRANSACTION: the transaction outlives its session
  bare,        // SET, SHOW and the like, or nothing at all: writes nothing by itself
};

// `whole`: there is no more of the text.
[[nodiscard]] pg_statement_kind kind_of_statement(std::string_view sql, bool whole = true);

}  // namespace fencegate::gate
