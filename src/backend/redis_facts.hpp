// Asks a Redis what hazards.hpp judges. It changes nothing there: what strangers may write is found out by commands that Redis
// queues, or refuses to queue, and then drops (MULTI, DISCARD), of users by ACL DRYRUN.
//
// All of it runs on its context's thread.
#pragma once

#include "backend/hazards.hpp"
#include "fence/gate_settings.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::backend {

class redis_dialogue;

class redis_facts_question : public std::enable_shared_from_this<redis_facts_question> {
 public:
  // `patience`: for connecting, and for the answers, of each of two connections.
  redis_facts_question(boost::asio::io_context& context, settings::address where, settings::tls secured,
                       settings::credentials login, std::chrono::milliseconds patience);

  // `done` once, unless it is dropped before.
  void ask(std::function<void(const findings&)> done);

 private:
  using words = std::vector<std::string>;

  void ask_as_stranger();
  void ask_as_gate();
  void ask_of_users(const words& users);
  void finish();

  boost::asio::io_context& context_;
  const settings::address where_;
  const settings::tls secured_;
  const settings::credentials login_;
  const std::chrono::milliseconds patience_;
  std::shared_ptr<redis_dialogue> stranger_, gate_;
  redis_facts found_;
  std::function<void(const findings&)> done_;
};

}  // namespace fencegate::backend
