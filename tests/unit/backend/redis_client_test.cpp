// Commands and their replies over a unix socket, whose other end the test holds.
#include "backend/redis_client.hpp"

#include "backend/redis_replies.hpp"

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

namespace fencegate::backend {
namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;
using testing::ElementsAre;
using testing::IsEmpty;

class RedisClient : public ::testing::Test {
 protected:
  RedisClient() {
    std::filesystem::remove(address.path);
    acceptor.open();
    acceptor.bind(asio::local::stream_protocol::endpoint(address.path));
    acceptor.listen();
  }
  ~RedisClient() override {
    client->lose("the test ends");
    io.run();
    std::filesystem::remove(address.path);
  }

  void begin() {
    client->connect({[this](const auto& endpoints) { seen.push_back("connected " + std::to_string(endpoints.size())); },
                     [this](const std::string& why, bool by_server) {
                       seen.push_back("lost: " + why);
                       closed_by_server = by_server;
                     }});
  }
  void connect() {
    begin();
    server = acceptor.accept();
    until([&] { return !seen.empty(); });
    ASSERT_THAT(seen, ElementsAre("connected 1"));
    seen.clear();
  }
  template <class Condition>
  void until(Condition holds) {
    io.restart();
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!holds() && std::chrono::steady_clock::now() < end) io.run_one_for(100ms);
    ASSERT_TRUE(holds());
  }
  void send(const std::string& name, redis_client::time_point answer_by = redis_client::time_point::max()) {
    client->send(
        {"ECHO", name},
        [this, name](const wire::reply_value* reply) {
          seen.push_back(name + "=" + (reply == nullptr ? "nothing" : std::string(reply->text)));
        },
        answer_by);
  }
  void arrives(const std::string& name) {
    const std::string bytes = "*2\r\n$4\r\nECHO\r\n$" + std::to_string(name.size()) + "\r\n" + name + "\r\n";
    std::string read(bytes.size(), ' ');
    io.restart();
    io.poll();
    asio::read(server, asio::buffer(read));
    EXPECT_EQ(read, bytes);
  }
  void answer(std::string_view bytes) { asio::write(server, asio::buffer(bytes)); }
  void tick_in(std::chrono::milliseconds time) { client->on_tick(std::chrono::steady_clock::now() + time); }

