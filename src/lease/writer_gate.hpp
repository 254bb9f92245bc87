// A gate, as the lease of its writer sees it. Any thread may call; each returns at once, and they take effect in their order.
#pragma once

#include "base/result.hpp"
#include "lease/bond.hpp"
#include "lease/writer.hpp"

#include <functional>
#include <memory>
#include <string>

namespace fencegate::lease {

class writer_gate {
 public:
  writer_gate() = default;
  writer_gate(const writer_gate&) = delete;
  writer_gate& operator=(const writer_gate&) = delete;
  virtual ~writer_gate() = default;

  // Closes the listening socket, with all connections that wait in its queue or to be bound, and opens another: a request of a
  // writer that is dead may wait there. `done` is called on any thread.
  virtual void listen_anew(std::function<void(const result<void>&)> done) = 0;
  // Each connection that is accepted from now on is bound to it, while it may be.
  virtual void open_to(std::shared_ptr<const bond> held) = 0;
  // Nothing is bound any more; all connections are cut, if they were bound. Who comes is told why: `why` in words.
  virtual void shut(writer_phase phase, const std::string& why) = 0;
};

}  // namespace fencegate::lease
