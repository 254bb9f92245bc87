// What the tags of the client's messages ask for: they go on, wait, are armed for, or are refused.
#include "base/limits.hpp"
#include "gate/pg_engine.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::gate {
namespace {

using fence::reason;

constexpr std::string_view kept =
    "behind an error the statement without a name may still be one with another tag: send its Parse again, first "
    "behind a Sync";
constexpr std::string_view lends = "EXECUTE could run a prepared statement that carries another tag: close it first";

// What these run may be an EXECUTE that is not among their first words: EXPLAIN (ANALYZE) EXECUTE s, DO '… EXECUTE s …'.
bool may_hide_execute(const std::vector<std::string>& words) {
  constexpr std::array<std::string_view, 3> hiders{"EXPLAIN", "CREATE", "DO"};
  return !words.empty() && std::find(hiders.begin(), hiders.end(), words[0]) != hiders.end();
}

}  // namespace

pg_engine::judged pg_engine::judge(const wire::sql_scanner::findings& found, const std::optional<std::string>& key,
                                   std::optional<std::string_view> text) {
  auto j = judge_text(found, key, text);
  j.begins = !found.tags.empty() && begins_transaction(found);
  return j;
}

pg_engine::judged pg_engine::judge_text(const wire::sql_scanner::findings& found, const std::optional<std::string>& key,
                                        std::optional<std::string_view> text) {
  using verdict = judged::verdict;
  const auto refuse = [](reason why, std::string detail) {
    return judged{verdict::refuse, {}, {why, {}, {}, {}, std::move(detail)}};
  };
  if (statement_refused_) return judge_claims({});
  if (found.too_many_tags) return refuse(reason::malformed, "too many fence comments in one message");
  auto claims = claims_of(found.tags);
  if (!claims) return refuse(reason::malformed, claims.error().message);
  const bool fenced = !bound_.empty() || !claims->empty();
  if (fenced && found.begins_with("PREPARE", "TRANSACTION"))
    return refuse(reason::refused, "PREPARE TRANSACTION outlives the session and its fence");
  if (fenced && found.more_statements)
    return refuse(reason::refused, "so many statements in one message cannot be inspected; send them in several");
  if (!claims->empty() && found.statements.size() > 1 && found.names("FENCEGATE"))
    return refuse(reason::malformed, "functions of the fence cannot stand in one message with a tag");
  if (!claims->empty() && found.begins_with("PREPARE"))
    return refuse(reason::malformed, "a tag in PREPARE would not travel with EXECUTE; give it there");
  const bool executes = may_execute(found, text);
  if (key) {
    const auto known = prepared_.find(*key);
    const bool one_more = known == prepared_.end() && (executes || !claims->empty());
    if (one_more && prepared_.size() >= limits::pg_tagged_statements_max)
      return refuse(reason::refused, "too many prepared statements with tags; close some, or tag the connection");
    // The server refuses a name that is in use, and keeps what it meant. The statement without a name is replaced.
    if (known != prepared_.end() && !key->empty() && known->second.claims != *claims)
      return refuse(reason::malformed, "a prepared statement of this name carries another tag: close it first");
  }
  if (executes && lends_token(*claims)) return refuse(reason::malformed, std::string(lends));
  const auto j = judge_tagged(*claims);
  if (j.what == verdict::forward && found.names("FENCEGATE") && !guards()) note_own_arms();
  return j;
}

// The client calls what may be a function of the fence.
void pg_engine::note_own_arms() {
  arms_itself_ = true;
  proven_.clear();
}

bool pg_engine::begins_transaction(const wire::sql_scanner::findings& found) {
  return found.begins_with("BEGIN") || found.begins_with("START");
}

// EXECUTE runs statements of the protocol's Parse, too; which one is not read.
bool pg_engine::may_execute(const wire::sql_scanner::findings& found, std::optional<std::string_view> text) {
  const bool hidden = std::any_of(found.statements.begin(), found.statements.end(), may_hide_execute);
  return found.names("EXECUTE") || (hidden && (!text || wire::mentions(*text, "EXECUTE") != 0));
}

// There is a prepared statement for whose tag this session is not armed.
bool pg_engine::lends_token(const claims_list& in_comments) const {
  if (prepared_.empty()) return false;
  claims_list held = proven_;
  bind_claims(held, in_comments);
  return std::any_of(prepared_.begin(), prepared_.end(),
                     [&](const auto& one) { return !claims_beyond(held, one.second.claims).empty(); });
}

pg_engine::judged pg_engine::judge_bind(std::string_view statement) {
  const auto known = prepared_.find(wire::pg_name_key(statement));
  if (known == prepared_.end()) return judge_name();
  const auto refuse = [](std::string_view why) {
    return judged{judged::verdict::refuse, {}, {reason::malformed, {}, {}, {}, std::string(why)}};
  };
  if (!claims_beyond(proven_, known->second.before).empty()) return refuse(kept);
  auto j = judge_tagged(known->second.claims);
  if (j.what == judged::verdict::forward && known->second.executes && lends_token(known->second.claims))
    return refuse(lends);
  j.begins = known->second.begins;
  return j;
}

// What executes a statement whose text has no tag, or was judged before.
pg_engine::judged pg_engine::judge_name() { return judge_tagged({}); }

// The connection's name may have changed; a comment is the more particular of both. In a session that raises its token by
// itself, a tag is proven anew for each statement.
pg_engine::judged pg_engine::judge_tagged(const claims_list& in_comments) {
  using verdict = judged::verdict;
  if (!statement_refused_ && !wanted_malformed_.empty())
    return {verdict::refuse, {}, {reason::malformed, {}, {}, {}, wanted_malformed_}};
  claims_list wanted = wanted_;
  bind_claims(wanted, in_comments);
  auto j = judge_claims(wanted);
  if (arms_itself_ && j.what == verdict::forward) proven_.clear();
  return j;
}

pg_engine::judged pg_engine::judge_claims(const claims_list& wanted) {
  using verdict = judged::verdict;
  if (statement_refused_) return {verdict::refuse, {}, *std::exchange(statement_refused_, std::nullopt)};
  if (auto other = fence::disagreement(gate_.tag, wanted); other && enforces())
    return {verdict::refuse, {}, {reason::malformed, {}, {}, {}, std::move(*other)}};
  auto beyond = claims_beyond(proven_, wanted);
  if (beyond.empty()) return {};
  // In the middle of a message that passes, the replies to an arm could not be told from its rest.
  const bool quiet = flight_.at_boundary() && backend_passing_ == 0;
  if (!enforces() || quiet) return {verdict::arm, std::move(beyond), {}};
  if (flight_.at_boundary()) return {verdict::wait, {}, {}};
  if (flight_.certain() && !flight_.idle() && !flight_.unsynced() && !flight_.copying()) return {verdict::wait, {}, {}};
  const char* why = flight_.idle()
                        ? "a tag with another token cannot come inside a transaction"
                        : "a tag with another token cannot come in the middle of a pipeline: send Sync first";
  return {verdict::refuse, {}, {reason::malformed, beyond[0].resource, beyond[0].presented, {}, why}};
}

}  // namespace fencegate::gate
