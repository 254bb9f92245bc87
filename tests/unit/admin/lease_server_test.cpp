// The API of leases over real sockets, with a desk that does what the test says.

#include "admin/lease_server.hpp"

#include "unit/admin/blocking_client.hpp"

#include <boost/asio/post.hpp>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace fencegate::admin {
namespace {

using namespace std::chrono_literals;
using lease::lease_refusal;

const std::string orders_id = "00112233445566778899aabbccddeeff";
const lease::lease_given granted_orders{orders_id, {{"orders", fence::token(35)}}, 24s, 5s};

class lease_client : public blocking_client {
 public:
  using blocking_client::blocking_client;

  void ask(const std::string& method, const std::string& target, const std::string& body = "",
           const std::string& fields = "") {
    const std::string type = body.empty() ? "" : "Content-Type: application/json\r\n";
    send(method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n" + type + fields +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  void acquire() { ask("POST", "/v1/leases", R"({"resources":["orders"],"wait":"10s"})"); }
  unsigned status() { return status_of(response()); }
};

// Notes what it is asked, and answers when the test says so. Its state is the test's and the server's threads'.
class scripted_desk final : public lease::desk {
 public:
  explicit scripted_desk(boost::asio::io_context& io) : io_(io) {}

  call acquire(const lease::lease_wish& wanted, lease::clock_reading arrived, answer done) override {
    last_wish = wanted;
    last_arrived = arrived;
    return ask("acquire", std::move(done));
  }
  void renew(const std::string& of, const fence::claims_list& tokens, lease::clock_reading arrived,
             answer done) override {
    last_arrived = arrived;
    (void)ask("renew " + of + " " + fence::write_tag(tokens), std::move(done));
  }
  void release(const std::string& of, const fence::claims_list& tokens,
               std::function<void(const std::optional<lease_refusal>&)> done) override {
    note("release " + of + " " + fence::write_tag(tokens));
    boost::asio::post(io_, [done = std::move(done)] { done(std::nullopt); });
  }
  std::vector<lease::lease_seen> list() const override { return {{{"orders"}, {}, "host-a", 0s}}; }
  call watch(const std::string& of, std::function<void(const lease::lease_event&)> tell) override {
    note("watch");
    if (of != orders_id) return nullptr;
    const std::lock_guard lock(mutex_);
    tell_ = std::move(tell);
    return until_dropped("unwatched");
  }

  // The next thing that the desk hears; "" when none comes for 10 s.
  std::string heard() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, 10s, [this] { return !heard_.empty(); })) return "";
    std::string out = std::move(heard_.front());
    heard_.pop_front();
    return out;
  }
  void answer_next(const outcome& with) {
    boost::asio::post(io_, [this, with] {
      std::unique_lock lock(mutex_);
      const auto done = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      done(with);
    });
  }
  void tell(const lease::lease_event& event) {
    boost::asio::post(io_, [this, event] { tell_(event); });
  }

  lease::lease_wish last_wish;
  lease::clock_reading last_arrived{};

 private:
  call ask(const std::string& what, answer done) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(done));
    heard_.push_back(what);
    changed_.notify_one();
    return until_dropped("dropped");
  }
  call until_dropped(const char* word) {
    return {new int(0), [this, word](int* p) {
              delete p;
              note(word);
            }};
  }
  void note(const std::string& what) {
    boost::asio::post(io_, [this, what] {
      const std::lock_guard inner(mutex_);
      heard_.push_back(what);
      changed_.notify_one();
    });
  }

  boost::asio::io_context& io_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> heard_;
  std::deque<answer> waiting_;
  std::function<void(const lease::lease_event&)> tell_;
};

class LeaseServer : public testing::Test {
 protected:
  void start(lease_server_times times = {}) { start({settings::address{"127.0.0.1", 0, {}}}, times); }
  void start(const std::vector<settings::address>& listen, lease_server_times times = {}) {
    server.emplace(io, listen, lease_server::socket_mode_default, desk, process, times);
    const auto started = server->start();
    ASSERT_TRUE(started) << started.error().message;
    port = server->ports()[0];
    thread = std::thread([this] { io.run(); });
  }
  void stop() {
    io.stop();
    if (thread.joinable()) thread.join();
  }
  // On the server's own thread, while clients are connected.
  void end_server() {
    boost::asio::post(io, [this] { server.reset(); });
  }
  void TearDown() override {
    stop();
    server.reset();
  }

  metrics::process process;
  boost::asio::io_context io;
  scripted_desk desk{io};
  std::optional<lease_server> server;
  std::uint16_t port = 0;
  std::thread thread;
};

