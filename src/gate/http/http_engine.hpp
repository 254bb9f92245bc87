// One HTTP client's connection as an I/O-free machine: bytes in, bytes out. It reads one request at a time, finds its route,
// has its tokens checked, and then forwards it or lets a backend carry it out.
//
// Rules kept: nothing of a request that needs a token goes to the upstream before its store has said that every mark is at
// its token, and (held) before the hold was seen alive right then. What was inspected is what is sent: heads are written
// anew. No write is ever sent twice.
#pragma once

#include "base/byte_queue.hpp"
#include "base/metrics.hpp"
#include "fence/gate_settings.hpp"
#include "fence/problem.hpp"
#include "gate/http/held_bodies.hpp"
#include "gate/http/http_body.hpp"
#include "gate/http/http_host.hpp"
#include "gate/http/http_plan.hpp"
#include "wire/http_framing.hpp"
#include "wire/http_head.hpp"
#include "wire/http_hop.hpp"
#include "wire/http_target.hpp"
#include "wire/http_trailers.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::gate {

class http_engine {
 public:
  // `client`: the address, without its port. REQUIRES: everything given lives longer.
  http_engine(http_host& host, const settings::http_gate& gate, const http_plan& plan, metrics::gate& stats,
              std::string client);
  // `tag`: what its requests are bound to, in place of the gate's.
  http_engine(http_host& host, const settings::http_gate& gate, const http_plan& plan, metrics::gate& stats,
              std::string client, const fence::claims_list& tag);

  byte_queue from_client;
  byte_queue from_backend;
  std::string to_client;
  std::string to_backend;

  void on_client_bytes() { pump(); }
  // The client sends nothing more; it may still read.
  void on_client_end();
  // Nor does it read. What was sent under a hold lasts until the upstream has answered, everything else is given up; what
  // a store was asked to carry out, it carries out.
  void on_client_gone();
  // Only bytes show whether a client that sends nothing more has closed its connection. False: there are none to send now.
  [[nodiscard]] bool probe_client();
  void on_backend_bytes();
  // The upstream has closed the connection; its last bytes were read.
  // `cut_off`: somebody on the way may have taken away what would have followed.
  void on_backend_end(bool cut_off = false);
  void on_connected();
  void on_unreachable(std::string_view why);
  // The store's session that held the marks is gone: a raise has ended it, or the store. Which, is asked then, and told
  // by the second call.
  void on_hold_lost(const std::optional<fence::rejection>& why);
  // What the client has begun did not come in time; the connection ends.
  void on_client_timeout();
  // The upstream was silent for too long.
  void on_upstream_timeout();
  // The next answer says that it is the last one.
  void announce_end() { ends_soon_ = true; }
  void drain();

  // Nothing more will be read or sent but to_client; then the connection ends.
  [[nodiscard]] bool closing() const { return phase_ == phase::closing; }
  // Closing, but the client is still sending what nobody wants: an answer may be lost when it is cut off at once.
  [[nodiscard]] bool lingers() const { return closing() && lingers_; }
  // No request is under way, not even in part.
  [[nodiscard]] bool at_rest() const { return phase_ == phase::head && from_client.empty() && to_client.empty(); }
  // A part of a head has come.
  [[nodiscard]] bool awaits_head() const { return phase_ == phase::head && !from_client.empty(); }
  // The client's next bytes cannot be used before something else happens.
  [[nodiscard]] bool blocked() const;
  // The client has still to send of its body, and it is wanted.
  [[nodiscard]] bool awaits_body() const;
  // A body that is awaited keeps something from others meanwhile: memory, or a session of the store.
  [[nodiscard]] bool body_is_costly() const {
    return phase_ == phase::gathering || phase_ == phase::collecting || holding_;
  }
  // When the head of the request at hand was whole.
  [[nodiscard]] std::chrono::steady_clock::time_point began() const { return began_; }
  // The upstream has the request, or wants no more of it, and has not answered completely.
  [[nodiscard]] bool awaits_upstream() const {
    return phase_ == phase::forwarding && (request_body_.complete() || answered_);
  }

 private:
  enum class phase : std::uint8_t {
    head,        // of the next request
    gathering,   // the first of a held forward's body: the hold is not for waiting
    collecting,  // an atomic route's body
    checking,    // a store was asked
    connecting,  // the link is being opened for a request that may go
    forwarding,  // bodies are moved, the response is awaited or on its way
    swallowing,  // what is left of the body of a request that was answered
    closing
  };

