// The operators of a sidecar: what each asks runs on a thread and over connections of its own, so that a server that hangs
// keeps no lease and no other client waiting.
#pragma once

#include "cli/operation_run.hpp"
#include "fence/gate_settings.hpp"
#include "lease/operation.hpp"

#include <boost/asio/io_context.hpp>

#include <list>
#include <memory>
#include <string>

namespace fencegate::cli {

class operators final : public lease::operator_desk {
 public:
  // Answers on the thread of `io`. REQUIRES: both outlive it.
  operators(boost::asio::io_context& io, const settings::process& config) : io_(io), config_(config) {}
  // What is under way ends where it is, as when the process is killed.
  ~operators() override;

  [[nodiscard]] lease::desk::call ask(lease::operation asked, std::string by, answer done) override;

 private:
  struct job;

  boost::asio::io_context& io_;
  const settings::process& config_;
  std::list<std::shared_ptr<job>> jobs_;
};

}  // namespace fencegate::cli
