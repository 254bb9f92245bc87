#include "lease/local_http.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace fencegate::lease {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using any_stream = asio::generic::stream_protocol;
using boost::system::error_code;

constexpr auto no_throw = asio::as_tuple(asio::use_awaitable);

std::vector<any_stream::endpoint> endpoints_of(const settings::address& at) {
  if (at.is_unix()) return {asio::local::stream_protocol::endpoint(at.path)};
  std::vector<std::string> hosts{at.host};
  if (at.host == "localhost") hosts = {"127.0.0.1", "::1"};
  std::vector<any_stream::endpoint> out;
  for (const auto& host : hosts) {
    error_code is_name;
    const auto ip = asio::ip::make_address(host, is_name);
    if (!is_name) out.emplace_back(asio::ip::tcp::endpoint(ip, at.port));
  }
  return out;
}

class exchange final : public local_http {
 public:
  exchange(asio::io_context& context, const settings::address& to, const local_request& what,
           std::chrono::milliseconds patience)
      : stream_(context), to_(to), answer_bytes_max_(what.answer_bytes_max) {
    request_ = {http::string_to_verb(what.method), what.target, 11, what.body};
    request_.set(http::field::host, what.host);
    request_.set(http::field::connection, "close");
    if (what.method != "GET") request_.set(http::field::content_type, "application/json");
    request_.prepare_payload();
    stream_.expires_after(patience);
  }

  void give_up() override { stream_.close(); }

  asio::awaitable<result<local_answer>> run() {
    if (const auto failed = co_await connect_local(stream_, to_)) co_return trouble(failed);
    const auto [unsent, sent] = co_await http::async_write(stream_, request_, no_throw);
    if (unsent) co_return trouble(unsent);
    boost::beast::flat_buffer buffer;
    for (;;) {
      http::response_parser<http::string_body> answer;
      answer.body_limit(answer_bytes_max_ == 0 ? boost::optional<std::uint64_t>() : answer_bytes_max_);
      error_code unread;
      std::size_t bytes = 0;
      if (answer_bytes_max_ == 0)
        std::tie(unread, bytes) = co_await http::async_read_header(stream_, buffer, answer, no_throw);
      else
        std::tie(unread, bytes) = co_await http::async_read(stream_, buffer, answer, no_throw);
      if (unread) co_return trouble(unread);
      const auto status = answer.get().result_int();
      // Interim ones precede the answer (RFC 9110, 15.2).
      if (http::to_status_class(status) != http::status_class::informational)
        co_return local_answer{status, std::move(answer.get().body())};
    }
  }

 private:
  [[nodiscard]] error trouble(const error_code& why) const { return {to_string(to_) + ": " + why.message()}; }

  local_stream stream_;
  const settings::address to_;
  const std::size_t answer_bytes_max_;
  http::request<http::string_body> request_;
};

}  // namespace

asio::awaitable<error_code> connect_local(local_stream& stream, const settings::address& to) {
  error_code failed = asio::error::host_not_found;
  for (const auto& one : endpoints_of(to)) {
    error_code ignored;
    stream.socket().close(ignored);  // of the address before
    std::tie(failed) = co_await stream.async_connect(one, no_throw);
    if (!failed) break;
  }
  co_return failed;
}

std::shared_ptr<local_http> local_http::ask(asio::io_context& context, const settings::address& to,
                                            const local_request& what, std::chrono::milliseconds patience,
                                            answered done) {
  auto one = std::make_shared<exchange>(context, to, what, patience);
  auto run = [](std::shared_ptr<exchange> it, answered tell) -> asio::awaitable<void> {
    const auto outcome = co_await it->run();
    tell(outcome);
  };
  asio::co_spawn(context, run(one, std::move(done)), asio::detached);
  return one;
}

result<local_answer> local_http::ask_now(const settings::address& to, const local_request& what,
                                         std::chrono::milliseconds patience) {
  asio::io_context context(1);
  result<local_answer> answer = error{"there was no answer"};
  const auto asked = ask(context, to, what, patience, [&](const result<local_answer>& came) { answer = came; });
  context.run();
  return answer;
}

result<void> needs_no_look_up(const settings::address& at) {
  if (!endpoints_of(at).empty()) return {};
  return error{at.host + " is a name, which is not looked up here: write an IP address, localhost or unix:/path"};
}

}  // namespace fencegate::lease
