#include "admin/lease_http.hpp"

#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/rfc7230.hpp>

#include <utility>

namespace fencegate::admin {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::beast::flat_buffer;
using boost::system::error_code;

boost::beast::string_view to_beast(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

http::response<http::string_body> to_response(lease_answer answer, const answer_form& form) {
  http::response<http::string_body> out;
  out.version(form.version);
  out.result(answer.status);
  if (!answer.content_type.empty()) out.set(http::field::content_type, to_beast(answer.content_type));
  out.set(http::field::cache_control, "no-store");
  out.set("X-Content-Type-Options", "nosniff");
  if (!answer.allow.empty()) out.set(http::field::allow, to_beast(answer.allow));
  if (answer.status == 503) out.set(http::field::retry_after, "1");
  out.keep_alive(form.keep_alive);
  if (answer.status == 101) {
    out.set(http::field::connection, "Upgrade");
    out.set(http::field::upgrade, to_beast(lease::gate_upgrade));
    out.set(to_beast(lease::gate_protocol_field), to_beast(answer.protocol));
    return out;
  }
  if (answer.status == 426) out.set(http::field::upgrade, to_beast(lease::gate_upgrade));
  if (answer.status != 204) out.content_length(answer.body.size());
  if (!form.head_only) out.body() = std::move(answer.body);
  return out;
}

bool asks_for_gate(const lease_parser::value_type& request) {
  return request.version() >= 11 && http::token_list(request[http::field::connection]).exists("upgrade") &&
         http::token_list(request[http::field::upgrade]).exists(to_beast(lease::gate_upgrade));
}

asio::awaitable<error_code> read_request(peer_stream& from, incoming& in, lease_parser& into) {
  into.header_limit(limits::admin_head_bytes_max);
  into.body_limit(limits::lease_body_bytes_max);
  const auto [no_head, head] = co_await http::async_read_header(from, in.buffer, into, no_throw);
  if (no_head) co_return no_head;
  if (into.is_done()) co_return error_code();
  if (boost::beast::iequals(into.get()[http::field::expect], "100-continue")) {
    static constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    const auto [unsent, sent] = co_await asio::async_write(from, asio::buffer(go_on), no_throw);
    if (unsent) co_return unsent;
  }
  const auto [no_body, body] = co_await http::async_read(from, in.buffer, into, no_throw);
  co_return no_body;
}

asio::awaitable<void> swallow_rest(peer_stream& from, flat_buffer& buffer) {
  from.shutdown_send();
  for (std::size_t swallowed = 0; swallowed < limits::http_swallowed_bytes_max;) {
    buffer.clear();
    const auto [failed, bytes] = co_await from.async_read_some(buffer.prepare(4096), no_throw);
    if (failed) co_return;
    swallowed += bytes;
  }
}

}  // namespace fencegate::admin
