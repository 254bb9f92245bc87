#include "gate/http/http_messages.hpp"

namespace fencegate::gate {

using wire::append_header_field;

void append_forwarded(std::string& to, const http_forwarded& request) {
  std::string target;
  request.target.append_to(target);
  wire::append_request_line(to, request.head.method, target);
  const std::string_view host = request.head.host;
  append_header_field(to, "Host", host);
  for (const header_field& field : request.head.fields) {
    if (!same_field_name(field.name, "Host") && wire::travels_on(field.name, request.hop))
      append_header_field(to, field.name, field.value);
  }
  // Behind what an earlier proxy has said: several lines of one list are one list.
  const std::string_view client = request.client.empty() ? "unknown" : request.client;
  if (!request.client.empty()) append_header_field(to, "X-Forwarded-For", client);
  if (wire::find_field(request.head.fields, "X-Forwarded-Proto") == nullptr)
    append_header_field(to, "X-Forwarded-Proto", "http");
  const bool v6 = client.find(':') != std::string_view::npos;
  append_header_field(to, "Forwarded",
                      "for=" + (v6 ? "\"[" + std::string(client) + "]\"" : std::string(client)) + ";proto=http");
  append_header_field(to, "Via", request.head.minor == 0 ? "1.0 fencegate" : "1.1 fencegate");
  if (request.wants_trailers) {
    append_header_field(to, "TE", "trailers");
    append_header_field(to, "Connection", "TE");
  }
  wire::append_framing_field(to, request.framing);
  to += "\r\n";
}

std::string marks_text(const fence::claims_list& marks) {
  std::string text;
  for (const auto& one : marks) {
    if (!text.empty()) text += ", ";
    if (marks.size() > 1) text += one.resource + "=";
    text += one.presented.to_string();
  }
  return text;
}

void append_marks(std::string& to, const fence::claims_list& marks) {
  if (!marks.empty()) append_header_field(to, "Fencing-Mark", marks_text(marks));
}

void append_relayed(std::string& to, const wire::http_response_head& head, const wire::http_hop& hop) {
  wire::append_status_line(to, head.status, head.reason);
  for (const header_field& field : head.fields) {
    // The mark is the gate's to say.
    if (wire::travels_on(field.name, hop) && !looks_like_field_name(field.name, "Fencing-Mark"))
      append_header_field(to, field.name, field.value);
  }
  append_header_field(to, "Via", head.minor == 0 ? "1.0 fencegate" : "1.1 fencegate");
}

void append_end_of_head(std::string& to, bool keep_alive, int minor) {
  if (!keep_alive) append_header_field(to, "Connection", "close");
  if (keep_alive && minor == 0) append_header_field(to, "Connection", "keep-alive");
  to += "\r\n";
}

fence::problem problem_of_gateway(int status, std::string_view detail, fence::problem::effect applied) {
  fence::problem out;
  out.status = status;
  out.title = wire::http_reason(status);
  out.detail = detail;
  out.applied = applied;
  return out;
}

void append_answer(std::string& to, const http_answer& answer) {
  wire::append_status_line(to, answer.status, wire::http_reason(answer.status));
  if (!answer.body.empty()) append_header_field(to, "Content-Type", answer.content_type);
  append_marks(to, answer.marks);
  if (answer.status == 405) append_header_field(to, "Allow", "GET, HEAD, PUT");  // of marks: nothing else answers so
  if (answer.status == 503) append_header_field(to, "Retry-After", "1");
  if (answer.status != 204) append_header_field(to, "Content-Length", std::to_string(answer.body.size()));
  append_end_of_head(to, answer.keep_alive, answer.minor);
  if (!answer.head_only) to += answer.body;
}

void append_refusal(std::string& to, int status, std::string_view detail) {
  const auto body = fence::problem_json(problem_of_gateway(status, detail, fence::problem::effect::none));
  append_answer(to, {status, fence::problem_media_type, body, {}, false});
}

}  // namespace fencegate::gate
