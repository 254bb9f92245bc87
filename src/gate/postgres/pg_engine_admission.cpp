// What the tags of the client's messages ask for: they go on, wait, are armed for, or are refused.
#include "base/limits.hpp"
#include "gate/postgres/pg_engine.hpp"

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
constexpr std::string_view lends =
    "a function of the fence could lend its token to a prepared statement that carries a tag: close it first";

}  // namespace

result<claims_list> pg_engine::claims_in(const wire::sql_lead& lead, bool whole) const {
  if (gate_.tags_in_sql == settings::comment_tags::off) return claims_list{};
  if (lead.undecided && !whole) return error{"the tag of a statement this large must stand at its start"};
  return lead.tag ? claims_of_comment(*lead.tag) : claims_list{};
}

// What mends has no tag of its own: what is refused is the name's.
pg_engine::judged pg_engine::judge(const wire::sql_lead& lead, const result<claims_list>& claims,
                                   const std::optional<std::string>& key, bool mends) {
  if (statement_refused_) {
    auto j = judge_claims({});
    if (mends) return {};
    j.begins = claims && !claims->empty() && begins_transaction(lead);
    return j;
  }
  auto j = claims ? judge_text(lead, *claims, key)
                  : judged{judged::verdict::refuse, {}, {reason::malformed, {}, {}, {}, claims.error().message}};
  const bool of_name = !wanted_.empty() || name_refused_;
  if (mends && of_name && j.what == judged::verdict::refuse) return {};
  j.begins = !(claims && claims->empty()) && begins_transaction(lead);
  return j;
}

pg_engine::judged pg_engine::judge_text(const wire::sql_lead& lead, const claims_list& claims,
                                        const std::optional<std::string>& key) {
  const auto refuse = [](reason why, std::string detail) {
    return judged{judged::verdict::refuse, {}, {why, {}, {}, {}, std::move(detail)}};
  };
  const bool fenced = !bound_.empty() || !claims.empty();
  if (fenced && lead.begins_with("PREPARE", "TRANSACTION"))
    return refuse(reason::refused, "PREPARE TRANSACTION outlives the session and its fence");
  if (!claims.empty() && lead.begins_with("PREPARE"))
    return refuse(reason::malformed, "a tag in PREPARE would not travel with EXECUTE; give it there");
  if (key) {
    const auto known = prepared_.find(*key);
    if (!claims.empty() && *key == wire::pg_unsure_name)
      return refuse(reason::malformed, "a prepared statement with a tag needs a name in ASCII, or none");
    if (known == prepared_.end() && !claims.empty() && prepared_.size() >= limits::pg_tagged_statements_max)
      return refuse(reason::refused, "too many prepared statements with tags; close some, or tag the connection");
    // The server refuses a name that is in use, and keeps what it meant. The statement without a name is replaced.
    if (known != prepared_.end() && !key->empty() && known->second.claims != claims)
      return refuse(reason::malformed, "a prepared statement of this name carries another tag: close it first");
  }
  if (calls_fence(lead) && has_tagged_names()) return refuse(reason::malformed, std::string(lends));
  const auto j = judge_tagged(claims);
  if (j.what == judged::verdict::forward && calls_fence(lead)) note_own_arms();
  return j;
}

// The client calls what may be a function of the fence.
void pg_engine::note_own_arms() {
  arms_itself_ = true;
  proven_.clear();
}

bool pg_engine::begins_transaction(const wire::sql_lead& lead) {
  return lead.begins_with("BEGIN") || lead.begins_with("START");
}

bool pg_engine::calls_fence(const wire::sql_lead& lead) {
  return std::find(lead.words.begin(), lead.words.end(), "FENCEGATE") != lead.words.end();
}

// EXECUTE reaches these.
bool pg_engine::has_tagged_names() const {
  return std::any_of(prepared_.begin(), prepared_.end(), [](const auto& one) { return !one.first.empty(); });
}

pg_engine::judged pg_engine::judge_bind(std::string_view statement) {
  const auto key = wire::pg_name_key(statement);
  const auto known = prepared_.find(key);
  if (known == prepared_.end()) {
    auto j = judge_name();
    return j.what == judged::verdict::refuse && mending_.contains(key) ? judged{} : j;
  }
  const auto refuse = [](std::string_view why) {
    return judged{judged::verdict::refuse, {}, {reason::malformed, {}, {}, {}, std::string(why)}};
  };
  if (!claims_beyond(proven_, known->second.before).empty()) return refuse(kept);
  auto j = judge_tagged(known->second.claims);
  j.begins = known->second.begins;
  return j;
}

// What executes a statement whose text has no tag, or was judged before.
pg_engine::judged pg_engine::judge_name() { return judge_tagged({}); }

// The connection's name may have changed; a comment is the more particular of both. In a session that raises its token by
// itself, a tag is proven anew for each statement.
pg_engine::judged pg_engine::judge_tagged(const claims_list& in_comments) {
  using verdict = judged::verdict;
  if (!statement_refused_ && name_refused_) return {verdict::refuse, {}, *name_refused_};
  claims_list wanted = wanted_;
  bind_claims(wanted, in_comments);
  auto j = judge_claims(wanted);
  if (arms_itself_ && j.what == verdict::forward) proven_.clear();
  return j;
}

pg_engine::judged pg_engine::judge_claims(const claims_list& wanted) {
  using verdict = judged::verdict;
  if (statement_refused_) return {verdict::refuse, {}, *std::exchange(statement_refused_, std::nullopt)};
  if (auto other = fence::disagreement(tag_, wanted); other && enforces())
    return {verdict::refuse, {}, about_single({reason::malformed, {}, {}, {}, std::move(*other)}, wanted)};
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