  settings::address address{
      {}, 0, std::filesystem::temp_directory_path() / ("fencegate_client_" + std::to_string(::getpid()))};
  metrics::counter malformed;
  asio::io_context io;
  std::shared_ptr<redis_client> client = std::make_shared<redis_client>(io, address, 2'000ms, malformed);
  asio::local::stream_protocol::acceptor acceptor{io};
  asio::local::stream_protocol::socket server{io};
  std::vector<std::string> seen;
  bool closed_by_server = false;
};

TEST_F(RedisClient, EachCommandGetsItsReplyInOrder) {
  connect();
  for (const auto* name : {"a", "b", "c"}) send(name);
  for (const auto* name : {"a", "b", "c"}) arrives(name);
  answer("$1\r\n1\r\n$1\r");
  until([&] { return !seen.empty(); });
  EXPECT_THAT(seen, ElementsAre("a=1"));
  answer("\n2\r\n-ERR no\r\n");
  until([&] { return seen.size() == 3; });
  EXPECT_THAT(seen, ElementsAre("a=1", "b=2", "c=ERR no"));
}

TEST_F(RedisClient, WithoutAConnectionThereIsNothingAtOnce) {
  send("a");
  begin();
  send("b");
  EXPECT_THAT(seen, ElementsAre("a=nothing", "b=nothing"));
}

TEST_F(RedisClient, ALostConnectionIsToldFirstAndThenToAllWhoWait) {
  connect();
  send("a");
  send("b");
  server.close();
  until([&] { return seen.size() == 3; });
  EXPECT_THAT(seen, ElementsAre(testing::StartsWith("lost: "), "a=nothing", "b=nothing"));
  EXPECT_TRUE(closed_by_server);
  send("c");
  EXPECT_EQ(seen.back(), "c=nothing");
  seen.clear();
  connect();
  send("d");
  arrives("d");
}

TEST_F(RedisClient, WhatWasNotAskedForEndsIt) {
  connect();
  answer("+OK\r\n");
  until([&] { return !seen.empty(); });
  EXPECT_THAT(seen, ElementsAre("lost: Redis sent what is not an answer"));
  EXPECT_FALSE(closed_by_server);
  EXPECT_EQ(malformed.value(), 1u);
}

TEST_F(RedisClient, WhatIsNoReplyEndsItAndNothingBehindItIsRead) {
  connect();
  send("a");
  send("b");
  answer("$x\r\n+b\r\n");
  until([&] { return seen.size() == 3; });
  EXPECT_THAT(seen, ElementsAre("lost: Redis sent what is not an answer", "a=nothing", "b=nothing"));
  EXPECT_EQ(malformed.value(), 1u);
}

TEST_F(RedisClient, WhoHasWaitedLongEnoughGetsNothingAndTheNextOneItsOwn) {
  connect();
  const auto before = std::chrono::steady_clock::now();
  send("a", before + 100ms);
  send("b");
  client->on_tick(before + 50ms);
  EXPECT_THAT(seen, IsEmpty());
  client->on_tick(before + 200ms);
  EXPECT_THAT(seen, ElementsAre("a=nothing"));
  answer("+a\r\n+b\r\n");
  until([&] { return seen.size() == 2; });
  EXPECT_EQ(seen.back(), "b=b");
}

TEST_F(RedisClient, AServerThatSaysNothingIsLost) {
  connect();
  const auto before = std::chrono::steady_clock::now();
  send("a");
  client->on_tick(before + 1'000ms);
  EXPECT_THAT(seen, IsEmpty());
  tick_in(2'500ms);
  EXPECT_THAT(seen, ElementsAre("lost: no answer within 2000 ms", "a=nothing"));
}

TEST_F(RedisClient, WhoMayTakeLongerGivesThoseBehindAsLong) {
  connect();
  const auto before = std::chrono::steady_clock::now();
  send("a", before + 10s);
  send("b");
  client->on_tick(before + 9'000ms);
  EXPECT_THAT(seen, IsEmpty());
  tick_in(11'000ms);
  EXPECT_THAT(seen, ElementsAre("a=nothing", "lost: no answer within 2000 ms", "b=nothing"));
}

TEST_F(RedisClient, AConnectionThatIsNotMadeInTimeIsLost) {
  begin();
  tick_in(2'500ms);
  EXPECT_THAT(seen, ElementsAre("lost: connecting took too long"));
  tick_in(60'000ms);
  EXPECT_EQ(seen.size(), 1u) << "nothing is tried by itself";
}

TEST_F(RedisClient, WhereNobodyListensItIsLost) {
  acceptor.close();
  begin();
  until([&] { return !seen.empty(); });
  EXPECT_THAT(seen, ElementsAre(testing::StartsWith("lost: cannot connect: ")));
}

TEST_F(RedisClient, ACallbackThatLosesTheConnectionMayStillReadItsReply) {
  connect();
  std::string read;
  client->send({"PING"}, [&](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    client->lose("enough");
    read = std::string(reply->text);
  });
  send("a");
  answer("+PONG\r\n+a\r\n");
  until([&] { return seen.size() == 2; });
  EXPECT_EQ(read, "PONG");
  EXPECT_THAT(seen, ElementsAre("lost: enough", "a=nothing"));
}

TEST_F(RedisClient, MuchGoesOutAsThereIsRoom) {
  connect();
  const std::string large(4'000'000, 'x');
  send(large);
  io.restart();
  io.poll();
  constexpr std::string_view around = "*2\r\n$4\r\nECHO\r\n$4000000\r\n\r\n";
  std::string read(large.size() + around.size(), ' ');
  bool arrived = false;
  asio::async_read(server, asio::buffer(read), [&](const auto&, std::size_t) { arrived = true; });
  until([&] { return arrived; });
  answer("+done\r\n");
  until([&] { return !seen.empty(); });
  EXPECT_EQ(seen.back(), large + "=done");
}

}  // namespace
}  // namespace fencegate::backend
