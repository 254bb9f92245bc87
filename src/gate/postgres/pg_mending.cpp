#include "gate/postgres/pg_mending.hpp"

#include "wire/sql_lead.hpp"

#include <algorithm>
#include <array>

namespace fencegate::gate {
namespace {

bool mends(std::string_view statement) {
  constexpr std::array<std::string_view, 5> menders{"SET", "RESET", "DISCARD", "ROLLBACK", "ABORT"};
  const auto words = wire::read_sql_lead(statement).words;
  if (words.empty()) return false;
  const bool prepared = words.size() > 1 && words[1] == "PREPARED";  // somebody else's transaction
  return !prepared && std::find(menders.begin(), menders.end(), words[0]) != menders.end();
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\n\r\f") == std::string_view::npos; }

}  // namespace

bool only_mends(std::string_view sql) {
  for (bool any = false;; any = true) {
    const auto end = sql.find(';');
    const auto piece = sql.substr(0, end);
    if (end == std::string_view::npos && any && is_blank(piece)) return true;
    if (!mends(piece)) return false;
    if (end == std::string_view::npos) return true;
    sql.remove_prefix(end + 1);
  }
}

}  // namespace fencegate::gate
