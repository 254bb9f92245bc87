// The admin server over real loopback sockets.

#include "admin/admin_server.hpp"

#include "admin/status_desk.hpp"
#include "base/limits.hpp"
#include "unit/admin/blocking_client.hpp"

#include <boost/asio/post.hpp>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace fencegate::admin {
namespace {

using namespace std::chrono_literals;

class AdminServer : public testing::Test {
 protected:
  void start(std::chrono::milliseconds timeout = limits::admin_timeout, std::string host = "127.0.0.1") {
    server.emplace(
        io, settings::address{std::move(host), 0, {}}, process, [this] { ++quits; }, timeout);
    if (marks) server->serve_marks(marks);
    server->serve_status(status);
    const auto started = server->start();
    ASSERT_TRUE(started) << started.error().message;
    thread = std::thread([this] { io.run(); });
  }
  void stop() {
    io.stop();
    if (thread.joinable()) thread.join();
  }
  void TearDown() override {
    stop();
    server.reset();
  }
  blocking_client connect() { return blocking_client(server->port()); }

  static constexpr std::string_view watch_request = "GET /api/v1/status/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
  // What one more watcher is told, when another one has had its place for up to 20 seconds.
  unsigned status_when_there_is_room() {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (true) {
      blocking_client c = connect();
      c.send(watch_request);
      const auto told = status_of(c.until("\r\n\r\n"));
      if (told != 503 || std::chrono::steady_clock::now() > deadline) return told;
      std::this_thread::sleep_for(20ms);
    }
  }
  // A watcher that has heard the first event.
  blocking_client watch() {
    blocking_client c = connect();
    c.send(watch_request);
    EXPECT_EQ(status_of(c.until("\r\n\r\n")), 200u);
    EXPECT_TRUE(c.until("\n\n").starts_with("event: status\ndata: {"));
    return c;
  }

