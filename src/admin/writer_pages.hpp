// What the API says about writers whose leases the gates of this process hold: pure, without sockets or HTTP library.
//
//   GET  /v1/gates/{gate}/writer             how it is: 200 in standby and holding, 503 in unknown and lost
//   POST /v1/writers/{writer}/started        unix sockets only: {"started_ms":1234,"container":"app"}: 204, or 409: too early
//   POST /v1/writers/{writer}/heartbeat      unix sockets only: its probe, answered like the GET; ?holding: 200 in holding alone
#pragma once

#include "admin/lease_pages.hpp"
#include "lease/writer_desk.hpp"

#include <optional>
#include <string_view>

namespace fencegate::admin {

// nullopt: it is about something else. `listen`: where it came.
[[nodiscard]] std::optional<lease_answer> answer_about_writers(const lease_request& request,
                                                               const settings::address& listen,
                                                               lease::writer_desk& writers);

// GET /v1/gates/{gate}/writer of the listener for probes, where it is the writer's heartbeat. nullopt: it is about something
// else.
[[nodiscard]] std::optional<page_answer> answer_probe(const page_request& request, lease::writer_desk& writers);

}  // namespace fencegate::admin
