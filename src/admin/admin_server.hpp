// The admin listener: a small HTTP/1.1 server for probes, scrapes and POST /quit (pages: admin_pages.hpp). It shares
// no thread and no lock with the gates, so that it answers while they are busy and until the process ends.
//
// Bounded in every direction: see limits::admin_*. When all connections are taken, a new one displaces the one that
// has been waiting longest for its next request, so that idle peers cannot shut the kubelet's probe out.
#pragma once

#include "admin/admin_pages.hpp"
#include "base/limits.hpp"
#include "base/metrics.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"
#include "fence/gate_settings.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace fencegate::admin {

class status_desk;

class admin_server {
 public:
  // REQUIRES: one thread at a time runs `io`; `process` outlives `io`. `on_quit` runs on that thread,
  // after the answer to POST /quit was sent, once for each such request. A peer has `timeout` to send a whole request,
  // and again to take its answer.
  admin_server(boost::asio::io_context& io, settings::address listen, metrics::process& process,
               std::function<void()> on_quit, std::chrono::milliseconds timeout = limits::admin_timeout);
  // Peers are served through TLS only. REQUIRES: how.wanted(); it has not started.
  void secure(const settings::listener_tls& how);
  // From then on this answers requests for marks, limits::admin_marks_max at a time. REQUIRES: `io` does not run yet, or this
  // is its thread; the service is called there, and answers there.
  void serve_marks(marks_service marks);
  // The same for POST /reload, which is 404 before.
  void serve_reloads(reload_service reloads);
  // From then on it answers status_pages.hpp, too. Of those who watch, limits::status_watchers_max are served: nobody
  // displaces them, and one that does not take an event within `timeout` is dropped. REQUIRES: `io` does not run yet; the desk
  // lives on its thread, and longer than this object.
  void serve_status(status_desk& status);
  // From then on it answers nothing but what this one does, and 404: it is another listener. REQUIRES: `io` does not run yet.
  void serve_only(std::function<page_answer(const page_request&)> pages);
  // Stops listening and closes all connections. REQUIRES: `io` is not running, or this is its thread.
  ~admin_server();
  admin_server(const admin_server&) = delete;
  admin_server& operator=(const admin_server&) = delete;

  // Listens from here on; answers as soon as `io` runs. The error says which address and why. REQUIRES: called once.
  [[nodiscard]] result<void> start();

  // The port in use, which the kernel chose if the settings say 0; 0 for a unix socket. REQUIRES: start() succeeded.
  [[nodiscard]] std::uint16_t port() const;

 private:
  class state;  // shared with the coroutines, which end after this object
  std::shared_ptr<state> state_;
};

}  // namespace fencegate::admin
