// One HTTP/1.1 request to a program of this host, over a connection of its own. No name is looked up: a static program could
// not, and a look-up would start a thread.
//
// All of it runs on its context's thread.
#pragma once

#include "base/limits.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/basic_stream.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace fencegate::lease {

struct local_request {
  std::string method, target;
  std::string body{};  // JSON
  std::string host = "localhost";
  std::size_t answer_bytes_max = limits::lease_body_bytes_max;  // of its body; 0: only its head is read
};

struct local_answer {
  unsigned status = 0;
  std::string body;
};

class local_http {
 public:
  using answered = std::function<void(const result<local_answer>&)>;

  // `done` comes once, later. `patience`: until it has come. An error names `to`.
  static std::shared_ptr<local_http> ask(boost::asio::io_context& context, const settings::address& to,
                                         const local_request& what, std::chrono::milliseconds patience, answered done);
  // The same, for who has nothing else to do meanwhile.
  [[nodiscard]] static result<local_answer> ask_now(const settings::address& to, const local_request& what,
                                                    std::chrono::milliseconds patience);
  virtual ~local_http() = default;
  local_http(const local_http&) = delete;
  local_http& operator=(const local_http&) = delete;
  // The connection is closed, so that the other side sees that nobody waits; `done` comes with an error.
  virtual void give_up() = 0;

 protected:
  local_http() = default;
};

using local_stream = boost::beast::basic_stream<boost::asio::generic::stream_protocol>;
// Connects within the stream's own time. Errors: also a host that would have to be looked up.
[[nodiscard]] boost::asio::awaitable<boost::system::error_code> connect_local(local_stream& stream,
                                                                              const settings::address& to);
// Errors: a host that is neither an IP address nor localhost.
[[nodiscard]] result<void> needs_no_look_up(const settings::address& at);

}  // namespace fencegate::lease
