#include "lease/pg_ledger.hpp"

#include "backend/pg_claims.hpp"
#include "backend/pg_store_common.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace fencegate::lease {
namespace {

using backend::pg_result;

// A grant may wait for the rows of others, for 5 s at most (src/backend/schema/5_leases.sql).
constexpr std::chrono::milliseconds grant_patience{10'000};

// All marks of a database.
constexpr std::chrono::milliseconds list_patience{60'000};

// What the server said, for a person.
error told(const wire::pg_error& e) { return {backend::rejection_of(e, {}).detail}; }

error unexpected_rows() { return {"it answered something unexpected (is the schema older? run fencegate install)"}; }

std::string array_of(const std::vector<std::int64_t>& numbers) {
  std::string out = "{";
  for (const auto n : numbers) out += (out.size() > 1 ? "," : "") + std::to_string(n);
  return out + "}";
}

// A text[] with the same text n times. REQUIRES: neither quotes nor backslashes.
std::string array_of(const std::string& text, std::size_t n) {
  return backend::array_of(std::vector<std::string>(n, text));
}

const char* bool_of(bool is) { return is ? "true" : "false"; }

// The schema, or what is asked of it, is not there: it says so until it is installed.
bool is_older(const wire::pg_error& e) {
  constexpr std::string_view undefined_function = "42883", invalid_schema_name = "3F000", undefined_table = "42P01";
  return e.sqlstate == undefined_function || e.sqlstate == invalid_schema_name || e.sqlstate == undefined_table;
}

unanswered not_told(const wire::pg_error& e) { return {told(e), is_older(e)}; }

answer<std::string> identity(const pg_result& rows) {
  if (!rows) return not_told(rows.error());
  if (rows->size() != 1 || rows->front().size() != 1 || !rows->front().front()) return unexpected_rows();
  return {boost::system::in_place_value, *rows->front().front()};
}

void identify(pg_caller& by, const char* column, std::function<void(const answer<std::string>&)> done) {
  auto answered = [done = std::move(done)](const pg_result& rows) { done(identity(rows)); };
  by.call({std::string("SELECT ") + column + " FROM fencegate.identity()"}, std::move(answered));
}

// Of a function that answers a boolean.
std::function<void(const pg_result&)> yes_or_no(std::function<void(const result<bool>&)> done) {
  return [done = std::move(done)](const pg_result& rows) {
    if (!rows) return done(told(rows.error()));
    if (rows->size() != 1 || rows->front().size() != 1) return done(unexpected_rows());
    done(rows->front().front() == "t");
  };
}

std::chrono::milliseconds milliseconds_of(const std::string& digits) {
  std::int64_t n = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), n);
  return std::chrono::milliseconds(n);
}

grant_answer failed(std::string why) {
  grant_answer out;
  out.detail = std::move(why);
  return out;
}

// What the fence says of it, or a check of its table, it says again.
bool is_for_good(const wire::pg_error& e) {
  constexpr std::string_view insufficient_privilege = "42501", check_violation = "23514";
  return e.sqlstate.starts_with("ZF") || e.sqlstate == insufficient_privilege || e.sqlstate == check_violation ||
         is_older(e);
}

// Columns: resource, outcome, token, held_by, left_ms.
grant_answer granted(const grant_request& wanted, const pg_result& rows) {
  if (!rows) {
    auto out = failed(told(rows.error()).message);
    if (is_for_good(rows.error())) out.what = grant_answer::kind::refused;
    return out;
  }
  grant_answer out;
  for (const auto& row : *rows) {
    if (row.size() != 5 || !row[0] || !row[1] || !row[4]) return failed(unexpected_rows().message);
    const std::string& outcome = *row[1];
    if (outcome == "granted") {
      const auto token = backend::token_of(row[2]);
      if (!token) return failed(unexpected_rows().message);
      out.claims.push_back({*row[0], *token});
      continue;
    }
    if (outcome != "held" && outcome != "over" && outcome != "uncovered") return failed(unexpected_rows().message);
    const auto left = milliseconds_of(*row[4]);
    if (out.what != grant_answer::kind::failed && left <= out.left) continue;  // the longest counts
    out.what = outcome == "held"   ? grant_answer::kind::held
               : outcome == "over" ? grant_answer::kind::over
                                   : grant_answer::kind::uncovered;
    out.resource = *row[0];
    out.by = row[3].value_or("");
    out.left = left;
  }
  if (out.what != grant_answer::kind::failed) return out;
  // Success must enable: each resource has its token.
  const auto has = [&](const std::string& name) {
    return std::any_of(out.claims.begin(), out.claims.end(), [&](const auto& c) { return c.resource == name; });
  };
  if (out.claims.size() != wanted.resources.size() ||
      !std::all_of(wanted.resources.begin(), wanted.resources.end(), has))
    return failed(unexpected_rows().message);
  out.what = grant_answer::kind::granted;
  return out;
}

// Whether each claim's row is there. Columns: resource, token.
bool proves(const backend::pg_rows& rows, const fence::claims_list& claims) {
  return std::all_of(claims.begin(), claims.end(), [&](const auto& claim) {
    return std::any_of(rows.begin(), rows.end(), [&](const auto& row) {
      return row.size() == 2 && row[0] == claim.resource && backend::token_of(row[1]) == claim.presented;
    });
  });
}

}  // namespace

