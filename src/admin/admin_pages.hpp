// What the admin listener answers: pure, without sockets or HTTP library; admin_server.hpp moves the bytes.
//
//   GET  /livez    200 as long as the process runs        GET /metrics   Prometheus text
//   GET  /readyz   200 or 503; never asks a backend       GET /          for people: status_pages.hpp
//                  (503: starting, draining, or out of file descriptors)
//   POST /quit     begins the end of the process; for the job's own containers and nobody else
//   POST /reload   reads the configuration again; for the same peers
//   GET, PUT /.fencegate/marks/{resource}   of the HTTP gate with seal: admin, which answers them; for the same peers
#pragma once

#include "base/header_field.hpp"
#include "base/metrics.hpp"
#include "base/settings.hpp"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fencegate::admin {

struct page_request {
  std::string_view method;
  std::string_view target;               // a query is ignored
  std::optional<std::string_view> host;  // the Host field
  bool from_browser = false;             // carries Origin or Sec-Fetch-Site
  bool from_loopback = false;            // by the peer's address; on a unix socket, too
};

struct page_answer {
  unsigned status = 200;
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
  std::string_view allow;                    // of a 405
  std::string fencing_mark = {};             // the field of this name; "": none
  std::string content_security_policy = {};  // of HTML; "": none
  bool reload = false;                       // no answer yet: it comes when the configuration was read
  bool quit = false;                         // ask the process to end once this answer is sent
  bool marks = false;                        // no answer yet: it is the marks' service that gives it
  bool events = false;                       // no answer either, but the events of the status
};

struct marks_request {
  std::string_view method, target, host;
  std::span<const header_field> fields;
  std::string_view client;  // address and port
};
// Answers a request for a mark, at once or later, on the thread that asked.
using marks_service = std::function<void(const marks_request&, std::function<void(page_answer)> done)>;

// Reads the configuration again, and answers what came of it, at once or later, on the thread that asked.
using reload_service = std::function<void(std::function<void(page_answer)> done)>;

// "ready", or why it is not.
[[nodiscard]] std::string_view process_state(const metrics::process& process);

// Host is no name, but for localhost and that of `listen`: so no page of elsewhere has come by a name that was rebound to here.
[[nodiscard]] bool names_an_address(const page_request& request, const settings::address& listen);

// Why `what`, which is for the pod's own programs, is refused to this peer: it is not on loopback, Host names neither this
// host nor `listen` (a page whose name was rebound to 127.0.0.1 sends its own), or a browser sent it (any web page may post to
// 127.0.0.1). nullopt: it is not refused.
[[nodiscard]] std::optional<std::string> why_stranger(std::string_view what, const page_request& request,
                                                      const settings::address& listen);

// POST /quit, POST /reload and marks are refused (403) to strangers.
// `marks`: there is a service of marks.
[[nodiscard]] page_answer answer_page(const page_request& request, const metrics::process& process,
                                      const settings::address& listen, bool marks = false);

}  // namespace fencegate::admin
