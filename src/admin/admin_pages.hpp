// What the admin listener answers: pure, without sockets or HTTP library; admin_server.hpp moves the bytes.
//
//   GET  /livez    200 as long as the process runs        GET /metrics   Prometheus text
//   GET  /readyz   200 or 503; never asks a backend       GET /          a status page for people
//   POST /quit     begins the end of the process; for the job's own containers and nobody else
#pragma once

#include "base/metrics.hpp"
#include "base/settings.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace fencegate::admin {

struct page_request {
  std::string_view method;
  std::string_view target;               // a query is ignored
  std::optional<std::string_view> host;  // the Host field
  bool from_browser = false;             // carries Origin or Sec-Fetch-Site
  bool from_loopback = false;            // by the peer's address
};

struct page_answer {
  unsigned status = 200;
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
  std::string_view allow;  // of a 405
  bool quit = false;       // ask the process to end once this answer is sent
};

// POST /quit is refused (403) unless the peer is on loopback, Host names this host or `listen` (a page whose name was
// rebound to 127.0.0.1 sends its own), and no browser sent it (any web page may post to 127.0.0.1).
[[nodiscard]] page_answer answer_page(const page_request& request, const metrics::process& process,
                                      const settings::address& listen);

}  // namespace fencegate::admin
