#include "backend/pg_facts.hpp"

#include "backend/postgres_install.hpp"

#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::backend {
namespace {

constexpr const char* server_sql = R"sql(
SELECT current_setting('fsync'), pg_is_in_recovery()::text, current_user, current_setting('synchronous_commit'),
       current_setting('synchronous_standby_names'), current_setting('max_prepared_transactions'),
       (SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database())
)sql";

constexpr const char* commits_sql = R"sql(
SELECT coalesce(r.rolname, ''), split_part(c, '=', 2)
  FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) c
 WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
   AND split_part(c, '=', 1) = 'synchronous_commit' ORDER BY 1
)sql";

// Subscribers and backups hold no copy that could be promoted.
constexpr const char* standbys_sql = R"sql(
SELECT count(*) FILTER (WHERE w.sync_state = 'async'), count(*) FILTER (WHERE w.sync_state IS NULL)
  FROM pg_stat_replication w
 WHERE coalesce(w.application_name, '') NOT IN ('pg_basebackup', 'pg_receivewal')
   AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = w.pid AND s.slot_type = 'logical')
)sql";

constexpr const char* rights_sql = R"sql(
SELECT coalesce((SELECT pg_has_role(g.oid, 'USAGE') FROM pg_roles g WHERE g.rolname = 'fencegate_gate'), false)::text,
       (o.rolsuper OR pg_has_role(o.oid, 'pg_signal_backend', 'USAGE'))::text,
       (o.rolsuper OR pg_has_role(o.oid, 'pg_read_all_stats', 'USAGE'))::text
  FROM pg_roles o WHERE o.rolname = 'fencegate_owner'
)sql";

constexpr const char* forgers_sql = R"sql(
SELECT r.rolname FROM pg_roles r WHERE r.rolcanlogin AND NOT r.rolsuper AND EXISTS (
  SELECT FROM pg_class c WHERE c.relnamespace = to_regnamespace('fencegate') AND c.relkind = 'r'
     AND has_table_privilege(r.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')) ORDER BY 1
)sql";

constexpr const char* tables_sql = R"sql(
WITH RECURSIVE p AS (
  SELECT c.oid, c.relowner, c.relkind, t.tgenabled FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
   WHERE t.tgname = 'fencegate_protect' AND t.tgfoid = to_regprocedure('fencegate.refuse_unarmed()')),
f(oid) AS (SELECT p.oid FROM p UNION SELECT i.inhrelid FROM pg_inherits i JOIN f ON i.inhparent = f.oid)
SELECT p.oid::regclass::text || ': its trigger is not ENABLE ALWAYS', NULL FROM p WHERE p.tgenabled <> 'A'
UNION ALL
SELECT f.oid::regclass::text || ': a partition or child without the trigger', NULL FROM f
 WHERE NOT EXISTS (SELECT FROM p WHERE p.oid = f.oid)
UNION ALL
SELECT p.oid::regclass::text || ': writes by the name of its parent are not seen', NULL FROM p
 WHERE p.relkind <> 'p' AND EXISTS (SELECT FROM fencegate.parents(p.oid) x WHERE x NOT IN (SELECT q.oid FROM p q))
   AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = p.oid AND t.tgname = 'fencegate_protect_rows')
UNION ALL
SELECT p.oid::regclass::text, r.rolname FROM p JOIN pg_roles r ON r.rolcanlogin AND NOT r.rolsuper
   AND pg_has_role(r.oid, p.relowner, 'USAGE')
ORDER BY 1, 2
)sql";

// What a raise waits for, and may not end: locks of superusers and of the owner's members.
constexpr const char* blockers_sql = R"sql(
SELECT format('table fencegate.%s by %s (pid %s)', c.relname, r.rolname, l.pid)
  FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
  JOIN pg_roles r ON r.oid = a.usesysid JOIN pg_roles o ON o.rolname = 'fencegate_owner'
 WHERE l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
   AND c.relnamespace = to_regnamespace('fencegate') AND l.granted AND l.pid <> pg_backend_pid()
   AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
   AND (r.rolsuper OR pg_has_role(r.oid, o.oid, 'USAGE'))
)sql";

std::string text_of(const pg_rows& rows, std::size_t row, std::size_t column) { return rows[row][column].value_or(""); }

bool is_true(const std::string& text) { return text == "true" || text == "on"; }

std::size_t number_of(const std::string& text) {
  std::size_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

pg_facts::server_settings read_server(const pg_rows& rows) {
  const auto at = [&](std::size_t column) { return text_of(rows, 0, column); };
  return {is_true(at(0)), is_true(at(1)), at(2), at(3), at(4), number_of(at(5)), number_of(at(6))};
}

std::vector<pg_facts::role_setting> read_commits(const pg_rows& rows) {
  std::vector<pg_facts::role_setting> out;
  for (std::size_t i = 0; i < rows.size(); ++i) out.push_back({text_of(rows, i, 0), text_of(rows, i, 1)});
  return out;
}

std::vector<std::string> read_names(const pg_rows& rows) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < rows.size(); ++i) out.push_back(text_of(rows, i, 0));
  return out;
}

