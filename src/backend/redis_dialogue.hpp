// A connection to Redis that asks a few questions at a time, and is not made again when it was lost: for looking around, not
// for marks.
//
// All of it runs on its context's thread.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "fence/gate_settings.hpp"

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::backend {

// How the gate's user signs in; one without a password only says PING.
[[nodiscard]] std::vector<std::string> sign_in(const settings::credentials& user);
// Why the gate's user was not answered, where he may lack `right`: "+config|get".
[[nodiscard]] error why_refused(const std::string& said, std::string_view right);

class redis_dialogue : public std::enable_shared_from_this<redis_dialogue> {
 public:
  using words = std::vector<std::string>;
  struct reply {
    bool is_error = false;
    std::string text{};         // of what is no list; "" of null
    std::vector<reply> list{};  // of one
  };
  struct outcome {
    std::vector<reply> replies{};  // as far as they came
    std::string problem{};         // "" = all came
  };
  using answer = std::function<void(const outcome&)>;

  // `patience`: for connecting, and for the answers.
  redis_dialogue(boost::asio::io_context& context, settings::address where, std::chrono::milliseconds patience);

  // Connects where it has not. `done` once; what it holds is kept until then. REQUIRES: what was asked before was answered.
  void ask(const std::vector<words>& commands, answer done);
  void close();

 private:
  using stream = boost::asio::generic::stream_protocol;

  void connect();
  void connect_to(const std::vector<stream::endpoint>& endpoints);
  void send();
  void read_more();
  [[nodiscard]] bool take_replies();
  void end(const std::string& problem);
  void restart_deadline();

  const settings::address where_;
  const std::chrono::milliseconds patience_;
  stream::socket socket_;
  boost::asio::ip::tcp::resolver resolver_;
  boost::asio::steady_timer deadline_;
  bool connected_ = false;
  std::string out_, in_;
  std::size_t wanted_ = 0;  // replies
  outcome came_;
  answer done_;
};

}  // namespace fencegate::backend