// ── the issuer ──────────────────────────────────────────────────────────────────────────────────────────────────────

pg_issuer::pg_issuer(boost::asio::io_context& context, const backend::pg_target& at, std::chrono::milliseconds patience,
                     std::size_t connections)
    : callers_(context, at, patience, connections),
      renewing_(connections == 1 ? callers_.first() : std::make_shared<pg_caller>(context, at, patience)),
      renewals_(std::make_shared<pg_renewals>(context, renewing_)) {}

pg_issuer::~pg_issuer() { renewing_->close(); }

std::shared_ptr<void> pg_issuer::on_release(std::function<void(const std::string&)> tell) {
  if (!std::exchange(hears_, true))
    callers_.first()->listen("fencegate_released", [this](const std::string& resource) { listeners_.tell(resource); });
  return listeners_.add(std::move(tell));
}

void pg_issuer::identify(std::function<void(const answer<std::string>&)> done) {
  lease::identify(callers_.any(), "issuer", std::move(done));
}

void pg_issuer::acquire(const grant_request& wanted, std::function<void(const grant_answer&)> done) {
  auto statement = backend::in_text(
      "SELECT resource, outcome, token, held_by, left_ms FROM fencegate.lease_grant($1::pg_catalog.text[], "
      "$2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.int4, $5::pg_catalog.int8[], $6::pg_catalog.text[], "
      "$7::pg_catalog.int8, $8::pg_catalog.int4, $9::pg_catalog.int4, $10::pg_catalog.bool, $11::pg_catalog.bool)",
      {backend::array_of(wanted.resources), wanted.id, wanted.holder, std::to_string(wanted.ttl.count()),
       array_of(wanted.floors), backend::array_of(wanted.stores), std::to_string(wanted.stride),
       std::to_string(wanted.at_least.count()), std::to_string(wanted.lock_delay.count()),
       bool_of(wanted.how != taking::when_free), bool_of(wanted.how == taking::freezing)});
  auto answered = [wanted, done = std::move(done)](const pg_result& rows) { done(granted(wanted, rows)); };
  renewing_->warm();
  callers_.any().call(std::move(statement), grant_patience, std::move(answered));
}

void pg_issuer::renew(const term& held, std::function<void(const result<renewal>&)> done) {
  renewals_->renew(held, std::move(done));
}

void pg_issuer::release(const term& held, bool unused, std::function<void(const result<void>&)> done) {
  auto answered = [done = std::move(done)](const pg_result& rows) {
    done(rows ? result<void>() : result<void>(told(rows.error())));
  };
  auto statement = backend::in_text(
      "SELECT * FROM fencegate.lease_release($1::pg_catalog.text[], $2::pg_catalog.int8[], $3::pg_catalog.text[], "
      "$4::pg_catalog.bool)",
      {backend::resources_of(held.claims), backend::tokens_of(held.claims), array_of(held.grant, held.claims.size()),
       bool_of(unused)});
  callers_.any().call(std::move(statement), std::move(answered));
}

void pg_issuer::forget_store(const std::string& resource, const std::string& store,
                             std::function<void(const result<bool>&)> done) {
  callers_.any().call(backend::in_text("SELECT fencegate.lease_forget_store($1::pg_catalog.text, $2::pg_catalog.text)",
                                       {resource, store}),
                      yes_or_no(std::move(done)));
}

