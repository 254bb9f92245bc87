// The gates that are served. Each is a unit: settings that never change, stats, and a server. A configuration that is read
// anew replaces the units whose settings it changes; those that were replaced serve their connections under the settings with
// which these began, until the last one has gone.
//
// Why the fence holds meanwhile: two units of one gate are two sidecars in front of one server. A unit shares nothing with
// another that says what may be written: each has its own memory of marks, links, connections for raises and pools of stores,
// and begins as a sidecar that was restarted. What a write needs is proven at the server: by the marks that WATCH and MGET
// have shown in front of EXEC, by a session that is registered there and that a raise ends, by the row or the script that is
// checked together with the write. So a raise by the new unit stops older tokens of the former one, as that of any other
// sidecar does, and the other way round.
//
// All of it runs on the thread of the context that it is given.
#pragma once

#include "admin/admin_pages.hpp"
#include "base/metrics.hpp"
#include "base/result.hpp"
#include "fence/gate_settings.hpp"
#include "gate/http/http_marks.hpp"
#include "gate/postgres/cancel_routes.hpp"
#include "gate/relay/rejection_log.hpp"
#include "gate/relay/server.hpp"
#include "gate/relay/workers.hpp"

#include <boost/asio/io_context.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace fencegate::cli {

// Names of gates, in the order of the configuration.
struct gate_changes {
  std::vector<std::string> added, changed, removed, unchanged;
};

class running_gates {
 public:
  // `prepare` is given the stats of each unit before it starts. REQUIRES: the others live longer.
  running_gates(boost::asio::io_context& io, gate::workers& threads, metrics::process& stats,
                gate::rejection_log& rejections, std::function<void(metrics::gate&)> prepare);

  // The error says which gate cannot be served, and why. REQUIRES: no thread runs.
  [[nodiscard]] result<void> start(const settings::process& config);

  [[nodiscard]] gate_changes compare(const settings::process& next) const;
  // Serves these gates instead, or, with an error, goes on as before. `done` comes once, later: when what listens has the new
  // settings. REQUIRES: gates with a lease are unchanged; the one before has come.
  using changed = std::function<void(const result<void>&)>;
  void change(const settings::process& next, changed done);

  // nullptr: there is none.
  [[nodiscard]] gate::server* find(std::string_view name) const;
  // "redis", "postgres" or "http"; "": there is none.
  [[nodiscard]] std::string_view protocol_of(std::string_view name) const;
  // The marks of the gate with seal: admin; empty: there is none.
  [[nodiscard]] admin::marks_service marks() const;

  // See gate::server. What change() has under way comes to nothing: its `done` is told so from here.
  void drain();
  void stop_accepting();
  // Of clients, to all units.
  [[nodiscard]] std::int64_t connections() const;
  // Ends all, with their connections. REQUIRES: the workers have stopped.
  void clear();

 private:
  using gate_settings = std::variant<settings::redis_gate, settings::postgres_gate, settings::http_gate>;
  // What some of a unit's work may need for a moment longer than its server is there.
  struct ground {
    ground(gate_settings of, std::string name) : settings(std::move(of)), stats(std::move(name)) {}
    const gate_settings settings;
    metrics::gate stats;
  };
  struct unit {
    std::shared_ptr<ground> on;
    std::shared_ptr<gate::cancel_routes> cancels;  // PostgreSQL: of all units of this name
    std::unique_ptr<gate::server> server;
    std::shared_ptr<gate::http_marks_desk> desk;  // seal: admin
  };
  using unit_ptr = std::shared_ptr<unit>;
  struct changing {
    std::vector<unit_ptr> all, fresh, going;
    std::size_t unsettled = 0;
    changed done;
  };

  [[nodiscard]] static std::vector<gate_settings> gates_of(const settings::process& config);
  [[nodiscard]] static const std::string& name_of(const gate_settings& one);
  [[nodiscard]] unit_ptr unit_of(std::string_view name) const;
  [[nodiscard]] std::shared_ptr<gate::cancel_routes> cancels_of(std::string_view name) const;
  [[nodiscard]] result<unit_ptr> make(const gate_settings& wanted);
  [[nodiscard]] result<void> make_server(unit& of, const settings::redis_gate& gate);
  [[nodiscard]] result<void> make_server(unit& of, const settings::postgres_gate& gate);
  [[nodiscard]] result<void> make_server(unit& of, const settings::http_gate& gate);
  [[nodiscard]] result<void> prepare_change(changing& to, const settings::process& next);
  // Whether the ports of those that overlap with this address are shared with another socket; false: there is none.
  static bool share_port_of(const std::vector<unit_ptr>& units, const settings::address& where, bool shares);
  [[nodiscard]] static unit_ptr listening_at(const std::vector<unit_ptr>& units, const settings::address& where);
  void settle(const std::shared_ptr<changing>& one);
  void switch_over(const std::shared_ptr<changing>& one);
  void give_up(const std::shared_ptr<changing>& one, const error& why);
  void end_change();
  void retire(const unit_ptr& one);
  void forget(const unit* gone);
  void show();

  boost::asio::io_context& io_;
  gate::workers& workers_;
  metrics::process& stats_;
  gate::rejection_log& rejections_;
  const std::function<void(metrics::gate&)> prepare_;
  std::vector<unit_ptr> units_;    // in the order of the configuration
  std::vector<unit_ptr> retired_;  // not gone yet; of those that were never served, too
  std::shared_ptr<changing> changing_;
  bool draining_ = false;
  const std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace fencegate::cli