TEST_F(LeaseServer, GrantsRenewsAndReleasesOverOneConnection) {
  start();
  lease_client c(port);
  c.acquire();
  EXPECT_EQ(desk.heard(), "acquire");
  desk.answer_next(granted_orders);
  const auto granted = c.response();
  EXPECT_TRUE(granted.starts_with("HTTP/1.1 201 ")) << granted;
  EXPECT_NE(granted.find("Content-Type: application/json\r\n"), std::string::npos) << granted;
  EXPECT_NE(granted.find("Cache-Control: no-store\r\n"), std::string::npos) << granted;
  EXPECT_TRUE(granted.ends_with(R"("tokens":{"orders":35},"tag":"orders=35","act_for_ms":24000,"stop_ms":5000})"));
  EXPECT_EQ(desk.heard(), "dropped");
  EXPECT_EQ(desk.last_wish.wait, 10s);

  c.ask("PUT", "/v1/leases/" + orders_id, R"({"tokens":{"orders":35}})");
  EXPECT_EQ(desk.heard(), "renew " + orders_id + " orders=35");
  EXPECT_EQ(desk.heard(), "dropped");
  desk.answer_next(granted_orders);
  EXPECT_TRUE(c.response().ends_with(R"({"act_for_ms":24000,"stop_ms":5000})"));

  c.ask("DELETE", "/v1/leases/" + orders_id, R"({"tokens":{"orders":35}})");
  const auto released = c.response();
  EXPECT_TRUE(released.starts_with("HTTP/1.1 204 ")) << released;
  EXPECT_EQ(released.find("Content-Length"), std::string::npos) << released;
  EXPECT_EQ(desk.heard(), "release " + orders_id + " orders=35");

  c.ask("GET", "/v1/leases");
  EXPECT_TRUE(c.response().ends_with(R"({"leases":[{"resources":["orders"],"holder":"host-a","state":"waiting"}]})"));
}

TEST_F(LeaseServer, SaysWhyNot) {
  start();
  lease_client c(port);
  c.acquire();
  EXPECT_EQ(desk.heard(), "acquire");
  desk.answer_next(lease_refusal{lease_refusal::kind::unreachable, "the issuer does not answer"});
  const auto answer = c.response();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503 ")) << answer;
  EXPECT_NE(answer.find("Retry-After: 1\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Content-Type: application/problem+json\r\n"), std::string::npos) << answer;
  EXPECT_EQ(desk.heard(), "dropped");
  c.acquire();
  EXPECT_EQ(desk.heard(), "acquire");
  desk.answer_next(lease_refusal{lease_refusal::kind::busy, "held", "orders", "host-b", 7s});
  EXPECT_EQ(c.status(), 409u);
}

