// uses: gate
// A hostile upstream behind an HTTP session machine. First byte: the request (G, H, or P for one that is checked); second:
// the policy of its route (upper two bits), and the size of the pieces in which the rest comes from the upstream, which
// then closes.
//
// Claims: the client gets what the upstream's bytes are by the codec, framed anew, and no more; what is broken is
// answered 502 or cut off, however TCP cuts it; the hold has ended; what the upstream said too much answers no other
// request; and whatever it said, a token that was used (equal_token: reject) brings nothing to it again.
#include "gate/http/http_engine.hpp"
#include "support/http_readers.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

using namespace fencegate;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

// Every mark was below its token, and every link can be opened.
class willing_host final : public gate::http_host {
 public:
  explicit willing_host(bool once) : spends(once) {}
  void connect() override { wanted = true; }
  void disconnect() override { wanted = linked = false; }
  bool link_is_quiet() override { return linked; }
  void look(where, const gate::claims_list& claims, std::function<void(const gate::fence_answer&)> done) override {
    done({{}, claims, false});
  }
  void raise(where, const gate::claims_list& claims, std::function<void(const gate::fence_answer&)> done) override {
    done(raised(claims));
  }
  void hold(where, const gate::claims_list& claims, std::function<void(const gate::fence_answer&)> done) override {
    const auto answer = raised(claims);
    held = !answer.why;
    done(answer);
  }
  bool holds() override { return held; }
  void release() override { held = false; }
  void outlive_client() override {}
  std::optional<fence::rejection> known_stale(where, const gate::claims_list&) override { return {}; }
  void count_overtaken(where, const gate::claims_list&, std::chrono::nanoseconds) override {}
  void run(std::size_t, const gate::claims_list&, gate::route_values, bool,
           std::function<void(const gate::atomic_answer&)>) override {
    std::abort();
  }
  std::optional<std::string> take_room(const gate::claims_list&) override { return {}; }
  std::chrono::steady_clock::time_point now() const override { return {}; }
  void report(const fence::rejection&, std::string_view, std::string_view, bool) override {}
  void access(const gate::http_access&) override {}

  const bool spends;
  bool wanted = false, linked = false, held = false, used = false;

 private:
  gate::fence_answer raised(const gate::claims_list& claims) {
    require(claims.size() == 1);
    const auto& [resource, presented] = claims.front();
    if (spends && used) return {fence::rejection{fence::reason::equal, resource, presented, presented, {}}, {}, false};
    return {{}, claims, !std::exchange(used, true)};
  }
};

struct world {
  world(settings::http_guarantee guarantee, const fence::policy& policy) {
    settings.upstream = settings::address{"127.0.0.1", 9000, {}};
    auto& route = settings.routes.emplace_back();
    route.methods = {"PUT", "GET", "HEAD"};
    route.pattern = "/fenced";
    route.resource = "orders";
    route.guarantee = guarantee;
    route.policy = policy;
    plan = gate::plan_routes(settings).value();
  }
  [[nodiscard]] bool spends() const {
    const auto& policy = settings.routes.front().policy;
    return policy.equal == fence::equal_token::reject && policy.mode == fence::enforcement::enforce;
  }
  settings::http_gate settings;
  gate::http_plan plan;
  metrics::gate stats{"api"};
};

world& world_of(unsigned which) {
  using settings::http_guarantee;
  using enum fence::enforcement;
  using enum fence::missing_token;
  constexpr auto once = fence::equal_token::reject;
  constexpr auto fenced = fence::reads::fence;
  static world worlds[] = {{http_guarantee::held, {}},
                           {http_guarantee::held, {enforce, reject, once, fenced, 0}},
                           {http_guarantee::checked, {enforce, allow, once, fenced, 0}},
                           {http_guarantee::held, {monitor, reject, once, fenced, 0}}};
  return worlds[which % std::size(worlds)];
}

struct outcome {
  std::string said;
  bool closing = false;
};

void connect(willing_host& host, gate::http_engine& engine) {
  if (!host.wanted) return;
  host.wanted = false;
  host.linked = true;
  engine.on_connected();
}

outcome answered(world& w, const std::string& request, std::string_view stream, std::size_t piece) {
  willing_host host(w.spends());
  gate::http_engine engine(host, w.settings, w.plan, w.stats, "192.0.2.7");
  const auto ask = [&](std::string_view bytes) {
    engine.from_client.append(bytes);
    engine.on_client_bytes();
    connect(host, engine);
  };
  ask(request);
  require(host.linked && !engine.to_backend.empty());
  for (std::size_t at = 0; at < stream.size() && host.linked; at += piece) {
    engine.from_backend.append(stream.substr(at, piece));
    engine.on_backend_bytes();
  }
  if (host.linked) engine.on_backend_end();
  require(!host.linked && !host.wanted && !host.held);
  outcome out{engine.to_client, engine.closing()};
  if (!out.closing && host.spends && host.used) {
    engine.to_client.clear();
    engine.to_backend.clear();
    ask(request);
    require(engine.to_client.starts_with("HTTP/1.1 409 ") && engine.to_backend.empty());
    require(!host.linked && !host.wanted && !host.held);
  }
  if (!engine.closing()) {
    engine.to_client.clear();
    ask("GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
    require(engine.to_client.empty() && host.linked);
  }
  return out;
}

// "200 keep hello" → {"200", "keep", "hello"}
struct verdict {
  explicit verdict(std::string_view line) {
    status = line.substr(0, 3);
    if (line.size() > 4) how = line.substr(4, line.find(' ', 4) - 4);
    if (const auto at = 5 + how.size(); line.size() > at) body = line.substr(at);
  }
  std::string_view status, how, body;
};

template <class Lines>
void compare(Lines expected, const Lines& got, bool closing) {
  std::erase(expected, "100");  // the gate says it itself
  require(!got.empty() && expected.size() == got.size());
  for (std::size_t i = 0; i + 1 < got.size(); ++i) require(got[i] == expected[i]);
  const verdict last(got.back());
  if (expected.back() == "502") return require(last.status == "502" && last.how != "cut");
  const verdict wanted(expected.back());
  require(last.status == wanted.status && last.body == wanted.body);
  require((last.how == "cut") == (wanted.how == "cut"));
  require(wanted.how != "cut" || closing);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 2, size - 2);
  // The gate adds fields of its own: what came just below the codec's limits is above them for the client's reader.
  if (stream.size() > 60'000 || std::count(stream.begin(), stream.end(), '\n') > 90) return 0;
  const std::string method = data[0] == 'H' ? "HEAD" : data[0] == 'P' ? "PUT" : "GET";
  const auto request = method + " /fenced HTTP/1.1\r\nHost: a\r\nFencing-Token: 34\r\n\r\n";
  test::http_response_reader reader(method);
  reader.feed(stream);
  const auto expected = reader.verdicts();
  for (const std::size_t piece : {stream.size() + 1, std::size_t{1} + data[1] % 64}) {
    const auto got = answered(world_of(data[1] >> 6), request, stream, piece);
    test::http_response_reader client(method);
    client.feed(got.said);
    compare(expected, client.verdicts(), got.closing);
  }
  return 0;
}
