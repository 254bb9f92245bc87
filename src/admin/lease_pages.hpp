// What the API of leases is asked, and what it answers: pure, without sockets or HTTP library; lease_server.hpp moves the
// bytes.
//
//   POST   /v1/leases               acquire: 201 with id, tokens, tag, act_for_ms, stop_ms
//   PUT    /v1/leases/{id}          renew: 200 with act_for_ms, stop_ms
//   DELETE /v1/leases/{id}          release: 204
//   GET    /v1/leases               all leases of this process, without their ids
//   GET    /v1/leases/{id}/events   server-sent events: granted, renewed, expiring, lost
//   POST   /v1/operations/W         what operators ask: show, break, freeze, thaw, move, forget-store (lease/operation.hpp)
//   POST   /v1/leases/{id}/gates/G  renew, and go on as a client of gate G: 101, with Upgrade: fencegate-gate
//
// An answer that refuses is a problem document (RFC 9457). Its type is urn:fencegate:held (409), lost (410), unavailable (503),
// refused (422) or malformed (400); of what HTTP itself has a status for, it is about:blank.
#pragma once

#include "admin/admin_pages.hpp"
#include "base/json_text.hpp"
#include "base/settings.hpp"
#include "lease/desk.hpp"
#include "lease/gate_switch.hpp"
#include "lease/operation.hpp"

#include <boost/system/result.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::admin {

struct lease_request {
  page_request head;
  std::optional<std::string_view> content_type;
  bool upgrades = false;  // Upgrade: fencegate-gate
  std::string_view body;
};

// What to ask of the desk.
struct lease_question {
  enum class kind : std::uint8_t { acquire, renew, release, list, watch, connect, operate } what = kind::list;
  lease::lease_wish wish{};      // acquire
  std::string id{};              // renew, release, watch, connect
  fence::claims_list tokens{};   // renew, release, connect
  std::string gate{};            // connect
  lease::operation operation{};  // operate
  std::string by{};              // operate: who asks, for people
};

struct lease_answer {
  unsigned status = 200;
  std::string body;
  std::string_view content_type = "application/json";
  std::string_view allow{};     // of a 405
  std::string_view protocol{};  // of a 101: what the gate speaks
};

using lease_question_result = boost::system::result<lease_question, lease_answer>;
// It is for local programs alone, as POST /quit of the admin listener is: see why_stranger.
[[nodiscard]] lease_question_result read_lease_request(const lease_request& request, const settings::address& listen);

[[nodiscard]] lease_answer lease_granted(const lease::lease_given& given);
[[nodiscard]] lease_answer lease_renewed(const lease::lease_given& given);
[[nodiscard]] lease_answer lease_released();
[[nodiscard]] lease_answer lease_refused(const lease::lease_refusal& why);
[[nodiscard]] lease_answer leases_listed(const std::vector<lease::lease_seen>& all);
// An operation is done; `json` is what it has told.
[[nodiscard]] lease_answer operation_done(std::string json);
// There is no lease of this id here.
[[nodiscard]] lease_answer lease_unknown();
// 101: the connection is the gate's from here on.
[[nodiscard]] lease_answer lease_connected(std::string_view protocol);
// What HTTP has a status for: 400, 403, 404, 405, 409, 413, 415, 426, 431.
[[nodiscard]] lease_answer lease_problem(unsigned status, std::string_view detail);

// 405.
[[nodiscard]] lease_answer lease_wrong_method(std::string_view allow);
// Content-Type is not JSON's: 415.
[[nodiscard]] std::optional<lease_answer> refuse_type(const lease_request& request);
// The members `tokens` and `tag` of an object that is written behind `out`.
void add_lease_tokens(std::string& out, json_object& to, const fence::claims_list& claims);

// One event of a stream, with its data in one line.
[[nodiscard]] std::string lease_event_text(const lease::lease_event& event);

}  // namespace fencegate::admin
