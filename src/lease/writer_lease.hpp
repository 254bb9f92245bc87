// The lease of one writer, which its gates hold for it: takes it, writes it down, opens the gates to it, renews it, and shuts
// them when it is lost (what is known of the writer: lease/writer.hpp).
//
// Rule kept: nothing is bound before the term is sealed in all places of today and on the disk, resumed or not; and behind a loss, or in a sidecar that has just
// started, nothing is taken before the writer was started anew and its gates listen anew.
//
// All of it runs on its context's thread.
#pragma once

#include "base/metrics.hpp"
#include "lease/sidecar_desk.hpp"
#include "lease/term_record.hpp"
#include "lease/writer.hpp"
#include "lease/writer_desk.hpp"
#include "lease/writer_gate.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::lease {

struct writer_wish {
  std::string name;
  writer_rules rules;
  std::vector<std::string> resources;  // of all its gates; each once
  std::vector<writer_gate*> gates;     // they live until release()
  std::optional<term_file> record;     // nullopt: a sidecar that comes back knows of no term
};

class writer_lease : public std::enable_shared_from_this<writer_lease> {
 public:
  // `disk`: one thread, on which files are written. REQUIRES: it and the stats live longer.
  writer_lease(boost::asio::io_context& context, boost::asio::thread_pool& disk, writer_wish wish,
               lease_sources sources, metrics::leases& stats, metrics::writer& state);

  void start();
  [[nodiscard]] writer::report started(std::string_view container, boot_clock::time_point start);
  void heard();
  // One of its gates met a mark above that token: no write passes there any more, whatever the issuer still confirms.
  void superseded(const fence::claim& presented);
  // The process is ending: what is held stays until release(), and nothing is taken any more.
  void drain();
  // No gate is there any more: gives back what is held, as far as the issuer answers in time. `done`: when nothing is on its way
  // back any more.
  void release(std::function<void()> done);

  [[nodiscard]] writer_view view() const;
  [[nodiscard]] const std::string& name() const { return wish_.name; }

 private:
  using step = void (writer_lease::*)();

  // Behind what failed: an issuer that does not answer, a disk that is full.
  static constexpr std::chrono::milliseconds back_off{1'000};

  void give_back();
  void let_go(std::shared_ptr<keeper> held, std::function<void()> then);
  [[nodiscard]] bool let_former_go(std::function<void()> then);
  void gone(const result<void>& outcome);
  void settled();

  void read_record();
  void on_record(const result<std::optional<term_record>>& read);
  void resume();
  void on_renewed(const lease_source& from, const std::string& issuer_id, clock_reading sent,
                  const result<renewal>& confirmed);
  void acquire();
  void listen_anew();
  void take();
  void on_acquired();
  void on_written(const result<void>& outcome);
  void hold();
  void on_failure(const keeper_failure& why);
  void on_not_resumed(const std::string& why);
  void on_lost(const keeper_loss& why);
  void lose(const std::string& why);
  void give_up(const std::string& why);
  void forget();
  void watch_silence();
  void fall_silent();
  void moved();

  // `acquired`: called then.
  [[nodiscard]] std::shared_ptr<keeper> make_keeper(const lease_source& from, step acquired);
  // As long as nothing else was begun meanwhile.
  template <class Call>
  [[nodiscard]] auto current(Call call);
  void later(std::chrono::milliseconds pause, step next);
  void begin_anew() { ++attempt_; }
  void show();
  void count(metrics::lease_state in, int n);
  [[nodiscard]] std::string words() const;

  boost::asio::io_context& context_;
  boost::asio::thread_pool& disk_;
  const writer_wish wish_;
  const lease_sources sources_;
  metrics::leases& stats_;
  metrics::writer& state_;
  std::vector<writer_gate*> gates_;  // none any more, once it is released
  writer writer_;
  boost::asio::steady_timer pause_, silence_;

  std::uint64_t attempt_ = 0;   // answers of an earlier one are void
  std::optional<term> former_;  // of an earlier process: to be resumed, or released
  bool reading_ = false;        // whether there is one
  std::size_t leaving_ = 0;     // what is being released, or read to be
  std::function<void()> released_;
  bool resumes_ = false;  // keeper_: that one
  std::shared_ptr<keeper> keeper_;
  std::shared_ptr<bond> bond_;  // holding
  std::optional<metrics::lease_state> counted_;
  boot_clock::time_point deadline_{};
  bool queues_are_old_ = false;  // those of the gates' listening sockets
  bool looked_late_ = false;     // for silence, the last time
  bool ending_ = false;
  std::string holder_, held_by_, problem_;
  writer_phase shown_ = writer_phase::unknown;
  std::chrono::system_clock::time_point since_ = std::chrono::system_clock::now();
};

template <class Call>
auto writer_lease::current(Call call) {
  return [weak = weak_from_this(), attempt = attempt_, call](auto&&... args) {
    const auto self = weak.lock();
    if (self && self->attempt_ == attempt) call(*self, args...);
  };
}

}  // namespace fencegate::lease