  metrics::process process;
  status_board board;
  boost::asio::io_context io;
  status_desk status{io, {}, process, board, {}};
  std::optional<admin_server> server;
  marks_service marks;
  std::atomic<int> quits{0};
  std::thread thread;
};

TEST_F(AdminServer, AnswersOverOneConnectionKeptAlive) {
  start();
  blocking_client c = connect();
  EXPECT_EQ(status_of(c.get("/livez")), 200u);
  EXPECT_EQ(status_of(c.get("/readyz")), 503u);
  process.ready = true;
  EXPECT_EQ(status_of(c.get("/readyz")), 200u);
  EXPECT_EQ(status_of(c.get("/nothing")), 404u);
  EXPECT_NE(c.get("/metrics").find("\nfencegate_draining 0\n"), std::string::npos);
}

TEST_F(AdminServer, AnswersPipelinedRequestsInOrder) {
  start();
  blocking_client c = connect();
  const std::string tail = " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  c.send("GET /livez" + tail + "GET /no" + tail + "GET /readyz" + tail);
  EXPECT_EQ(status_of(c.response()), 200u);
  EXPECT_EQ(status_of(c.response()), 404u);
  EXPECT_EQ(status_of(c.response()), 503u);
}

TEST_F(AdminServer, HeadHasTheLengthButNoBody) {
  start();
  blocking_client c = connect();
  c.send("HEAD /livez HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string head = c.response(true);
  EXPECT_EQ(status_of(head), 200u);
  EXPECT_NE(head.find("Content-Length: 6\r\n"), std::string::npos) << head;
  const std::string next = c.get("/livez");
  EXPECT_EQ(status_of(next), 200u) << "bytes of a body would stand here";
  EXPECT_EQ(next.substr(next.size() - 6), "alive\n");
}

TEST_F(AdminServer, ClosesWhenAskedTo) {
  start();
  blocking_client c = connect();
  c.send("GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(status_of(c.response()), 200u);
  EXPECT_TRUE(c.at_end());
  blocking_client old = connect();
  old.send("GET /livez HTTP/1.0\r\n\r\n");
  EXPECT_NE(old.response().find("200 OK"), std::string::npos) << "1.0 needs no Host";
  EXPECT_TRUE(old.at_end());
}

TEST_F(AdminServer, SaysWhichMethodsAreAllowed) {
  start();
  blocking_client c = connect();
  c.send("DELETE /livez HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string answer = c.response();
  EXPECT_EQ(status_of(answer), 405u);
  EXPECT_NE(answer.find("Allow: GET, HEAD\r\n"), std::string::npos) << answer;
}

TEST_F(AdminServer, QuitCallsBackAfterItsAnswer) {
  start();
  blocking_client c = connect();
  c.send("POST /quit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(status_of(c.response()), 200u);
  EXPECT_TRUE(c.at_end());
  stop();
  EXPECT_EQ(quits, 1);
}

TEST_F(AdminServer, QuitIsRefusedToForgedRequests) {
  start();
  for (const char* fields : {"Host: evil.example\r\n", "Host: localhost\r\nOrigin: http://evil.example\r\n",
                             "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n"}) {
    blocking_client c = connect();
    c.send("POST /quit HTTP/1.1\r\n" + std::string(fields) + "\r\n");
    EXPECT_EQ(status_of(c.response()), 403u) << fields;
  }
  stop();
  EXPECT_EQ(quits, 0);
}

const std::string get_mark = "GET /.fencegate/marks/orders HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST_F(AdminServer, AsksTheServiceOfMarksAndSendsItsAnswer) {
  marks = [](const marks_request& asked, const std::function<void(page_answer)>& done) {
    page_answer a;
    a.status = 412;
    a.content_type = "application/problem+json";
    a.fencing_mark = "34";
    a.body = std::string(asked.method) + " " + std::string(asked.target) + " for " + std::string(asked.host);
    for (const auto& field : asked.fields) a.body += "|" + std::string(field.name) + "=" + std::string(field.value);
    done(std::move(a));
  };
  start();
  blocking_client c = connect();
  c.send("PUT /.fencegate/marks/a?b HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\nfencing_token: 2\r\n\r\n");
  const std::string answer = c.response();
  EXPECT_EQ(status_of(answer), 412u);
  EXPECT_NE(answer.find("Content-Type: application/problem+json\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Fencing-Mark: 34\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("PUT /.fencegate/marks/a?b for localhost|Host=localhost|Fencing-Token=1|fencing_token=2"),
            std::string::npos)
      << answer;
  EXPECT_EQ(status_of(c.get("/livez")), 200u) << "the connection goes on";
}

TEST_F(AdminServer, ServesOthersWhileMarksWaitForTheirStore) {
  std::vector<std::function<void(page_answer)>> under_way;  // of the server's thread
  std::atomic<std::size_t> asked{0};
  marks = [&](const marks_request&, std::function<void(page_answer)> done) {
    under_way.push_back(std::move(done));
    ++asked;
    asked.notify_one();
  };
  start();
  std::vector<blocking_client> asking;
  for (std::size_t i = 0; i < limits::admin_marks_max; ++i) {
    asking.push_back(connect());
    asking.back().send(get_mark);
  }
  // Once all of those were read, the next is refused.
  for (std::size_t read = asked; read < limits::admin_marks_max; read = asked) asked.wait(read);
  blocking_client next = connect();
  next.send(get_mark);
  const std::string refused = next.response();
  EXPECT_EQ(status_of(refused), 503u);
  EXPECT_NE(refused.find("Retry-After: 1\r\n"), std::string::npos) << refused;
  EXPECT_EQ(status_of(connect().get("/livez")), 200u);
  boost::asio::post(io, [&] {
    for (const auto& done : under_way) done({});
  });
  for (std::size_t i = 0; i < limits::admin_marks_max; ++i) EXPECT_EQ(status_of(asking[i].response()), 200u);
  EXPECT_EQ(status_of(connect().get("/livez")), 200u);
}

TEST_F(AdminServer, MarksThatAreAnsweredAfterItsEndHarmNobody) {
  std::atomic<int> asked{0};
  std::function<void(page_answer)> late;
  marks = [&](const marks_request&, std::function<void(page_answer)> done) {
    late = std::move(done);
    ++asked;
    asked.notify_one();
  };
  start();
  blocking_client c = connect();
  c.send(get_mark);
  asked.wait(0);
  stop();
  server.reset();
  late({});  // the sanitizers would complain
  EXPECT_TRUE(c.at_end());
}

TEST_F(AdminServer, NeedsExactlyOneHost) {
  start();
  for (const char* fields : {"", "Host: localhost\r\nHost: evil.example\r\n"}) {
    blocking_client c = connect();
    c.send("POST /quit HTTP/1.1\r\n" + std::string(fields) + "\r\n");
    EXPECT_EQ(status_of(c.response()), 400u) << fields;
    EXPECT_TRUE(c.at_end());
  }
  stop();
  EXPECT_EQ(quits, 0);
}

TEST_F(AdminServer, KnowsLoopbackBehindADualStackSocket) {
  const int v6 = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  const bool has_v6 = v6 >= 0 && bind(v6, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0;
  if (v6 >= 0) close(v6);
  if (!has_v6) GTEST_SKIP() << "no IPv6 here";
  start(limits::admin_timeout, "::");
  blocking_client c = connect();  // seen as ::ffff:127.0.0.1
  c.send("POST /quit HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_EQ(status_of(c.response()), 200u);
}

TEST_F(AdminServer, AnswersMalformedRequestsWith400AndCloses) {
  start();
  for (const char* bytes :
       {"garbage\r\n\r\n", "GET /livez HTTP/1.1\r\nHo st: x\r\n\r\n", "GET  /livez HTTP/1.1\r\n\r\n",
        "POST /quit HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        "POST /quit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n"}) {
    blocking_client c = connect();
    c.send(bytes);
    EXPECT_EQ(status_of(c.response()), 400u) << bytes;
    EXPECT_TRUE(c.at_end()) << bytes;
  }
}

TEST_F(AdminServer, RefusesAHeadOverItsLimit) {
  start();
  const std::string start_line = "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ";
  blocking_client fits = connect();
  fits.send(start_line + std::string(limits::admin_head_bytes_max - start_line.size() - 4, 'x') + "\r\n\r\n");
  EXPECT_EQ(status_of(fits.response()), 200u);
  blocking_client c = connect();
  c.send(start_line + std::string(limits::admin_head_bytes_max, 'x') + "\r\n\r\n");
  EXPECT_EQ(status_of(c.response()), 431u);
}

TEST_F(AdminServer, RefusesABody) {
  start();
  blocking_client c = connect();
  c.send("POST /quit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(status_of(c.response()), 413u);
  blocking_client chunked = connect();
  chunked.send("POST /quit HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
  EXPECT_EQ(status_of(chunked.response()), 413u);
  stop();
  EXPECT_EQ(quits, 0);
}

TEST_F(AdminServer, CutsASlowHeadAndAnIdleConnection) {
  start(50ms);
  blocking_client silent = connect();
  EXPECT_TRUE(silent.at_end());
  blocking_client slow = connect();
  slow.send("GET /livez HTT");
  EXPECT_TRUE(slow.at_end());
  blocking_client idle = connect();
  EXPECT_EQ(status_of(idle.get("/livez")), 200u);
  EXPECT_TRUE(idle.at_end());
}

TEST_F(AdminServer, TheOneThatWaitsLongestGivesWayWhenAllPlacesAreTaken) {
  start(1h);
  std::vector<blocking_client> all;
  for (std::size_t i = 0; i < limits::admin_connections_max; ++i) {
    all.push_back(connect());
    ASSERT_EQ(status_of(all.back().get("/livez")), 200u);
  }
  ASSERT_EQ(status_of(all[0].get("/livez")), 200u);  // so that the second is now the one that waits longest
  blocking_client probe = connect();
  EXPECT_EQ(status_of(probe.get("/livez")), 200u);
  EXPECT_TRUE(all[1].at_end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i != 1) {
      EXPECT_EQ(status_of(all[i].get("/livez")), 200u) << i;
    }
  }
}

TEST_F(AdminServer, WatchersHearOfWhatChanges) {
  start();
  blocking_client c = watch();
  board.note_rise("cache", "orders", {0, 34}, true, std::chrono::system_clock::now());
  std::string event;
  do {
    event = c.until("\n\n");
    EXPECT_NE(event.find("\"complete\":false"), std::string::npos) << event;
  } while (!event.empty() && event.find("\"orders\"") == std::string::npos);
  EXPECT_NE(event.find("\"mark\":\"34\""), std::string::npos) << event;
}

TEST_F(AdminServer, WatchersAreLimitedAndLeaveRoomForProbes) {
  start(1h);
  std::vector<blocking_client> watchers;
  for (std::size_t i = 0; i < limits::status_watchers_max; ++i) watchers.push_back(watch());
  EXPECT_EQ(status_of(connect().get("/api/v1/status/events")), 503u);
  // As many more as there are places: those that wait give way to them, the watchers do not.
  std::vector<blocking_client> probes;
  for (std::size_t i = 0; i < limits::admin_connections_max; ++i) {
    probes.push_back(connect());
    EXPECT_EQ(status_of(probes.back().get("/livez")), 200u) << i;
  }
  for (auto& one : watchers) EXPECT_TRUE(one.until("\n\n").starts_with("event: status\n"));
  watchers.pop_back();
  EXPECT_EQ(status_when_there_is_room(), 200u);
}

TEST_F(AdminServer, AWatcherThatReadsNothingIsDropped) {
  // More than the buffers between the two take.
  for (int i = 0; i < 1000; ++i)
    board.note_rise("gate", std::string(2'000, 'x') + std::to_string(i), {0, i}, true,
                    std::chrono::system_clock::now());
  start(100ms);
  std::vector<blocking_client> slow;
  for (std::size_t i = 0; i < limits::status_watchers_max; ++i) {
    slow.emplace_back(server->port(), 1024);
    slow.back().send(watch_request);
    ASSERT_EQ(status_of(slow.back().until("\r\n\r\n")), 200u);
  }
  EXPECT_EQ(status_when_there_is_room(), 200u);
}

TEST_F(AdminServer, EndsWithSomebodyWatching) {
  start();
  blocking_client c = watch();
  stop();
  server.reset();
  while (!c.until("\n\n").empty()) {
  }
  EXPECT_TRUE(c.at_end());
}

TEST_F(AdminServer, SaysWhichAddressIsTaken) {
  start();
  boost::asio::io_context other_io;
  admin_server other(other_io, settings::address{"127.0.0.1", server->port(), {}}, process, nullptr);
  const auto started = other.start();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().message.find("admin listener: cannot listen on 127.0.0.1:" +
                                         std::to_string(server->port()) + ": Address already in use"),
            0u)
      << started.error().message;
}

TEST_F(AdminServer, ListensOnAName) {
  start(limits::admin_timeout, "localhost");
  EXPECT_NE(server->port(), 0);
}

TEST_F(AdminServer, EndsWithItsConnectionsOpen) {
  start();
  blocking_client c = connect();
  ASSERT_EQ(status_of(c.get("/livez")), 200u);
  stop();
  const auto port = server->port();
  server.reset();
  EXPECT_TRUE(c.at_end());
  EXPECT_FALSE(blocking_client(port).connected());
}

TEST_F(AdminServer, MayBeDestroyedByItsOwnCallback) {
  server.emplace(io, settings::address{"127.0.0.1", 0, {}}, process, [this, kept = std::string(100, 'x')] {
    server.reset();
    quits += kept.size() == 100 ? 1 : 0;
  });
  ASSERT_TRUE(server->start());
  const auto port = server->port();
  thread = std::thread([this] { io.run(); });
  blocking_client c(port);
  c.send("POST /quit HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(status_of(c.response()), 200u);
  thread.join();  // nothing is left to do
  EXPECT_EQ(quits, 1);
  EXPECT_FALSE(blocking_client(port).connected());
}

}  // namespace
}  // namespace fencegate::admin
