// Heads and answers that the HTTP gate writes.
#pragma once

#include "fence/problem.hpp"
#include "fence/tag.hpp"
#include "wire/http_framing.hpp"
#include "wire/http_head.hpp"
#include "wire/http_hop.hpp"
#include "wire/http_target.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace fencegate::gate {

// The head of a request for the upstream: canonical, one framing field, what was for the gate alone left out; told who
// asks (RFC 7239, and X-Forwarded-For and its like).
struct http_forwarded {
  const wire::http_request_head& head;
  const wire::http_target& target;
  const wire::http_hop& hop;
  const wire::http_framing& framing;
  std::string_view client;      // address without port; "" when it has none
  bool wants_trailers = false;  // of the response
};
void append_forwarded(std::string& to, const http_forwarded& request);

// `34`, or with several `orders=34, payments=12` (RFC 9110 section 5.6.1); "" for none.
[[nodiscard]] std::string marks_text(const fence::claims_list& marks);
// The field Fencing-Mark with it; nothing for none.
void append_marks(std::string& to, const fence::claims_list& marks);

// The head of the upstream's response for the client, but for its framing and its end.
void append_relayed(std::string& to, const wire::http_response_head& head, const wire::http_hop& hop);

// How the connection goes on, where that is not what the peer's version implies. The end of a head.
void append_end_of_head(std::string& to, bool keep_alive, int minor);

// What went wrong with the request or behind the gate, where the fence has nothing to say about it.
[[nodiscard]] fence::problem problem_of_gateway(int status, std::string_view detail, fence::problem::effect applied);

// A whole answer of the gate's own.
struct http_answer {
  int status = 200;
  std::string_view content_type = "application/json";
  std::string_view body;
  const fence::claims_list& marks;
  bool keep_alive = true;
  int minor = 1;           // of the request's HTTP version
  bool head_only = false;  // to HEAD: what GET would have got, without its body
};
void append_answer(std::string& to, const http_answer& answer);
// To a client of which nothing was read; the connection ends.
void append_refusal(std::string& to, int status, std::string_view detail);

}  // namespace fencegate::gate