  // ── requests (http_engine.cpp)
  void pump();
  [[nodiscard]] bool step();
  [[nodiscard]] bool step_head();
  [[nodiscard]] bool read_head(std::string_view bytes);
  void bring_tag_of_listener();
  void begin_request();
  [[nodiscard]] bool is_read() const;
  void serve_route(const fence::route_match& match);
  [[nodiscard]] bool settle_captures();
  [[nodiscard]] bool bind(const fence::policy& rules, const std::string& resource);
  void look(const fence::policy& rules);
  void on_judged(const fence_answer& answer);
  void note_admitted(const claims_list& marks, bool raised);
  void proceed();
  void abandon();

  // ── answers of the gate's own (http_engine_answer.cpp)
  void reject(fence::rejection why);
  void refuse(int status, std::string_view detail);
  void refuse_unread(int status, std::string_view detail);
  void refuse(const fence::problem& what);
  void refuse_unknown(int status, std::string_view detail);
  void answer(int status, std::string_view content_type, std::string_view body);
  [[nodiscard]] bool is_last() const;
  void note_answer(int status) {
    status_ = status;
    stats_.responses_total.at(static_cast<std::size_t>(status) / 100 - 2).add();
  }
  void tell_access();
  void drop_collected();
  void finish_request();

  // ── forwarding (http_engine_forward.cpp)
  void gather();
  [[nodiscard]] bool step_gathering();
  void hold();
  void forward();
  void send_forward();
  [[nodiscard]] bool step_forwarding();
  [[nodiscard]] bool step_response_head();
  [[nodiscard]] bool hold_is_gone();
  void end_cut(const fence::rejection& why);
  void relay_response_head(const wire::http_framing& framing);
  void end_response();
  void fail_forward(int status, std::string_view detail);
  void drop_link();
  void release();
  // Its claims were checked, and nothing keeps the marks where they are.
  [[nodiscard]] bool only_checked() const { return !holding_ && !claims_.empty(); }

  // ── atomic routes, and marks (http_engine_atomic.cpp)
  void collect();
  [[nodiscard]] bool step_collecting();
  void run();
  [[nodiscard]] bool add_value(const fence::route_template& text, route_values& to);
  void serve_marks();

  http_host& host_;
  const settings::http_gate& gate_;
  const http_plan& plan_;
  metrics::gate& stats_;
  const std::string client_;
  const std::array<std::string_view, 2> fence_fields_;
  const fence::claims_list& tag_;      // of the listener; empty: it has none
  const std::string tag_of_listener_;  // as its field says it
  phase phase_ = phase::head;
  bool pumping_ = false;
  bool ends_soon_ = false;
  bool draining_ = false;  // and ends where nothing is in flight
  bool client_ended_ = false;
  bool lingers_ = false;

  // The request at hand.
  wire::http_head_finder request_finder_{wire::http_head_finder::side::request};
  std::string head_bytes_;
  wire::http_request_head request_;
  wire::http_target target_;
  wire::http_hop hop_;
  wire::http_framing framing_;
  http_body request_body_;
  bool keep_alive_ = true;
  std::optional<std::size_t> route_;
  fence::route_captures captures_;
  claims_list claims_;                     // under which it is let through
  std::optional<fence::token> presented_;  // for the route's own resource
  claims_list marks_;                      // for the client to know
  std::string trace_;                      // the request's traceparent
  int status_ = 0;                         // of its answer
  std::string collected_;
  held_bodies held_;  // of it, and of the values that were made of it
  std::chrono::steady_clock::time_point began_{};
  std::chrono::steady_clock::time_point checked_{};  // when the store had said that the marks are at the tokens

  // The link and the response.
  bool linked_ = false;
  bool holding_ = false;
  bool cut_ = false;  // what was forwarded under a hold that is gone; who has ended it is asked
  wire::http_head_finder response_finder_{wire::http_head_finder::side::response};
  std::string response_bytes_;
  wire::http_response_head response_;
  wire::http_hop response_hop_;
  http_body response_body_;
  bool answered_ = false;       // the response's head was sent on
  bool link_reusable_ = false;  // behind this response
};

}  // namespace fencegate::gate
