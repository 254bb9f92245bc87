// On which server the sessions of a gate are, by the process id and secret with which each is cancelled: a name may stand for
// several servers, and a CancelRequest has to reach the one that knows them. It routes, and admits nobody: what is right is
// for the server to say.
//
// Any thread.
#pragma once

#include "gate/relay/session.hpp"

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace fencegate::gate {

class cancel_routes {
 public:
  // `key`: process id and secret, as they stand in BackendKeyData and in CancelRequest.
  void add(const std::string& key, const stream::endpoint& server);
  void remove(const std::string& key);
  // nullopt: no session of this gate has it.
  [[nodiscard]] std::optional<stream::endpoint> find(const std::string& key) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, stream::endpoint> servers_;
};

}  // namespace fencegate::gate
