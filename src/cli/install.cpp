#include "cli/install.hpp"

#include "backend/postgres_install.hpp"
#include "cli/commands.hpp"
#include "cli/config_url.hpp"
#include "fence/token.hpp"

#include <algorithm>
#include <ostream>

namespace fencegate::cli {
namespace {

struct target {
  std::string names;  // "gate db, store ledger"
  backend::postgres_place place;
  backend::postgres_installation what;
};
using targets = std::vector<target>;

bool same_place(const backend::postgres_place& a, const backend::postgres_place& b) {
  return a.at.where == b.at.where && a.at.database == b.at.database && a.at.login.user == b.at.login.user;
}

// Two gates in front of one database: it keeps the wider limits, and each gate its own.
backend::postgres_limits wider(const backend::postgres_limits& a, const backend::postgres_limits& b) {
  const bool unlimited = a.max_step == 0 || b.max_step == 0;
  return {unlimited ? 0 : std::max(a.max_step, b.max_step), std::max(a.cut_timeout, b.cut_timeout),
          std::max(a.hold_grace, b.hold_grace)};
}

// A database that keeps marks for HTTP gates: its raises may wait as long as the most patient of them says.
std::optional<backend::postgres_limits> limits_of_store(const settings::process& config, const std::string& store) {
  std::optional<backend::postgres_limits> out;
  for (const auto& gate : config.http_gates) {
    const auto uses = [&](const settings::mark_store& s) { return s.name == store; };
    if (std::none_of(gate.stores.begin(), gate.stores.end(), uses)) continue;
    backend::postgres_limits own;
    own.max_step = gate.policy.max_step;
    own.hold_grace = gate.hold_grace;
    out = out ? wider(*out, own) : own;
    for (const auto& route : gate.routes) {
      if (route.store != store) continue;
      own.max_step = route.policy.max_step;
      out = wider(*out, own);
    }
  }
  return out;
}

void add(targets& to, target one, const std::vector<std::string>& databases) {
  std::vector<std::string> all = databases.empty() ? std::vector{one.place.at.database} : databases;
  for (auto& database : all) {
    one.place.at.database = std::move(database);
    const auto known =
        std::find_if(to.begin(), to.end(), [&](const target& t) { return same_place(t.place, one.place); });
    if (known == to.end()) {
      to.push_back(one);
      continue;
    }
    known->names += ", " + one.names;
    if (!known->what.limits)
      known->what.limits = one.what.limits;
    else if (one.what.limits)
      known->what.limits = wider(*known->what.limits, *one.what.limits);
  }
}

result<targets> find_targets(const settings::process& config, const install_request& request) {
  targets found;
  const bool all = request.gate.empty() && request.store.empty();
  backend::postgres_installation what;
  what.protect = request.protect;
  what.unprotect = request.unprotect;
  what.resource = request.resource;
  for (const auto& gate : config.postgres_gates) {
    if (!all && gate.name != request.gate) continue;
    what.gate_user = gate.control.user;
    what.limits = backend::postgres_limits{gate.policy.max_step, gate.cut_timeout};
    add(found,
        {"gate " + gate.name,
         {{gate.upstream, gate.control, gate.control_database, gate.secured}, gate.limits_time.connect},
         what},
        request.databases);
  }
  if (!request.gate.empty() && found.empty()) return error{"there is no postgres gate named " + request.gate};
  const std::size_t gates = found.size();
  for (const auto& store : config.stores) {
    if (!all && store.name != request.store) continue;
    if (const auto shape = parse_postgres_url(store.url); !shape) {
      if (all) continue;  // redis
      return error{"store " + store.name + ": " + shape.error().message};
    }
    const auto url = parse_store_url(store);
    what.gate_user = url->control.user;
    what.limits = limits_of_store(config, store.name);
    add(found, {"store " + store.name, {{url->where, url->control, url->database, url->secured}}, what},
        request.databases);
  }
  if (!request.store.empty() && found.size() == gates)
    return error{"there is no postgres store named " + request.store};
  if (found.empty()) return error{"the configuration names no PostgreSQL"};
  return {boost::system::in_place_value, std::move(found)};
}

result<void> check_request(const install_request& request, std::size_t databases) {
  if (!request.resource.empty() && !fence::is_resource_name(request.resource))
    return error{"--resource: a resource is 1 to 200 of the characters A-Z a-z 0-9 _ . : / -"};
  if (!request.resource.empty() && request.protect.empty())
    return error{"--resource has a meaning with --protect only"};
  if (databases == 1) return {};
  if (request.print)
    return error{"--print shows the SQL of one database; choose it with --gate, --store or --database"};
  if (!request.protect.empty() || !request.unprotect.empty())
    return error{"tables are those of one database; choose it with --gate, --store or --database"};
  return {};
}

}  // namespace

int install(const install_request& request, const environment& from, std::ostream& out, std::ostream& err) {
  const auto config = load_config(request.path, from);
  if (!config) {
    print_errors(config.error(), err);
    return exit_bad_configuration;
  }
  const auto found = find_targets(*config, request);
  const auto checked = found ? check_request(request, found->size()) : result<void>(found.error());
  if (!checked) {
    err << "fencegate: " << checked.error().message << '\n';
    return exit_bad_configuration;
  }
  if (request.print) {
    out << backend::install_script(found->front().what);
    return exit_ok;
  }
  int outcome = exit_ok;
  for (const auto& one : *found) {
    const auto done = backend::install(one.place, one.what);
    if (done)
      out << one.names << ": " << backend::to_string(one.place) << ": installed\n";
    else
      err << "fencegate: " << one.names << ": " << backend::to_string(one.place) << ": " << done.error().message
          << '\n';
    if (!done) outcome = exit_failed;
  }
  return outcome;
}

}  // namespace fencegate::cli
