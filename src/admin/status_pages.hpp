// What the admin listener answers about the process to people and their browsers: pure, as admin_pages.hpp is.
//
//   GET /                       the status page: HTML that asks for nothing but what is below
//   GET /api/v1/status          all of it, as JSON
//   GET /api/v1/status/events   server-sent events: all of it, then once a second what has changed; see admin_server.hpp
//
// They name resources and clients, so that peers on loopback alone may read them (403), where probes and metrics are for all. No
// web page of elsewhere can: its name, rebound to this host, is refused, too, and no origin is allowed.
#pragma once

#include "admin/admin_pages.hpp"

#include <optional>

namespace fencegate::admin {

class status_desk;

// nullopt: it is none of these pages.
[[nodiscard]] std::optional<page_answer> answer_status(const page_request& request, status_desk& desk,
                                                       const settings::address& listen);

}  // namespace fencegate::admin