void pg_issuer::thaw(const std::string& resource, std::function<void(const result<bool>&)> done) {
  callers_.any().call(backend::in_text("SELECT fencegate.lease_thaw($1::pg_catalog.text)", {resource}),
                      yes_or_no(std::move(done)));
}

void pg_issuer::note_waiter(const waiter_note& note) {
  auto statement = backend::in_text(
      "SELECT fencegate.lease_wait($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.int4)",
      {note.resource, note.grant, note.holder, std::to_string(note.stays.count())});
  callers_.any().call(std::move(statement), [](const pg_result&) {});
}

namespace {

// Columns: resource, holder, since; by resource, as the leases are.
void add_waiters(std::vector<lease_entry>& to, const backend::pg_rows& rows) {
  auto at = to.begin();
  for (const auto& row : rows) {
    if (row.size() != 3 || !row[0]) return;
    at = std::find_if(at, to.end(), [&](const auto& one) { return one.resource == *row[0]; });
    if (at == to.end()) return;
    at->waiters.push_back({row[1].value_or(""), row[2].value_or("")});
  }
}

}  // namespace

void pg_issuer::list(std::function<void(const result<std::vector<lease_entry>>&)> done) {
  auto answered = [this, done = std::move(done)](const pg_result& rows) {
    if (!rows) return done(told(rows.error()));
    std::vector<lease_entry> out;
    for (const auto& row : *rows) {
      const auto token = row.size() == 7 ? backend::token_of(row[1]) : std::nullopt;
      if (!token || !row[0] || !row[5]) return done(unexpected_rows());
      out.push_back({*row[0], *token, backend::token_of(row[2]), row[3].value_or(""), row[4].value_or(""),
                     milliseconds_of(*row[5]), row[6] == "t"});
    }
    auto with_waiters = [done, out = std::move(out)](const pg_result& waiting) mutable {
      if (waiting) add_waiters(out, *waiting);
      done(std::move(out));
    };
    callers_.any().call({"SELECT resource, holder, date_trunc('second', since) FROM fencegate.lease_waiters()"},
                        std::move(with_waiters));
  };
  callers_.any().call({"SELECT resource, token, mark, holder, date_trunc('second', granted_at), left_ms, frozen FROM "
                       "fencegate.lease_list()"},
                      std::move(answered));
}

// ── seals ───────────────────────────────────────────────────────────────────────────────────────────────────────────

pg_seal_place::pg_seal_place(boost::asio::io_context& context, std::string name, const backend::pg_target& at,
                             std::chrono::milliseconds patience, std::chrono::milliseconds cut, std::size_t connections)
    : name_(std::move(name)), patience_(patience), cut_(cut), callers_(context, at, patience, connections) {}

void pg_seal_place::identify(std::function<void(const answer<std::string>&)> done) {
  lease::identify(callers_.any(), "store", std::move(done));
}

void pg_seal_place::look(const std::vector<std::string>& resources,
                         std::function<void(const answer<std::vector<backend::looked_mark>>&)> done) {
  auto answered = [resources, done = std::move(done)](const pg_result& rows) {
    if (!rows) return done(not_told(rows.error()));
    std::vector<backend::looked_mark> found;
    for (const auto& name : resources) found.push_back({name, std::nullopt});
    for (const auto& row : *rows) {
      const auto of = std::find_if(found.begin(), found.end(), [&](const auto& one) { return row[0] == one.resource; });
      const auto mark = row.size() == 3 ? backend::token_of(row[1]) : std::nullopt;
      const auto lowering = mark ? backend::lowering_of(row[2]) : std::nullopt;
      if (of == found.end() || !lowering) return done(unexpected_rows());
      of->mark = mark;
      of->lowering = *lowering;
    }
    done(std::move(found));
  };
  callers_.any().call(backend::in_text("SELECT resource, mark, lowering FROM fencegate.look($1::pg_catalog.text[])",
                                       {backend::array_of(resources)}),
                      std::move(answered));
}

