// Reads the configuration again while it is served, and has its gates exchanged: all of it is taken over, or nothing.
//
// The file is read as at the start, with its variables and the files that it names. What cannot be exchanged is an error that
// names the key.
#pragma once

#include "admin/admin_pages.hpp"
#include "base/metrics.hpp"
#include "cli/configuration_file.hpp"
#include "cli/examination.hpp"
#include "cli/running_gates.hpp"
#include "cli/secrets_in_use.hpp"
#include "fence/gate_settings.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::cli {

// What is wrong with serving `next` where `now` is served: each key that needs a restart. Pure.
[[nodiscard]] std::vector<std::string> needs_restart(const settings::process& now, const settings::process& next);

// The settings that running_gates do not have: exchanged without more ado.
[[nodiscard]] bool differs_besides_gates(const settings::process& now, const settings::process& next);

class reloader {
 public:
  using take_over = std::function<void(const settings::process&)>;

  // `take` is told of a configuration behind its gates; where the process drains by then, its drain_timeout is the former one.
  // REQUIRES: the others live longer. All on `io`'s thread.
  reloader(boost::asio::io_context& io, configuration_file& file, settings::process now, running_gates& gates,
           metrics::process& stats, take_over take);

  // `done` comes once, at once or later, with what POST /reload is answered.
  using answered = std::function<void(admin::page_answer)>;
  void reload(answered done);
  // As reload(); where one is at work, once more behind it.
  void reload_by_signal();
  // From now on, looks every few seconds at the files with secrets: where one holds another, that is taken over, and nothing
  // else that the configuration says by now.
  void watch_secrets();

 private:
  struct attempt;
  using attempt_ptr = std::shared_ptr<attempt>;

  [[nodiscard]] bool is_draining() const { return stats_.draining.value() != 0; }
  void begin(const config_result& read, answered done);
  void examine_then_change(const attempt_ptr& one);
  void change(const attempt_ptr& one);
  void succeed(const attempt_ptr& one);
  void refuse(const attempt_ptr& one, const config_errors& errors);
  void end(const attempt_ptr& one, metrics::reload_outcome how, admin::page_answer answer);

  boost::asio::io_context& io_;
  configuration_file& file_;
  settings::process now_;
  secrets_in_use secrets_;
  running_gates& gates_;
  metrics::process& stats_;
  const take_over take_;
  boost::asio::steady_timer look_;
  bool at_work_ = false, once_more_ = false;
  std::shared_ptr<examination> examining_;
};

}  // namespace fencegate::cli
