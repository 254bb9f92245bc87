// A gate of the sidecar for one command: a unix socket in a folder of its own, whose connections are handed on to the sidecar
// under the grant. So programs that can say no token are fenced, and nobody else can use it: the folder is this user's, and a
// process that does not descend from this one is refused.
//
// Rule kept: the sidecar confirms the lease by its issuer for each connection before it binds that to the grant.
//
// All of it runs on its context's thread.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "hold/environment.hpp"
#include "hold/exit_status.hpp"
#include "lease/issuer.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/system/result.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace fencegate::client {

class private_gate {
 public:
  // `what`: how hold ends for it: the sidecar was not reached, the lease is lost, or else it cannot be had so.
  struct trouble {
    hold::outcome what = hold::outcome::error;
    std::string message;
  };
  using opened = boost::system::result<hold::private_socket, trouble>;
  using opened_callback = std::function<void(const opened&)>;
  struct plan {
    settings::address api;
    std::string gate;
    std::function<void(const std::string&)> say;  // why a connection was refused
  };
  explicit private_gate(boost::asio::io_context& context, plan wanted);
  // Removes the folder; all connections end.
  ~private_gate();
  private_gate(const private_gate&) = delete;
  private_gate& operator=(const private_gate&) = delete;

  // Accepts connections, once the sidecar has said that it would serve one. `done` comes once, later. Errors: there is no place
  // for the folder; the sidecar has no such gate, or does not answer. REQUIRES: called once.
  void open(const lease::term& held, opened_callback done);

 private:
  class state;  // shared with the coroutines
  std::shared_ptr<state> state_;
};

}  // namespace fencegate::client