void pg_seal_place::seal(const term& held, const std::string& issuer_id,
                         std::function<void(const backend::store_result<void>&)> done) {
  auto statement = backend::in_text(
      "SELECT resource, mark FROM fencegate.seal($1::pg_catalog.text[], $2::pg_catalog.int8[], $3::pg_catalog.uuid, "
      "$4::pg_catalog.text, $5::pg_catalog.int4)",
      {backend::resources_of(held.claims), backend::tokens_of(held.claims), issuer_id, held.grant,
       std::to_string(cut_.count())});
  auto answered = [held, done = std::move(done)](const pg_result& rows) {
    if (!rows) {
      auto why = backend::rejection_of(rows.error(), held.claims);
      if (is_older(rows.error())) why.why = fence::reason::refused;
      return done(why);
    }
    if (!proves(*rows, held.claims)) return done(backend::unavailable(unexpected_rows().message));
    done({});
  };
  callers_.any().call(std::move(statement), patience_ + cut_, std::move(answered));
}

void pg_seal_place::move(const std::string& resource, const std::string& from, const std::string& to,
                         std::function<void(const result<std::string>&)> done) {
  auto answered = [done = std::move(done)](const pg_result& rows) {
    if (!rows) return done(told(rows.error()));
    if (rows->size() != 1 || rows->front().size() != 1) return done(unexpected_rows());
    done({boost::system::in_place_value, rows->front().front().value_or("")});
  };
  callers_.any().call(
      backend::in_text("SELECT fencegate.move_issuer($1::pg_catalog.text, $2::pg_catalog.uuid, $3::pg_catalog.uuid)",
                       {resource, from, to}),
      patience_ + cut_, std::move(answered));
}

void pg_seal_place::list_marks(const std::optional<std::string>& only,
                               std::function<void(const result<std::vector<listed_mark>>&)> done) {
  auto answered = [done = std::move(done)](const pg_result& rows) {
    if (!rows) return done(told(rows.error()));
    std::vector<listed_mark> found;
    for (const auto& row : *rows) {
      const auto mark = row.size() == 4 ? backend::token_of(row[1]) : std::nullopt;
      if (!mark) return done(unexpected_rows());
      found.push_back({row[0].value_or(""), *mark, row[2].value_or(""), row[3].value_or("")});
    }
    done(std::move(found));
  };
  callers_.any().call(
      {"SELECT resource, mark, raised_at::pg_catalog.text, issuer::pg_catalog.text FROM fencegate.marks "
       "WHERE $1::pg_catalog.text IS NULL OR resource OPERATOR(pg_catalog.=) $1::pg_catalog.text ORDER BY resource",
       {{only}}},
      list_patience, std::move(answered));
}

void pg_seal_place::raise(const fence::claims_list& to, std::function<void(const backend::store_result<void>&)> done) {
  const backend::presented_claims wanted{to};
  auto answered = [wanted, done = std::move(done)](const pg_result& rows) {
    if (!rows) return done(backend::rejection_of(rows.error(), wanted.claims));
    if (!backend::raised_marks(wanted, *rows)) return done(backend::unavailable(unexpected_rows().message));
    done({});
  };
  callers_.any().call(backend::raise_statement(wanted, cut_, std::chrono::milliseconds(0)), patience_ + cut_,
                      std::move(answered));
}

void pg_seal_place::lower(const lowering_wish& wish, std::function<void(const result<void>&)> done) {
  auto answered = [to = wish.to, done = std::move(done)](const pg_result& rows) {
    if (!rows) return done(error{rows.error().message + (rows.error().hint.empty() ? "" : ". " + rows.error().hint)});
    if (rows->size() != 1 || rows->front().size() != 1 || backend::token_of(rows->front().front()) != to)
      return done(unexpected_rows());
    done({});
  };
  callers_.any().call(
      backend::in_text("SELECT fencegate.lower($1::pg_catalog.text, $2::pg_catalog.int8, $3::pg_catalog.int8, "
                       "$4::pg_catalog.text, $5::pg_catalog.text, $6::pg_catalog.bool, $7::pg_catalog.int4, "
                       "$8::pg_catalog.int8)",
                       {wish.seen.resource, wish.seen.mark->to_string(), wish.to.to_string(), wish.by, wish.why,
                        bool_of(wish.force), std::to_string(cut_.count()), std::to_string(wish.seen.lowering)}),
      patience_ + cut_, std::move(answered));
}

}  // namespace fencegate::lease
