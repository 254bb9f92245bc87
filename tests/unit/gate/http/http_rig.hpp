// An HTTP engine between scripts: a client, an upstream and stores that are told what to say.
#pragma once

#include "gate/http/http_engine.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::gate {

// Keeps every question until the test answers it.
class fake_http_host final : public http_host {
 public:
  void connect() override { ++connects; }
  void disconnect() override { ++disconnects; }
  bool link_is_quiet() override { return quiet; }
  void look(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) override {
    ask("look", route, wanted, std::move(done));
  }
  void raise(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) override {
    ask("raise", route, wanted, std::move(done));
  }
  void hold(where route, const claims_list& wanted, std::function<void(const fence_answer&)> done) override {
    ask("hold", route, wanted, std::move(done));
  }
  bool holds() override { return holding; }
  void release() override { ++releases; }
  void outlive_client() override { ++outlived; }
  std::optional<fence::rejection> known_stale(where, const claims_list&) override { return stale; }
  void count_overtaken(where route, const claims_list& wanted, std::chrono::nanoseconds ago) override {
    EXPECT_EQ(asked_route, route);
    EXPECT_EQ(claims, wanted);
    answered_after.push_back(ago);
  }
  void run(std::size_t route, const claims_list& wanted, route_values values, bool read_only,
           std::function<void(const atomic_answer&)> done) override {
    asked = read_only ? "read" : "run";
    asked_route = route;
    claims = wanted;
    run_values = std::move(values);
    run_done_ = std::move(done);
  }
  std::optional<std::string> take_room(const claims_list& brought) override {
    return no_room.empty() || brought.empty() ? std::nullopt : std::optional(no_room);
  }
  std::chrono::steady_clock::time_point now() const override { return clock; }
  void report(const fence::rejection& why, std::string_view, std::string_view trace, bool monitor) override {
    reports.push_back(std::string(monitor ? "monitor " : "") + std::string(fence::terms_of(why.why).name));
    traced = trace;
  }
  void access(const http_access& one) override {
    accesses.push_back(std::string(one.method) + " " + std::string(one.path) + " " + std::to_string(one.status) +
                       (one.claim == nullptr ? "" : " " + one.claim->resource) +
                       (one.trace.empty() ? "" : " " + std::string(one.trace)));
  }

  // The question under way, which is then answered.
  void answer(const fence_answer& what) { std::exchange(done_, nullptr)(what); }
  void admit() { answer(fence_answer{{}, claims, false}); }
  void answer(const atomic_answer& what) { std::exchange(run_done_, nullptr)(what); }

  std::string traced;                 // of the last report
  std::vector<std::string> accesses;  // method, path, status, resource, traceparent
  int connects = 0, disconnects = 0, releases = 0, outlived = 0;
  std::string no_room;  // not "": there is none for a connection with a token, and why
  bool holding = true;
  bool quiet = true;
  std::chrono::steady_clock::time_point clock{};
  std::optional<fence::rejection> stale;                 // what is known when a checked forward is sent
  std::vector<std::chrono::nanoseconds> answered_after;  // checked forwards
  std::string asked;                                     // the last question
  where asked_route;
  claims_list claims;
  route_values run_values;
  std::vector<std::string> reports;

 private:
  void ask(std::string what, where route, const claims_list& wanted, std::function<void(const fence_answer&)> then) {
    asked = std::move(what);
    asked_route = route;
    claims = wanted;
    done_ = std::move(then);
  }
  std::function<void(const fence_answer&)> done_;
  std::function<void(const atomic_answer&)> run_done_;
};

class http_rig : public ::testing::Test {
 protected:
  http_rig() {
    gate_.name = "api";
    gate_.upstream = settings::address{"127.0.0.1", 9000, {}};
    gate_.stores.emplace_back().name = "ledger";
    add("PUT", "/orders/{id}", "order:{id}").guarantee = settings::http_guarantee::held;
    add("PUT", "/checked/{id}", "order:{id}");
    auto& sql = add("POST", "/entries/{id}", "entries");
    sql.does = settings::http_action::sql;
    sql.statement = "insert into entries values ($1, $2::jsonb)";
    sql.parameters = {"{id}", "{body}"};
  }

  settings::http_route& add(const std::string& method, const std::string& pattern, const std::string& resource) {
    auto& route = gate_.routes.emplace_back();
    route.methods = {method};
    route.pattern = pattern;
    route.resource = resource;
    route.store = "ledger";
    return route;
  }

  // REQUIRES: no change of the gate's settings behind the first use.
  http_engine& engine() {
    if (engine_ == nullptr) {
      auto planned = plan_routes(gate_);
      EXPECT_TRUE(planned) << planned.error().message;
      plan_ = std::move(*planned);
      engine_ = std::make_unique<http_engine>(host, gate_, plan_, stats_, "192.0.2.7");
    }
    return *engine_;
  }

  // Another client.
  void restart() { engine_.reset(); }

  void client(std::string_view bytes) {
    engine().from_client.append(bytes);
    engine().on_client_bytes();
  }
  void upstream(std::string_view bytes) {
    engine().from_backend.append(bytes);
    engine().on_backend_bytes();
  }
  std::string to_client() { return std::exchange(engine().to_client, {}); }
  std::string to_upstream() { return std::exchange(engine().to_backend, {}); }

  // What a store says of a hold on order:7 that was ended.
  static fence::rejection lost_hold(bool to_a_raise) {
    if (!to_a_raise) return {fence::reason::unavailable, {}, {}, {}, "the hold was ended"};
    return {fence::reason::stale, "order:7", fence::token::parse("34").value(), fence::token::parse("35").value(), {}};
  }

  // What stands in the first line: "HTTP/1.1 412 Precondition Failed".
  static int status_of(const std::string& response) {
    return response.size() < 12 ? 0 : std::atoi(response.substr(9, 3).c_str());
  }

  fake_http_host host;
  settings::http_gate gate_;

  [[nodiscard]] const metrics::gate& stats() const { return stats_; }

 private:
  http_plan plan_;
  metrics::gate stats_{"api"};
  std::unique_ptr<http_engine> engine_;
};

}  // namespace fencegate::gate