TEST_F(LeaseServer, AnErrorOfTheRequestDoesNotEndTheConnection) {
  start();
  lease_client c(port);
  c.ask("POST", "/v1/leases", "{}");
  EXPECT_EQ(c.status(), 400u);
  c.ask("GET", "/v1/nothing");
  EXPECT_EQ(c.status(), 404u);
  c.ask("PUT", "/v1/leases", "{}");
  const auto answer = c.response();
  EXPECT_NE(answer.find("Allow: GET, POST\r\n"), std::string::npos) << answer;
  c.send("POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(c.status(), 415u);
  c.ask("GET", "/v1/leases", "", "Origin: http://evil.example\r\n");
  EXPECT_EQ(c.status(), 403u);
  c.ask("HEAD", "/v1/leases");
  EXPECT_TRUE(c.until("\r\n\r\n").starts_with("HTTP/1.1 405 "));
  c.ask("GET", "/v1/leases");
  EXPECT_EQ(c.status(), 200u) << "bytes of a body would stand here";
}

TEST_F(LeaseServer, RefusesWhatIsNoHttpOrTooLarge) {
  start();
  const struct {
    std::string bytes;
    unsigned status;
  } all[] = {
      {"garbage\r\n\r\n", 400},
      {"GET /v1/leases HTTP/1.1\r\n\r\n", 400},
      {"GET /v1/leases HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400},
      {"GET /v1/leases HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(limits::admin_head_bytes_max, 'x') +
           "\r\n\r\n",
       431},
      {"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65537\r\n\r\n" + std::string(65537, ' '), 413},
      {"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n10001\r\n" +
           std::string(65537, ' '),
       413},
  };
  for (const auto& one : all) {
    lease_client c(port);
    c.send(one.bytes);
    EXPECT_EQ(c.status(), one.status) << one.bytes.substr(0, 100);
  }
}

TEST_F(LeaseServer, ReadsABodyOfTheLargestSize) {
  start();
  lease_client c(port);
  const std::string json = R"({"resources":["orders"]})";
  c.ask("POST", "/v1/leases", json + std::string(limits::lease_body_bytes_max - json.size(), ' '));
  EXPECT_EQ(desk.heard(), "acquire");
  desk.answer_next(granted_orders);
  EXPECT_EQ(c.status(), 201u);
}

TEST_F(LeaseServer, TellsAClientThatAsksToGoOn) {
  start();
  lease_client c(port);
  const std::string json = R"({"resources":["orders"]})";
  c.send(
      "POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
      "Content-Length: " +
      std::to_string(json.size()) + "\r\n\r\n");
  EXPECT_EQ(c.until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  c.send(json);
  EXPECT_EQ(desk.heard(), "acquire");
  desk.answer_next(granted_orders);
  EXPECT_EQ(c.status(), 201u);
}

TEST_F(LeaseServer, AClientThatLeavesWhileItWaitsIsDropped) {
  start();
  {
    lease_client c(port);
    c.acquire();
    EXPECT_EQ(desk.heard(), "acquire");
  }
  EXPECT_EQ(desk.heard(), "dropped");
}

TEST_F(LeaseServer, KeepsWhatAClientSendsWhileItWaits) {
  start();
  lease_client c(port);
  c.acquire();
  EXPECT_EQ(desk.heard(), "acquire");
  for (int i = 0; i < 100; ++i) c.ask("GET", "/v1/leases");
  desk.answer_next(granted_orders);
  EXPECT_EQ(c.status(), 201u);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(c.status(), 200u) << i;
}

TEST_F(LeaseServer, AClientThatSendsWithoutEndWhileItWaitsIsDropped) {
  start();
  lease_client c(port);
  c.acquire();
  EXPECT_EQ(desk.heard(), "acquire");
  c.send(std::string(2 * limits::lease_pipelined_bytes_max, 'x'));
  EXPECT_EQ(desk.heard(), "dropped");
}

TEST_F(LeaseServer, AGrantWhoseAnswerCannotBeWrittenIsReleased) {
  start();
  std::optional<lease_client> c(port);
  c->acquire();
  EXPECT_EQ(desk.heard(), "acquire");
  // The grant comes first, then the end of the client: on the server's thread, so that it sees both at once.
  boost::asio::post(io, [&] {
    desk.answer_next(granted_orders);
    const linger at_once{1, 0};
    setsockopt(c->descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    c.reset();
  });
  std::vector<std::string> heard{desk.heard(), desk.heard()};
  std::sort(heard.begin(), heard.end());
  EXPECT_EQ(heard, (std::vector<std::string>{"dropped", "release " + orders_id + " orders=35"}));
}

TEST_F(LeaseServer, ARequestCountsFromWhenItCameAndNotFromBefore) {
  start();
  lease_client c(port);
  c.ask("GET", "/v1/leases");
  EXPECT_EQ(c.status(), 200u);
  const auto before = lease::clock_reading::now();
  c.acquire();
  EXPECT_EQ(desk.heard(), "acquire");
  const auto after = lease::clock_reading::now();
  EXPECT_GE(desk.last_arrived.boot, before.boot);
  EXPECT_LE(desk.last_arrived.boot, after.boot);
}

TEST_F(LeaseServer, StreamsWhatHappensUntilTheLeaseIsLost) {
  using kind = lease::lease_event::kind;
  start();
  lease_client c(port);
  c.ask("GET", "/v1/leases/" + orders_id + "/events");
  const auto head = c.until("\r\n\r\n");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200 ")) << head;
  EXPECT_NE(head.find("Content-Type: text/event-stream\r\n"), std::string::npos) << head;
  const std::string data = R"(data: {"tokens":{"orders":35},"tag":"orders=35","act_for_ms":24000,"stop_ms":5000)";
  desk.tell({kind::granted, granted_orders});
  EXPECT_EQ(c.until("\n\n"), "event: granted\n" + data + "}\n\n");
  desk.tell({kind::renewed, granted_orders});
  EXPECT_EQ(c.until("\n\n"), "event: renewed\n" + data + "}\n\n");
  desk.tell({kind::lost, granted_orders, "taken"});
  EXPECT_EQ(c.until("\n\n"), "event: lost\n" + data + ",\"why\":\"taken\"}\n\n");
  EXPECT_TRUE(c.at_end());
  EXPECT_EQ(desk.heard(), "watch");
  EXPECT_EQ(desk.heard(), "unwatched");
}

TEST_F(LeaseServer, WatchesNoUnknownLease) {
  start();
  lease_client c(port);
  c.ask("GET", "/v1/leases/" + std::string(32, '0') + "/events");
  EXPECT_EQ(c.status(), 404u);
}

TEST_F(LeaseServer, WritesAHeartbeatAndSeesThatAWatcherIsGone) {
  lease_server_times times;
  times.heartbeat = 5ms;
  start(times);
  {
    lease_client c(port);
    c.ask("GET", "/v1/leases/" + orders_id + "/events");
    c.until("\r\n\r\n");
    EXPECT_EQ(c.until("\n\n"), ":\n\n");
    EXPECT_EQ(c.until("\n\n"), ":\n\n");
  }
  EXPECT_EQ(desk.heard(), "watch");
  EXPECT_EQ(desk.heard(), "unwatched");
}

TEST_F(LeaseServer, DropsAWatcherThatDoesNotRead) {
  start();
  lease_client slow(port), other(port);
  slow.ask("GET", "/v1/leases/" + orders_id + "/events");
  EXPECT_EQ(desk.heard(), "watch");
  lease::lease_event event{lease::lease_event::kind::renewed, granted_orders};
  event.why = std::string(limits::lease_events_bytes_max / 8, 'w');
  // More than the kernel takes for the client: some MB.
  for (int i = 0; i < 2000; ++i) desk.tell(event);
  EXPECT_EQ(desk.heard(), "unwatched");
  other.ask("GET", "/v1/leases");
  EXPECT_EQ(other.status(), 200u);
}

TEST_F(LeaseServer, CutsASlowRequestAndAnIdleConnection) {
  start({.request = 30ms, .idle = 30ms});
  lease_client silent(port), slow(port), idle(port);
  slow.send("POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{");
  idle.ask("GET", "/v1/leases");
  EXPECT_EQ(idle.status(), 200u);
  EXPECT_TRUE(silent.at_end());
  EXPECT_TRUE(slow.at_end());
  EXPECT_TRUE(idle.at_end());
}

TEST_F(LeaseServer, AClientMayWaitLongerThanARequestMayTake) {
  start({.request = 20ms, .idle = 20ms});
  lease_client waiting(port), silent(port);
  waiting.acquire();
  EXPECT_EQ(desk.heard(), "acquire");
  EXPECT_TRUE(silent.at_end());
  desk.answer_next(granted_orders);
  EXPECT_EQ(waiting.status(), 201u);
}

TEST_F(LeaseServer, ListensOnAUnixSocketWithItsRightsAndOnAPort) {
  char place[] = "/tmp/fencegate_lease_XXXXXX";
  ASSERT_NE(mkdtemp(place), nullptr);
  const std::string path = std::string(place) + "/lease.sock";
  const auto former = umask(0);
  start({settings::address{"", 0, path}, settings::address{"127.0.0.1", 0, {}}});
  umask(former);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  lease_client by_file(path), by_port(server->ports()[1]);
  for (auto* c : {&by_file, &by_port}) {
    c->ask("GET", "/v1/leases");
    EXPECT_EQ(c->status(), 200u);
  }
  stop();
  server.reset();
  EXPECT_NE(::stat(path.c_str(), &info), 0);
  rmdir(place);
}

TEST_F(LeaseServer, EndsWithClientsThatWaitAndWatch) {
  start();
  lease_client waiting(port), watching(port), idle(port);
  waiting.acquire();
  EXPECT_EQ(desk.heard(), "acquire");
  watching.ask("GET", "/v1/leases/" + orders_id + "/events");
  EXPECT_EQ(desk.heard(), "watch");
  watching.until("\r\n\r\n");
  end_server();
  std::vector<std::string> heard{desk.heard(), desk.heard()};
  std::sort(heard.begin(), heard.end());
  EXPECT_EQ(heard, (std::vector<std::string>{"dropped", "unwatched"}));
  EXPECT_TRUE(waiting.at_end());
  EXPECT_TRUE(watching.at_end());
  EXPECT_TRUE(idle.at_end());
  EXPECT_FALSE(lease_client(port).connected());
}

TEST_F(LeaseServer, AnswersThatComeAfterItsEndHarmNobody) {
  start();
  lease_client c(port);
  c.ask("PUT", "/v1/leases/" + orders_id, R"({"tokens":{"orders":35}})");
  EXPECT_EQ(desk.heard(), "renew " + orders_id + " orders=35");
  end_server();
  EXPECT_TRUE(c.at_end());
  desk.answer_next(granted_orders);
  EXPECT_EQ(desk.heard(), "dropped");
}

TEST_F(LeaseServer, SaysWhichAddressIsTaken) {
  start();
  boost::asio::io_context other_io;
  lease_server other(other_io, {settings::address{"127.0.0.1", port, {}}}, 0660, desk, process);
  const auto started = other.start();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().message.find("API of leases: cannot listen on 127.0.0.1:" + std::to_string(port)), 0u);
}

}  // namespace
}  // namespace fencegate::admin
