#include "cli/commands.hpp"

#include "config_fixture.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

namespace fencegate::cli {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

class CheckTest : public ConfigTest {
 protected:
  int check_text(const std::string& text) {
    files["f.yaml"] = text;
    return check("f.yaml", surroundings(), out, err);
  }
  std::ostringstream out;
  std::ostringstream err;
};

TEST_F(CheckTest, CountsTheGatesOfAGoodConfiguration) {
  EXPECT_EQ(check_text(gate_with("")), 0);
  EXPECT_EQ(out.str(), "f.yaml: OK, 1 gate\n");
  EXPECT_EQ(err.str(), "");
}

TEST_F(CheckTest, PrintsEveryErrorWithItsPlaceAndExitsWithTwo) {
  EXPECT_EQ(check_text("thread: 1\nlogs: {}\n" + gate_with("")), 2);
  EXPECT_EQ(out.str(), "");
  EXPECT_EQ(err.str(),
            "f.yaml:1:1: unknown key \"thread\" in the configuration (did you mean \"threads\"?)\n"
            "f.yaml:2:1: unknown key \"logs\" in the configuration (did you mean \"log\"?)\n");
}

TEST_F(CheckTest, WarnsAndIsContent) {
  EXPECT_EQ(
      check_text(
          "stores: { s: { url: postgres://db/app } }\ngates:\n  - name: api\n    protocol: http\n"
          "    listen: ':81'\n    store: s\n    routes:\n"
          "      - { match: 'PUT /a/{id}', resource: 'a:{id}', sql: delete from a where id = $1, params: ['{id}'] "
          "}\n"),
      0);
  EXPECT_EQ(out.str(), "f.yaml: OK, 1 gate\n");
  EXPECT_THAT(err.str(), StartsWith("f.yaml:8:58: warning: $1 is {id} of the path"));
}

TEST_F(CheckTest, SaysWhichFileItCannotRead) {
  EXPECT_EQ(check("missing.yaml", surroundings(), out, err), 2);
  EXPECT_EQ(err.str(), "missing.yaml: cannot read the file: No such file or directory\n");
}

// A listener on a free loopback port that reads one request, answers with `answer` and closes; or never answers. The
// thread ends with the test: accept() fails once the listener is shut down.
class one_answer {
 public:
  explicit one_answer(std::string answer, bool silent = false, const std::string& at_address = "127.0.0.1:0") {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    place.sin_port = htons(static_cast<std::uint16_t>(std::stoi(at_address.substr(at_address.find(':') + 1))));
    const int reuse = 1;
    EXPECT_EQ(::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse), 0);
    socklen_t size = sizeof place;
    auto* at = reinterpret_cast<sockaddr*>(&place);
    EXPECT_EQ(::bind(listener_, at, size), 0);
    EXPECT_EQ(::listen(listener_, 1), 0);
    EXPECT_EQ(::getsockname(listener_, at, &size), 0);
    address = "127.0.0.1:" + std::to_string(ntohs(place.sin_port));
    if (!silent) thread_ = std::thread([this, text = std::move(answer)] { serve(text); });
  }
  ~one_answer() {
    ::shutdown(listener_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    ::close(listener_);
  }

  std::string address;
  // REQUIRES: the answer was received.
  const std::string& request() {
    thread_.join();
    return request_;
  }

 private:
  void serve(const std::string& answer) {
    const int peer = ::accept(listener_, nullptr, nullptr);
    if (peer < 0) return;
    std::array<char, 1024> buffer{};
    while (request_.find("\r\n\r\n") == std::string::npos) {
      const auto received = ::recv(peer, buffer.data(), buffer.size(), 0);
      if (received <= 0) break;
      request_.append(buffer.data(), static_cast<std::size_t>(received));
    }
    (void)::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL);
    ::close(peer);
  }

  int listener_ = -1;
  std::string request_;
  std::thread thread_;
};

TEST(Healthcheck, SucceedsOnStatus200) {
  one_answer server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  std::ostringstream err;
  EXPECT_EQ(healthcheck(server.address, "/livez", 5s, err), 0) << err.str();
  EXPECT_EQ(server.request(), "GET /livez HTTP/1.1\r\nHost: " + server.address + "\r\nConnection: close\r\n\r\n");
}

TEST(Healthcheck, FailsOnAnythingElse) {
  const std::array<std::pair<std::string, const char*>, 5> answers{
      {{"HTTP/1.1 503 Service Unavailable\r\n\r\n", "status 503"},
       {"-ERR unknown command 'GET'\r\n", "status 0"},
       {"HTTP/1.1 2000\r\n\r\n", "status 0"},
       {"", "closed without an answer"},
       {std::string(5000, 'x'), "not HTTP"}}};
  for (const auto& [answer, expected] : answers) {
    one_answer server(answer);
    std::ostringstream err;
    EXPECT_EQ(healthcheck(server.address, "/readyz", 5s, err), 1) << answer;
    EXPECT_THAT(err.str(), HasSubstr(expected));
    EXPECT_THAT(server.request(), StartsWith("GET /readyz "));
  }
}

TEST(Healthcheck, GivesUpOnAListenerThatNeverAnswers) {
  one_answer server("", true);
  std::ostringstream err;
  EXPECT_EQ(healthcheck(server.address, "/livez", 50ms, err), 1);
  EXPECT_THAT(err.str(), HasSubstr("no answer in time"));
}

TEST(Healthcheck, FailsWhereNobodyListens) {
  std::ostringstream err;
  EXPECT_EQ(healthcheck("unix:/nowhere/fencegate.sock", "/livez", 5s, err), 1);
  EXPECT_THAT(err.str(), HasSubstr("No such file or directory"));
  EXPECT_EQ(healthcheck("9180", "/livez", 5s, err), 2);
}

TEST(Wait, AsksUntilItIsReady) {
  auto starting = std::make_unique<one_answer>("HTTP/1.1 503 Service Unavailable\r\n\r\n");
  const std::string address = starting->address;
  std::ostringstream err;
  std::thread changes([&] {
    EXPECT_THAT(starting->request(), StartsWith("GET /readyz "));
    starting.reset();  // for a moment nobody listens
    starting = std::make_unique<one_answer>("HTTP/1.1 200 OK\r\n\r\n", false, address);
  });
  EXPECT_EQ(wait_until_ready(address, 30s, err), 0) << err.str();
  changes.join();
  EXPECT_EQ(err.str(), "");
}

TEST(Wait, EndsWithWhatItHeardLast) {
  std::ostringstream err;
  EXPECT_EQ(wait_until_ready("unix:/nowhere/fencegate.sock", 250ms, err), 1);
  EXPECT_EQ(err.str(), "fencegate: unix:/nowhere/fencegate.sock/readyz: No such file or directory\n");
  EXPECT_EQ(wait_until_ready("9180", 30s, err), 2);
}

TEST(Quit, IsAPostAndTellsWhetherItWasTaken) {
  for (const auto& [answer, code] : {std::pair("HTTP/1.1 200 OK\r\n\r\n", 0), {"HTTP/1.1 403 Forbidden\r\n\r\n", 1}}) {
    one_answer server(answer);
    std::ostringstream err;
    EXPECT_EQ(quit(server.address, 5s, err), code);
    EXPECT_THAT(server.request(), StartsWith("POST /quit HTTP/1.1\r\n"));
    EXPECT_EQ(err.str().empty(), code == 0);
  }
}

}  // namespace
}  // namespace fencegate::cli
