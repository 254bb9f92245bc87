// What the status page and GET /api/v1/status tell, and how it is written: pure. admin/status_desk.hpp collects it.
//
// No secret is in it: addresses without user and password, leases without their ids. Tokens and marks are JSON strings: the
// numbers of a browser have 53 bits.
#pragma once

#include "admin/status_board.hpp"
#include "lease/desk.hpp"
#include "lease/writer_desk.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::admin {

// What the configuration says of a gate.
struct gate_facts {
  struct server {
    std::string name;     // of the store; "": the gate's upstream
    std::string address;  // without user and password
  };
  std::string name;
  std::string protocol;   // redis, postgres, http
  std::string mode;       // enforce, monitor, mixed
  std::string guarantee;  // in words
  std::string listen;
  std::vector<server> servers;
};

struct server_status {
  std::string name, address;
  enum class state : std::uint8_t { unknown, up, down } is = state::unknown;
  std::string problem;  // down: why
};

// Of each of the last seconds, the oldest first.
struct traffic {
  std::vector<std::uint64_t> admitted, rejected;
};

struct gate_status {
  gate_facts facts;
  std::vector<server_status> servers;
  std::int64_t connections = 0;
  std::uint64_t admitted = 0, rejected = 0;  // of which monitor mode has let the rejected ones through
  std::uint64_t stale = 0;                   // of the rejected
  std::uint64_t raises = 0, sessions_cut = 0, regressions = 0;
  traffic lately;
};

struct lease_status {
  std::vector<lease::lease_seen> leases;
  std::vector<lease::writer_view> writers;
};

struct status_view {
  std::string state;  // as /readyz says it
  bool draining = false;
  std::int64_t generation = 1;  // of the configuration
  wall_time started, now;
  std::vector<gate_status> gates;
  lease_status leased;
  bool complete = true;  // all that is remembered of what was seen; else what has changed
  status_board::changes seen;
};

[[nodiscard]] std::string status_json(const status_view& view);

// So that it can stand in an element `script` of HTML.
[[nodiscard]] std::string json_in_html(std::string_view json);

}  // namespace fencegate::admin
