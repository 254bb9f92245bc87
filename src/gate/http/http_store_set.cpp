#include "gate/http/http_store_set.hpp"

#include "backend/sql_parameters.hpp"
#include "fence/compare.hpp"
#include "fence/problem.hpp"
#include "wire/reply_json.hpp"
#include "wire/sql_json.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace fencegate::gate {
namespace {

using backend::pg_store;
using backend::redis_store;

// Behind a forward that was only checked its marks are looked at once more, when it took at least this: leases change
// hands more slowly, and the look costs the store as much as the check.
constexpr std::chrono::milliseconds takeover_least{50};

// Calls `with` with whichever store it is.
template <class Call>
auto visit(const http_store_set::store& one, Call call) {
  return std::visit([&](const auto& store) { return call(*store); }, one);
}

fence_answer answer_of(const backend::store_result<std::vector<backend::looked_mark>>& found) {
  fence_answer out;
  if (found.has_error()) {
    out.why = found.error();
    return out;
  }
  for (const auto& one : *found)
    if (one.mark) out.marks.push_back({one.resource, *one.mark});
  return out;
}

fence_answer answer_of(const backend::store_result<std::vector<backend::sealed_mark>>& sealed) {
  fence_answer out;
  if (sealed.has_error()) {
    out.why = sealed.error();
    return out;
  }
  for (const auto& one : *sealed) {
    out.marks.push_back(one.at);
    out.raised = out.raised || one.raised;
  }
  return out;
}

// {"rows":[{…}],"affected":1}; `truncated` where there were more rows than a gate gives.
std::string json_of(const backend::pg_table& table) {
  std::vector<wire::sql_column> columns;
  for (const auto& one : table.columns) columns.push_back({one.name, one.type});
  const wire::sql_row_writer writer(columns);
  std::string out = "{\"rows\":[";
  std::vector<std::optional<std::string_view>> values;
  for (const auto& row : table.rows) {
    if (out.back() != '[') out += ',';
    values.assign(row.begin(), row.end());
    writer.append(out, values);
  }
  out += ']';
  if (table.affected) out += ",\"affected\":" + std::to_string(*table.affected);
  if (table.cut_off) out += ",\"truncated\":true";
  return out + "}";
}

wire::reply_value view_of(const backend::redis_reply& reply) {
  wire::reply_value out;
  out.type = reply.type;
  out.text = reply.text;
  out.null = reply.null;
  for (const auto& one : reply.elements) out.elements.push_back(view_of(one));
  return out;
}

void set_problem(atomic_answer& out, const fence::problem& what) {
  out.what = atomic_answer::outcome::failed;
  out.status = what.status;
  out.body = fence::problem_json(what);
}

atomic_answer answer_of(const backend::run_outcome& ran, const claims_list& wanted) {
  using kind = backend::run_outcome::kind;
  atomic_answer out;
  switch (ran.what) {
    case kind::done:
      out.what = atomic_answer::outcome::done;
      out.status = 200;
      out.content_type = "application/json";
      out.body = json_of(ran.table);
      out.marks = wanted;
      break;
    case kind::failed:
      set_problem(out, fence::problem_of(
                           fence::sql_error{ran.error.sqlstate, ran.error.message, ran.error.detail, ran.error.hint}));
      break;
    case kind::rejected:
      out.what = atomic_answer::outcome::rejected;
      out.why = ran.why;
      break;
    case kind::unknown: out.detail = "the database went away before it had answered: " + ran.error.message; break;
  }
  return out;
}

// Whether Redis may run the same command later. It is the first word that says so: BUSYKEY and BUSYGROUP are about the data.
bool may_succeed_later(std::string_view reply) {
  static constexpr std::array<std::string_view, 8> codes{"OOM",      "LOADING",    "BUSY",     "MISCONF",
                                                         "READONLY", "NOREPLICAS", "TRYAGAIN", "MASTERDOWN"};
  const auto code = reply.substr(0, reply.find(' '));
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

// Redis's own error, on which the command was not applied (a script that failed half-way is Redis's to explain).
atomic_answer answer_of(const backend::command_outcome& ran, const claims_list& wanted) {
  using kind = backend::command_outcome::kind;
  atomic_answer out;
  switch (ran.what) {
    case kind::done:
      out.what = atomic_answer::outcome::done;
      out.status = 200;
      out.content_type = "application/json";
      out.body = "{\"reply\":";
      wire::append_reply_json(out.body, view_of(ran.reply));
      if (ran.lacks == backend::command_outcome::lack::digits) out.body += ",\"inexact\":true";
      if (ran.lacks == backend::command_outcome::lack::all) out.body += ",\"truncated\":true";
      out.body += '}';
      out.marks = wanted;
      break;
    case kind::failed: {
      fence::problem what;
      const bool too_large = ran.lacks == backend::command_outcome::lack::all;
      what.status = too_large ? 502 : may_succeed_later(ran.reply.text) ? 503 : 400;
      what.name = "command";
      what.title = too_large ? "The answer is too large" : "Redis refused the command";
      what.detail = ran.reply.text;
      what.applied = fence::problem::effect::none;
      set_problem(out, what);
      break;
    }
    case kind::rejected:
      out.what = atomic_answer::outcome::rejected;
      out.why = ran.why;
      break;
    case kind::unknown: out.detail = "Redis may have run it: " + ran.detail; break;
  }
  return out;
}

// A hold that is asked for, then granted, until it is dropped.
class hold_of_store final : public mark_hold {
 public:
  struct shared {
    std::optional<backend::held_marks> marks;
    bool dropped = false;
  };

  hold_of_store() = default;
  ~hold_of_store() override {
    state->dropped = true;
    state->marks.reset();
  }
  [[nodiscard]] bool alive() override { return state->marks && state->marks->alive(); }
  void set_aside() override {
    if (state->marks) state->marks->set_aside();
  }

  const std::shared_ptr<shared> state = std::make_shared<shared>();
};

}  // namespace

// ── the stores ──────────────────────────────────────────────────────────────────────────────────────────────────────

http_store_set::http_store_set(workers& threads, const settings::http_gate& gate, metrics::gate& stats)
    : whole_(stats.whole.lock()), gate_(gate), stats_(stats) {
  std::vector<boost::asio::io_context*> contexts;
  for (std::size_t i = 0; i < threads.size(); ++i) contexts.push_back(&threads.context(i));
  for (const auto& one : gate.stores) {
    if (one.speaks == settings::mark_store::kind::postgres)
      stores_.emplace(one.name, std::make_shared<pg_store>(threads.context(0), gate.name, one, gate.hold_grace, stats));
    else
      stores_.emplace(one.name, std::make_shared<redis_store>(contexts, gate.name, one, stats));
  }
  for (const auto& route : gate.routes) {
    auto& bytes = as_bytes_.emplace_back(route.parameters.size(), false);
    for (const auto& [number, cast] : backend::sql_parameters(route.statement))
      if (number >= 1 && number <= bytes.size()) bytes[number - 1] = cast.bytea;
  }
}

void http_store_set::start(const std::shared_ptr<void>& unsettled) {
  for (const auto& [name, one] : stores_) {
    if (const auto* redis = std::get_if<std::shared_ptr<redis_store>>(&one))
      (*redis)->start(unsettled);
    else  // whose callers wait for the pool
      std::get<std::shared_ptr<pg_store>>(one)->start();
  }
}

void http_store_set::stop(const boost::asio::io_context& thread) {
  for (const auto& [name, one] : stores_) visit(one, [&](auto& s) { s.stop(thread); });
}

const http_store_set::store& http_store_set::of(http_host::where route) const {
  const std::string& name = route ? gate_.routes[*route].store : gate_.stores.front().name;
  return stores_.find(name)->second;
}

// ── questions ───────────────────────────────────────────────────────────────────────────────────────────────────────

backend::store_caller http_session_stores::from(std::weak_ptr<const void> session) const {
  return {thread_, std::move(session), std::chrono::steady_clock::now() + set_->gate().answer_timeout};
}

backend::presented_claims http_session_stores::presented(where route, const claims_list& wanted) const {
  const auto& policy = route ? set_->gate().routes[*route].policy : set_->gate().policy;
  // A mark that is a resource of its own is raised to where it is as often as anybody likes.
  return {wanted, policy.max_step, false, route && policy.spends()};
}

void http_session_stores::look(std::weak_ptr<const void> session, where route, const claims_list& wanted,
                               fence_callback done) {
  std::vector<std::string> resources;
  for (const auto& one : wanted) resources.push_back(one.resource);
  visit(set_->of(route), [&](auto& store) {
    store.look(from(std::move(session)), std::move(resources),
               [done = std::move(done)](const auto& found) { done(answer_of(found)); });
  });
}

void http_session_stores::raise(std::weak_ptr<const void> session, where route, const claims_list& wanted,
                                fence_callback done) {
  visit(set_->of(route), [&](auto& store) {
    store.seal(from(std::move(session)), presented(route, wanted),
               [done = std::move(done)](const auto& sealed) { done(answer_of(sealed)); });
  });
}

std::unique_ptr<mark_hold> http_session_stores::hold(std::weak_ptr<const void> session, where route,
                                                     const claims_list& wanted, fence_callback done, hold_lost lost) {
  auto mine = std::make_unique<hold_of_store>();
  // Only PostgreSQL can hold; the configuration was checked for that.
  const auto& store = std::get<std::shared_ptr<pg_store>>(set_->of(route));
  auto on_cut = [state = mine->state, lost = std::move(lost)](const std::optional<fence::rejection>& why) {
    if (!state->dropped) lost(why);
  };
  auto on_held = [state = mine->state, wanted,
                  done = std::move(done)](backend::store_result<backend::held_marks> granted) {
    if (state->dropped) return;
    fence_answer out;
    if (granted.has_error()) {
      out.why = granted.error();
    } else {
      state->marks.emplace(std::move(*granted));
      out.marks = wanted;
    }
    done(out);
  };
  store->hold(from(std::move(session)), presented(route, wanted), std::move(on_cut), std::move(on_held));
  return mine;
}

std::optional<fence::rejection> http_session_stores::known_stale(where route, const claims_list& claims) {
  const backend::presented_claims wanted{claims};
  return visit(set_->of(route), [&](const auto& store) { return backend::known_rejected(store, wanted); });
}

// Other gates raise marks, too: the store is asked, unless all was over before anybody could have taken over.
void http_session_stores::count_overtaken(where route, const claims_list& claims, std::chrono::nanoseconds ago) {
  if (known_stale(route, claims)) return set_->stats().forwards_overtaken_total.add();
  if (ago < takeover_least) return;
  std::vector<std::string> resources;
  for (const auto& one : claims) resources.push_back(one.resource);
  auto on_found = [set = set_, claims](const auto& found) {  // in their order
    bool overtaken = false;
    for (std::size_t i = 0; found && i < found->size(); ++i)
      overtaken = overtaken || fence::compare(claims[i].presented, (*found)[i].mark) == fence::comparison::stale;
    if (overtaken) set->stats().forwards_overtaken_total.add();
  };
  visit(set_->of(route), [&](auto& store) { store.look(from(weak_from_this()), std::move(resources), on_found); });
}

void http_session_stores::run(std::weak_ptr<const void> session, std::size_t route, const claims_list& wanted,
                              route_values values, bool read_only, std::function<void(const atomic_answer&)> done) {
  auto claims = presented(route, wanted);
  claims.read_only = read_only;
  claims.spends = claims.spends && !read_only;
  const bool raises = claims.spends && !wanted.empty();
  auto tell = [wanted, raises, done = std::move(done)](const auto& ran) {
    auto out = answer_of(ran, wanted);
    out.raised = raises;
    done(out);
  };
  const auto& one = set_->of(route);
  if (const auto* postgres = std::get_if<std::shared_ptr<pg_store>>(&one)) {
    backend::pg_statement statement{set_->gate().routes[route].statement};
    for (std::size_t i = 0; i < values.size(); ++i)
      statement.parameters.push_back({std::move(values[i]), set_->as_bytes(route)[i]});
    (*postgres)->run(from(std::move(session)), std::move(claims), std::move(statement), std::move(tell));
  } else {
    std::vector<std::string> words;
    for (auto& value : values) words.push_back(std::move(value).value_or(""));  // none is missing
    std::get<std::shared_ptr<redis_store>>(one)->run(from(std::move(session)), std::move(claims), std::move(words),
                                                     std::move(tell));
  }
}

}  // namespace fencegate::gate
