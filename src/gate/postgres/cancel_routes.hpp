// On which server the sessions of a gate are, by the process id and secret with which each is cancelled: a name may stand for
// several servers, a configuration that is read anew may name another one, and a CancelRequest has to reach the one that knows
// them. It routes, and admits nobody: what is right is for the server to say.
//
// Any thread.
#pragma once

#include "backend/tls.hpp"
#include "gate/relay/session.hpp"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace fencegate::gate {

class cancel_routes {
 public:
  struct route {
    stream::endpoint server;
    std::shared_ptr<backend::tls_context> tls;  // by which its session has reached it; nullptr: in plain text
  };

  // `key`: process id and secret, as they stand in BackendKeyData and in CancelRequest.
  void add(const std::string& key, route to);
  void remove(const std::string& key);
  // nullopt: no session of this gate has it.
  [[nodiscard]] std::optional<route> find(const std::string& key) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, route> routes_;
};

}  // namespace fencegate::gate
