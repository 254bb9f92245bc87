// A connection to Redis that asks a few questions at a time, and is not made again when it was lost: for looking around, not
// for marks.
//
// All of it runs on its context's thread.
#pragma once

#include "backend/redis_client.hpp"
#include "base/metrics.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"
#include "fence/gate_settings.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::backend {

// What comes first: the user signs in; one without a password only says PING.
[[nodiscard]] std::vector<std::string> first_words(const settings::credentials& user);
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
  redis_dialogue(boost::asio::io_context& context, settings::address where, const settings::tls& secured,
                 std::chrono::milliseconds patience);
  redis_dialogue(const redis_dialogue&) = delete;
  redis_dialogue& operator=(const redis_dialogue&) = delete;
  ~redis_dialogue() { close(); }

  // Connects where it has not. `done` once, unless it is closed or dropped before. REQUIRES: what was asked before was
  // answered.
  void ask(std::vector<words> commands, answer done);
  void close();

 private:
  void connect();
  void send();
  void on_reply(const wire::reply_value& reply);
  void end(const std::string& problem);
  void restart_deadline();

  const settings::address where_;
  const std::chrono::milliseconds patience_;
  metrics::counter malformed_;  // nobody asks for it
  const std::shared_ptr<redis_client> client_;
  boost::asio::steady_timer deadline_;
  bool connected_ = false;       // once, or still
  std::string lost_;             // why it is so no more
  std::vector<words> commands_;  // that were asked last
  outcome came_;
  answer done_;
};

}  // namespace fencegate::backend