pg_facts::rights read_rights(const pg_rows& rows) {
  if (rows.empty()) return {};  // there is no such owner
  return {is_true(text_of(rows, 0, 0)), is_true(text_of(rows, 0, 1)), is_true(text_of(rows, 0, 2))};
}

pg_facts::protection read_tables(const pg_rows& rows) {
  pg_facts::protection out;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i][1])
      out.login_owners.emplace_back(text_of(rows, i, 0), *rows[i][1]);
    else
      out.uncovered.push_back(text_of(rows, i, 0));
  return out;
}

error error_of(const wire::pg_error& said) { return {said.message}; }

// Where the schema is not, its function has no name.
bool is_missing(const wire::pg_error& said) { return said.sqlstate == "3F000" || said.sqlstate == "42883"; }

int newest_version() {
  constexpr std::string_view front = "this_version constant integer := ";
  const auto schema = postgres_schema();
  const auto at = schema.find(front);
  int out = 0;
  if (at != std::string_view::npos)
    std::from_chars(schema.data() + at + front.size(), schema.data() + schema.size(), out);
  return out;
}

}  // namespace

pg_facts_question::pg_facts_question(boost::asio::io_context& context, pg_target at, std::chrono::milliseconds patience)
    : context_(context), at_(std::move(at)), patience_(patience), deadline_(context) {}

pg_facts_question::~pg_facts_question() {
  if (link_) link_->close("it is not needed any more");
}

void pg_facts_question::ask(std::function<void(const findings&)> done) {
  done_ = std::move(done);
  link_ = std::make_shared<pg_link>(context_, patience_);
  deadline_.expires_after(3 * patience_);
  deadline_.async_wait([weak = weak_from_this()](const boost::system::error_code& cancelled) {
    const auto self = weak.lock();
    if (!cancelled && self) self->finish(unreached("no answer in time"));
  });
  dial(context_, link_, at_, [weak = weak_from_this()](const result<void>& connected) {
    const auto self = weak.lock();
    if (!self || !self->done_) return;
    if (!connected) return self->finish(unreached(connected.error().message));
    self->ask_all();
  });
}

// `read` takes what was answered into found_.
template <class Read>
void pg_facts_question::query(std::string sql, Read read) {
  ++unanswered_;
  // Names mean the server's own, whatever the database's search_path is; behind a pooler nothing of that stays.
  std::vector<pg_statement> both{{"SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)"},
                                 {std::move(sql)}};
  link_->transaction(std::move(both), [weak = weak_from_this(), read](const pg_result& answered) {
    const auto self = weak.lock();
    if (!self || !self->done_) return;
    if (!answered && answered.error().sqlstate.empty()) return self->finish(unreached(answered.error().message));
    read(self->found_, answered);
    if (--self->unanswered_ == 0) self->finish(judge(self->found_));
  });
}

void pg_facts_question::ask_all() {
  const auto into = [](auto pg_facts::*fact, auto read) {
    return [fact, read](pg_facts& found, const pg_result& answered) {
      using known = std::remove_reference_t<decltype(found.*fact)>;
      found.*fact = answered ? known(read(*answered)) : known(error_of(answered.error()));
    };
  };
  ++unanswered_;  // answers may come at once, where the connection was lost
  found_.newest = newest_version();
  query(server_sql, into(&pg_facts::server, read_server));
  query(commits_sql, into(&pg_facts::commits, read_commits));
  query(standbys_sql, into(&pg_facts::replication, [](const pg_rows& rows) {
          return pg_facts::standbys{number_of(text_of(rows, 0, 0)), number_of(text_of(rows, 0, 1))};
        }));
  query("SELECT fencegate.version()", [](pg_facts& found, const pg_result& answered) {
    if (answered)
      found.version = static_cast<int>(number_of(text_of(*answered, 0, 0)));
    else if (is_missing(answered.error()))
      found.version = 0;
    else
      found.version = error_of(answered.error());
  });
  query("SELECT fencegate.is_copy()::text",
        into(&pg_facts::is_copy, [](const pg_rows& rows) { return is_true(text_of(rows, 0, 0)); }));
  query(rights_sql, into(&pg_facts::may, read_rights));
  query(forgers_sql, into(&pg_facts::forgers, read_names));
  query(tables_sql, into(&pg_facts::tables, read_tables));
  query(blockers_sql, into(&pg_facts::blockers, read_names));
  if (--unanswered_ == 0 && done_) finish(judge(found_));
}

void pg_facts_question::finish(const findings& all) {
  deadline_.cancel();
  if (const auto done = std::exchange(done_, nullptr)) done(all);
}

}  // namespace fencegate::backend
