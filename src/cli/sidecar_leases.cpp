#include "cli/sidecar_leases.hpp"

#include "admin/writer_pages.hpp"
#include "cli/lease_places.hpp"

#include <boost/asio/post.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace fencegate::cli {
namespace {

// `call(settings)` for each gate that holds a lease.
template <class Call>
void for_each_lease_gate(const settings::process& config, Call call) {
  const auto all = [&](const auto& gates) {
    for (const auto& one : gates)
      if (one.leased.wanted()) call(one.name, one.leased);
  };
  all(config.redis_gates);
  all(config.postgres_gates);
  all(config.http_gates);
}

}  // namespace

sidecar_leases::sidecar_leases(boost::asio::io_context& io, const settings::process& config, metrics::process& stats)
    : io_(io), config_(config), stats_(stats) {
  if (config.leased.listen.empty() && config.leased.writers.empty()) return;
  stats_.leased = std::make_unique<metrics::leases>();
  for (const auto& one : config.leased.writers)
    stats_.leased->writers.push_back(std::make_unique<metrics::writer>(one.name));
  sources_ = make_sources(io, config);
}

sidecar_leases::~sidecar_leases() { disk_.join(); }

result<void> sidecar_leases::start(const running_gates& gates) {
  if (!sources_) return {};
  gates_ = &gates;
  if (auto made = make_writers(); !made) return made;
  if (auto listening = start_listeners(); !listening) return listening;
  writers_.start();
  return {};
}

result<void> sidecar_leases::make_writers() {
  const auto& all = config_.leased;
  if (!all.state_dir.empty() && !all.writers.empty()) {
    auto opened = lease::state_directory::open(all.state_dir);
    if (!opened) return opened.error();
    state_.emplace(std::move(*opened));
  }
  for (std::size_t i = 0; i < all.writers.size(); ++i) {
    const auto& one = all.writers[i];
    lease::writer_wish wish{one.name, {false, one.containers, one.writer_timeout}, {}, {}, {}};
    std::vector<lease::writers::named_gate> behind;
    for_each_lease_gate(config_, [&](const std::string& name, const settings::gate_lease& leased) {
      if (leased.writer != one.name) return;
      wish.rules.rebinds = leased.rebinds;
      for (const auto& resource : leased.resources)
        if (std::find(wish.resources.begin(), wish.resources.end(), resource) == wish.resources.end())
          wish.resources.push_back(resource);
      behind.push_back({name, leased.resources});
      wish.gates.push_back(gates_->find(name));
    });
    if (state_) wish.record.emplace(all.state_dir, one.name);
    writers_.add(std::make_shared<lease::writer_lease>(io_, disk_, std::move(wish), sources_, *stats_.leased,
                                                       *stats_.leased->writers[i]),
                 std::move(behind));
  }
  return {};
}

result<void> sidecar_leases::start_listeners() {
  const auto& all = config_.leased;
  if (!all.listen.empty()) {
    desk_.emplace(io_, sources_, *stats_.leased);
    api_.emplace(io_, all.listen, all.socket_mode, *desk_, stats_);
    if (!all.writers.empty()) api_->serve_writers(writers_);
    api_->serve_gates(*this);
    operators_.emplace(io_, config_);
    api_->serve_operators(*operators_);
    if (auto started = api_->start(); !started) return started;
  }
  if (!all.probes) return {};
  probes_.emplace(io_, *all.probes, stats_, [] {});
  probes_->serve_only([this](const admin::page_request& asked) {
    if (auto answer = admin::answer_probe(asked, writers_)) return std::move(*answer);
    const auto path = asked.target.substr(0, asked.target.find('?'));
    if (path == "/livez" || path == "/readyz") return admin::answer_page(asked, stats_, *config_.leased.probes);
    admin::page_answer none;
    none.status = 404;
    none.body = "there are /livez, /readyz and /v1/gates/{gate}/writer\n";
    return none;
  });
  return probes_->start();
}

result<std::string_view> sidecar_leases::protocol_of(std::string_view gate) const {
  const auto* found = gates_->find(gate);
  if (found == nullptr) return error{"there is no gate " + std::string(gate)};
  if (found->binds_by_itself())
    return error{"gate " + std::string(gate) + " binds its connections itself, by the key tag or lease"};
  return gates_->protocol_of(gate);
}

void sidecar_leases::hand_over(std::string_view gate, int socket, fence::claims_list tag) {
  auto* found = gates_->find(gate);
  if (found == nullptr) return static_cast<void>(::close(socket));  // the process ends, and the gates have gone before
  found->take_over(socket, std::make_shared<const fence::claims_list>(std::move(tag)));
}

admin::lease_status sidecar_leases::status() const {
  return {desk_ ? desk_->list() : std::vector<lease::lease_seen>(), writers_.views()};
}

void sidecar_leases::superseded(std::string_view gate, const fence::rejection& why) {
  bool holds = false;
  for_each_lease_gate(config_, [&](const std::string& name, const settings::gate_lease&) { holds |= name == gate; });
  if (!holds || !why.presented) return;
  boost::asio::post(io_, [this, gate = std::string(gate), claim = fence::claim{why.resource, *why.presented}] {
    writers_.superseded(gate, claim);
  });
}

void sidecar_leases::release() {
  if (config_.leased.writers.empty()) return;
  io_.restart();
  writers_.release([this] { io_.stop(); });
  io_.run_for(lease::release_patience + std::chrono::seconds(1));
}

}  // namespace fencegate::cli
