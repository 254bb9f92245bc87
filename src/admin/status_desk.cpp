#include "admin/status_desk.hpp"

#include "admin/admin_pages.hpp"
#include "base/limits.hpp"

#include <algorithm>
#include <utility>

namespace fencegate::admin {
namespace {

std::uint64_t sum_of(const metrics::gate& gate, std::initializer_list<metrics::check_outcome> outcomes) {
  std::uint64_t sum = 0;
  for (const auto one : outcomes) sum += gate.checks_total[static_cast<std::size_t>(one)].value();
  return sum;
}

std::uint64_t admitted_by(const metrics::gate& gate) {
  using enum metrics::check_outcome;
  return sum_of(gate, {admitted, raised});
}

std::uint64_t rejected_by(const metrics::gate& gate) {
  using enum metrics::check_outcome;
  return sum_of(gate, {stale, missing, malformed, equal, jump, unavailable, refused});
}

void push(std::vector<std::uint64_t>& seconds, std::uint64_t last) {
  std::rotate(seconds.begin(), seconds.begin() + 1, seconds.end());
  seconds.back() = last;
}

std::vector<server_status> servers_of(const gate_facts& facts, const metrics::gate::said& said) {
  using state = server_status::state;
  std::vector<server_status> out;
  for (const auto& one : facts.servers) {
    const auto heard = said.backends.find(one.name);
    if (heard == said.backends.end())
      out.push_back({one.name, one.address, state::unknown, ""});
    else
      out.push_back({one.name, one.address, heard->second.empty() ? state::up : state::down, heard->second});
  }
  for (const auto& [name, problem] : said.databases) out.push_back({"database " + name, "", state::down, problem});
  return out;
}

}  // namespace

status_desk::status_desk(boost::asio::io_context& io, std::vector<gate_facts> gates, const metrics::process& stats,
                         const status_board& board, std::function<lease_status()> leases)
    : timer_(io), facts_(std::move(gates)), stats_(stats), board_(board), leases_(std::move(leases)) {}

void status_desk::show(std::vector<gate_facts> gates) {
  facts_ = std::move(gates);
  std::erase_if(counted_, [this](const auto& known) {
    return std::ranges::none_of(facts_, [&](const auto& one) { return one.name == known.first; });
  });
}

void status_desk::start() {
  look();
  timer_.expires_after(std::chrono::seconds(1));
  auto again = [this](const boost::system::error_code& cancelled) {
    if (!cancelled) start();
  };
  timer_.async_wait(again);
}

void status_desk::look() {
  for (const auto& current : stats_.gates) {
    const auto gate = current->with(stats_.former);
    auto& one = counted_[gate->name];
    one.lately.admitted.resize(limits::status_seconds);
    one.lately.rejected.resize(limits::status_seconds);
    const auto admitted = admitted_by(*gate);
    const auto rejected = rejected_by(*gate);
    push(one.lately.admitted, admitted - std::exchange(one.admitted, admitted));
    push(one.lately.rejected, rejected - std::exchange(one.rejected, rejected));
  }
}

gate_status status_desk::status_of(const gate_facts& facts, const metrics::gate& stats) const {
  gate_status out;
  out.facts = facts;
  out.servers = servers_of(out.facts, stats.backends_said());
  out.connections = stats.connections.value();
  out.admitted = admitted_by(stats);
  out.rejected = rejected_by(stats);
  out.stale = sum_of(stats, {metrics::check_outcome::stale});
  out.raises = stats.raises_total.value();
  out.sessions_cut = stats.sessions_cut_total.value();
  out.regressions = stats.regressions_total.value();
  if (const auto known = counted_.find(facts.name); known != counted_.end()) out.lately = known->second.lately;
  out.lately.admitted.resize(limits::status_seconds);
  out.lately.rejected.resize(limits::status_seconds);
  return out;
}

const lease_status& status_desk::leases_now() {
  const auto now = std::chrono::steady_clock::now();
  if (!leases_ || now - asked_ < limits::status_interval / 2) return leased_;
  asked_ = now;
  leased_ = leases_();
  if (leased_.leases.size() > limits::status_resources_max) leased_.leases.resize(limits::status_resources_max);
  return leased_;
}

std::string status_desk::json_since(std::uint64_t& version) {
  status_view view;
  view.state = process_state(stats_);
  view.draining = stats_.draining.value() != 0;
  view.started = started_;
  view.now = std::chrono::system_clock::now();
  view.generation = stats_.configured.generation.value();
  for (std::size_t i = 0; i < facts_.size(); ++i)
    view.gates.push_back(status_of(facts_[i], *stats_.gates[i]->with(stats_.former)));
  view.leased = leases_now();
  view.complete = version == 0;
  view.seen = board_.since(version);
  version = view.seen.version;
  return status_json(view);
}

}  // namespace fencegate::admin
