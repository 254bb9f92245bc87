// The admin server over real loopback sockets.

#include "admin/admin_server.hpp"

#include "base/limits.hpp"

#include <arpa/inet.h>
#include <boost/asio/post.hpp>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace fencegate::admin {
namespace {

using namespace std::chrono_literals;

// A blocking client that gives up after 10 s, so that a server that never answers is a failure and not a hang.
class client {
 public:
  explicit client(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  client(client&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_), unread_(std::move(other.unread_)) {}
  client(const client&) = delete;
  client& operator=(const client&) = delete;
  client& operator=(client&&) = delete;
  ~client() {
    if (fd_ >= 0) close(fd_);
  }

  [[nodiscard]] bool connected() const { return connected_; }

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;  // the test sees it when it reads
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  // One response: head, and as many bytes of body as Content-Length says. "" when the peer closed first.
  std::string response(bool head_only = false) {
    while (unread_.find("\r\n\r\n") == std::string::npos) {
      if (!more()) return "";
    }
    const auto head_bytes = unread_.find("\r\n\r\n") + 4;
    std::size_t body_bytes = 0;
    const auto at = unread_.find("Content-Length: ");
    if (at < head_bytes && !head_only) body_bytes = std::stoul(unread_.substr(at + 16));
    while (unread_.size() < head_bytes + body_bytes) {
      if (!more()) return "";
    }
    std::string one = unread_.substr(0, head_bytes + body_bytes);
    unread_.erase(0, one.size());
    return one;
  }

  std::string get(const std::string& path) {
    send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return response();
  }

  // True when the peer closes and no byte is left.
  bool at_end() { return unread_.empty() && !more() && ended_; }

 private:
  bool more() {
    pollfd wait{fd_, POLLIN, 0};
    if (poll(&wait, 1, 10'000) != 1) return false;
    char bytes[4096];
    const auto n = recv(fd_, bytes, sizeof bytes, 0);
    ended_ = n <= 0;
    if (n > 0) unread_.append(bytes, static_cast<std::size_t>(n));
    return n > 0;
  }

  int fd_;
  bool connected_ = false;
  bool ended_ = false;
  std::string unread_;
};

unsigned status_of(const std::string& response) {
  return response.rfind("HTTP/1.1 ", 0) == 0 ? static_cast<unsigned>(std::stoul(response.substr(9, 3))) : 0;
}

class AdminServer : public testing::Test {
 protected:
  void start(std::chrono::milliseconds timeout = limits::admin_timeout, std::string host = "127.0.0.1") {
    server.emplace(
        io, settings::address{std::move(host), 0, {}}, process, [this] { ++quits; }, timeout);
    if (marks) server->serve_marks(marks);
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
  client connect() { return client(server->port()); }

  metrics::process process;
  boost::asio::io_context io;
  std::optional<admin_server> server;
  marks_service marks;
  std::atomic<int> quits{0};
  std::thread thread;
};

TEST_F(AdminServer, AnswersOverOneConnectionKeptAlive) {
  start();
  client c = connect();
  EXPECT_EQ(status_of(c.get("/livez")), 200u);
  EXPECT_EQ(status_of(c.get("/readyz")), 503u);
  process.ready = true;
  EXPECT_EQ(status_of(c.get("/readyz")), 200u);
  EXPECT_EQ(status_of(c.get("/nothing")), 404u);
  EXPECT_NE(c.get("/metrics").find("\nfencegate_draining 0\n"), std::string::npos);
}

TEST_F(AdminServer, AnswersPipelinedRequestsInOrder) {
  start();
  client c = connect();
  const std::string tail = " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  c.send("GET /livez" + tail + "GET /no" + tail + "GET /readyz" + tail);
  EXPECT_EQ(status_of(c.response()), 200u);
  EXPECT_EQ(status_of(c.response()), 404u);
  EXPECT_EQ(status_of(c.response()), 503u);
}

TEST_F(AdminServer, HeadHasTheLengthButNoBody) {
  start();
  client c = connect();
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
  client c = connect();
  c.send("GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(status_of(c.response()), 200u);
  EXPECT_TRUE(c.at_end());
  client old = connect();
  old.send("GET /livez HTTP/1.0\r\n\r\n");
  EXPECT_NE(old.response().find("200 OK"), std::string::npos) << "1.0 needs no Host";
  EXPECT_TRUE(old.at_end());
}

TEST_F(AdminServer, SaysWhichMethodsAreAllowed) {
  start();
  client c = connect();
  c.send("DELETE /livez HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string answer = c.response();
  EXPECT_EQ(status_of(answer), 405u);
  EXPECT_NE(answer.find("Allow: GET, HEAD\r\n"), std::string::npos) << answer;
}

TEST_F(AdminServer, QuitCallsBackAfterItsAnswer) {
  start();
  client c = connect();
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
    client c = connect();
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
  client c = connect();
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
  std::vector<client> asking;
  for (std::size_t i = 0; i < limits::admin_marks_max; ++i) {
    asking.push_back(connect());
    asking.back().send(get_mark);
  }
  // Once all of those were read, the next is refused.
  for (std::size_t read = asked; read < limits::admin_marks_max; read = asked) asked.wait(read);
  client next = connect();
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
  client c = connect();
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
    client c = connect();
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
  client c = connect();  // seen as ::ffff:127.0.0.1
  c.send("POST /quit HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_EQ(status_of(c.response()), 200u);
}

TEST_F(AdminServer, AnswersMalformedRequestsWith400AndCloses) {
  start();
  for (const char* bytes :
       {"garbage\r\n\r\n", "GET /livez HTTP/1.1\r\nHo st: x\r\n\r\n", "GET  /livez HTTP/1.1\r\n\r\n",
        "POST /quit HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        "POST /quit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n"}) {
    client c = connect();
    c.send(bytes);
    EXPECT_EQ(status_of(c.response()), 400u) << bytes;
    EXPECT_TRUE(c.at_end()) << bytes;
  }
}

TEST_F(AdminServer, RefusesAHeadOverItsLimit) {
  start();
  const std::string start_line = "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ";
  client fits = connect();
  fits.send(start_line + std::string(limits::admin_head_bytes_max - start_line.size() - 4, 'x') + "\r\n\r\n");
  EXPECT_EQ(status_of(fits.response()), 200u);
  client c = connect();
  c.send(start_line + std::string(limits::admin_head_bytes_max, 'x') + "\r\n\r\n");
  EXPECT_EQ(status_of(c.response()), 431u);
}

TEST_F(AdminServer, RefusesABody) {
  start();
  client c = connect();
  c.send("POST /quit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(status_of(c.response()), 413u);
  client chunked = connect();
  chunked.send("POST /quit HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
  EXPECT_EQ(status_of(chunked.response()), 413u);
  stop();
  EXPECT_EQ(quits, 0);
}

TEST_F(AdminServer, CutsASlowHeadAndAnIdleConnection) {
  start(50ms);
  client silent = connect();
  EXPECT_TRUE(silent.at_end());
  client slow = connect();
  slow.send("GET /livez HTT");
  EXPECT_TRUE(slow.at_end());
  client idle = connect();
  EXPECT_EQ(status_of(idle.get("/livez")), 200u);
  EXPECT_TRUE(idle.at_end());
}

TEST_F(AdminServer, TheOneThatWaitsLongestGivesWayWhenAllPlacesAreTaken) {
  start(1h);
  std::vector<client> all;
  for (std::size_t i = 0; i < limits::admin_connections_max; ++i) {
    all.push_back(connect());
    ASSERT_EQ(status_of(all.back().get("/livez")), 200u);
  }
  ASSERT_EQ(status_of(all[0].get("/livez")), 200u);  // so that the second is now the one that waits longest
  client probe = connect();
  EXPECT_EQ(status_of(probe.get("/livez")), 200u);
  EXPECT_TRUE(all[1].at_end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i != 1) {
      EXPECT_EQ(status_of(all[i].get("/livez")), 200u) << i;
    }
  }
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
  client c = connect();
  ASSERT_EQ(status_of(c.get("/livez")), 200u);
  stop();
  const auto port = server->port();
  server.reset();
  EXPECT_TRUE(c.at_end());
  EXPECT_FALSE(client(port).connected());
}

TEST_F(AdminServer, MayBeDestroyedByItsOwnCallback) {
  server.emplace(io, settings::address{"127.0.0.1", 0, {}}, process, [this, kept = std::string(100, 'x')] {
    server.reset();
    quits += kept.size() == 100 ? 1 : 0;
  });
  ASSERT_TRUE(server->start());
  const auto port = server->port();
  thread = std::thread([this] { io.run(); });
  client c(port);
  c.send("POST /quit HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(status_of(c.response()), 200u);
  thread.join();  // nothing is left to do
  EXPECT_EQ(quits, 1);
  EXPECT_FALSE(client(port).connected());
}

}  // namespace
}  // namespace fencegate::admin
