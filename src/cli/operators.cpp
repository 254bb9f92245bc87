#include "cli/operators.hpp"

#include "base/log.hpp"
#include "cli/lease_operations.hpp"

#include <boost/asio/post.hpp>

#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

namespace fencegate::cli {
namespace {

using lease::operation;
using json_outcome = boost::system::result<std::string, lease::lease_refusal>;

// At a time.
constexpr std::size_t jobs_max = 8;

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (const auto& name : names) out += (out.empty() ? "" : ",") + name;
  return out;
}

// What it says of an operation; the texts live longer.
log::event line_about(const operation& asked, const std::string& resources, const std::string& by) {
  return log::event().add("operation", name_of(asked.what)).add("resources", resources).add("by", by);
}

// Nobody needs to know who looks.
void log_begin(const operation& asked, const std::string& by) {
  if (asked.what == operation::kind::show) return;
  const auto resources = list_of(asked.resources);
  line_about(asked, resources, by)
      .add("reason", asked.reason)
      .add("issuer", asked.issuer)
      .add("to", asked.to)
      .add("store", asked.store)
      .write(log::level::warn, "an operator asks about leases");
}

void log_end(const operation& asked, const std::string& by, const json_outcome& outcome) {
  if (asked.what == operation::kind::show) return;
  const auto resources = list_of(asked.resources);
  line_about(asked, resources, by)
      .add("why", outcome ? std::string_view() : outcome.error().message)
      .write(log::level::warn, outcome ? "an operator's request is done" : "an operator's request is not done");
}

json_outcome done_by(operation_run& run, const settings::process& config, const operation& asked) {
  try {
    const auto outcome = perform(run, config, asked, {});
    if (!outcome) return outcome.error();
    return json_of(asked.what, *outcome);
  } catch (const std::exception& e) {  // memory, or a file descriptor
    return unreachable(e.what());
  }
}

}  // namespace

struct operators::job {
  operation_run run;
  operation asked;
  std::string by;
  std::thread thread;
};

operators::~operators() {
  for (const auto& one : jobs_) one->run.end();
  for (const auto& one : jobs_) one->thread.join();
}

lease::desk::call operators::ask(operation asked, std::string by, answer done) {
  const auto waits = std::make_shared<answer>(std::move(done));
  const auto later = [this, weak = std::weak_ptr(waits)](json_outcome outcome) {
    boost::asio::post(io_, [weak, outcome = std::move(outcome)] {
      if (const auto there = weak.lock()) (*there)(outcome);
    });
  };
  if (jobs_.size() >= jobs_max) {
    later(unreachable("this sidecar is at work for " + std::to_string(jobs_max) + " operators, which is its most"));
    return waits;
  }
  log_begin(asked, by);
  const auto made = std::make_shared<job>();
  made->asked = std::move(asked);
  made->by = std::move(by);
  const auto at = jobs_.insert(jobs_.end(), made);
  auto work = [this, made = made.get(), at, later] {
    auto outcome = done_by(made->run, config_, made->asked);
    log_end(made->asked, made->by, outcome);
    later(std::move(outcome));
    boost::asio::post(io_, [this, at] {
      (*at)->thread.join();
      jobs_.erase(at);
    });
  };
  try {
    made->thread = std::thread(std::move(work));
  } catch (const std::system_error& e) {
    jobs_.erase(at);
    later(unreachable(e.what()));
    return waits;
  }
  // Whoever asked holds what is returned.
  auto leave = [waits, weak = std::weak_ptr(made)](void*) {
    if (const auto there = weak.lock()) there->run.leave();
  };
  return {waits.get(), std::move(leave)};
}

}  // namespace fencegate::cli
