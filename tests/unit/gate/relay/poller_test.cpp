// The one unit test with sockets: what the kernel tells, and when, is what the poller is about.
#include "gate/relay/poller.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fencegate::test {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using stream = asio::generic::stream_protocol;

// A session as the poller sees it: one socket, and what to do when it is called.
struct owner final : gate::poller::owner {
  explicit owner(asio::io_context& context) : socket(gate::poller::of(context), *this) {}
  void on_ready() override {
    ++calls;
    if (then) then();
  }

  gate::polled_socket socket;
  std::function<void()> then;
  int calls = 0;
};

// With a thread that sleeps at once, and with one that looks for work first.
class Poller : public testing::TestWithParam<int> {
 protected:
  Poller() { poller.busy_poll(std::chrono::microseconds(GetParam())); }

  asio::io_context context{1};
  const asio::executor_work_guard<asio::io_context::executor_type> guard{context.get_executor()};
  gate::poller& poller = gate::poller::of(context);

  // The ends of a new connection: the one for the poller, and its peer's.
  std::pair<stream::socket, tcp::socket> connection() {
    tcp::acceptor acceptor(context, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    tcp::socket peer(context), own(context);
    peer.connect(acceptor.local_endpoint());
    acceptor.accept(own);
    peer.set_option(tcp::no_delay(true));
    return {stream::socket(std::move(own)), std::move(peer)};
  }
  tcp::socket connect(owner& to) {
    auto [own, peer] = connection();
    take(to, std::move(own));
    return std::move(peer);
  }
  static void take(owner& to, stream::socket own) {
    error_code failed;
    to.socket.take(std::move(own), nullptr, failed);
    ASSERT_FALSE(failed) << failed.message();
  }
  static void say(tcp::socket& peer, std::string_view bytes) { asio::write(peer, asio::buffer(bytes)); }

  // Lets events come until it is so.
  void until(const std::function<bool()>& so) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!so() && std::chrono::steady_clock::now() < deadline) context.run_one_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(so()) << "not within 10 s";
  }
  // All that has happened so far has been told: a later event, of another socket, was told behind it.
  void settle() {
    owner last(context);
    auto peer = connect(last);
    say(peer, "!");
    until([&] { return last.calls > 0; });
  }
  // Reads once; the error's message when there is nothing to read.
  static std::string read(owner& from, std::size_t most = 1024) {
    std::string room(most, '\0');
    error_code failed;
    room.resize(from.socket.receive(room, failed));
    return failed ? failed.message() : room;
  }
  // The message of an error as read() shows it.
  static std::string text(const error_code& of) { return of.message(); }
  inline static const std::string nothing = error_code(asio::error::would_block).message();
  inline static const std::string end = error_code(asio::error::eof).message();
};

TEST_P(Poller, TellsOfBytesAndAShortReadHasTakenThemAll) {
  owner one(context);
  auto peer = connect(one);
  for (const std::string words : {"first", "second"}) {
    say(peer, words);
    until([&] { return one.socket.readable(); });
    EXPECT_EQ(read(one), words);
    EXPECT_FALSE(one.socket.readable());
    EXPECT_EQ(read(one), nothing);
  }
}

TEST_P(Poller, TellsOfBytesThatCameBeforeTheSocket) {
  auto [own, peer] = connection();
  say(peer, "early");
  owner one(context);
  take(one, std::move(own));
  until([&] { return one.socket.readable(); });
  EXPECT_EQ(read(one), "early");
}

TEST_P(Poller, AFullReadMayHaveLeftSomething) {
  owner one(context);
  auto peer = connect(one);
  say(peer, "12345678");
  until([&] { return one.socket.readable(); });
  EXPECT_EQ(read(one, 4), "1234");
  EXPECT_TRUE(one.socket.readable());
  EXPECT_EQ(read(one, 4), "5678");
  EXPECT_TRUE(one.socket.readable());
  EXPECT_EQ(read(one, 4), nothing);
  EXPECT_FALSE(one.socket.readable());
}

TEST_P(Poller, RemembersWhatNobodyReadsAndDoesNotNag) {
  owner one(context);
  auto peer = connect(one);
  say(peer, "kept ");
  until([&] { return one.calls > 0; });
  say(peer, "back");
  settle();
  const int calls = one.calls;
  settle();
  settle();
  EXPECT_EQ(one.calls, calls);
  ASSERT_TRUE(one.socket.readable());
  one.socket.again();  // as a session does that has room once more
  until([&] { return one.calls > calls; });
  EXPECT_EQ(read(one), "kept back");
}

TEST_P(Poller, WhatStandsBeforeAHalfClosedEndIsReadFirst) {
  owner one(context);
  auto peer = connect(one);
  say(peer, "bye");
  peer.shutdown(tcp::socket::shutdown_send);
  settle();
  EXPECT_EQ(read(one), "bye");
  EXPECT_TRUE(one.socket.readable());  // no event will come for the end: it was told together with the bytes
  EXPECT_EQ(read(one), end);
  EXPECT_FALSE(one.socket.readable());
  error_code failed;
  EXPECT_EQ(one.socket.send("answer", failed), 6U);
  char got[6];
  EXPECT_EQ(asio::read(peer, asio::buffer(got)), 6U);
}

TEST_P(Poller, AnEndBehindADrainedSocketIsTold) {
  owner one(context);
  auto peer = connect(one);
  say(peer, "bye");
  until([&] { return one.socket.readable(); });
  EXPECT_EQ(read(one), "bye");
  EXPECT_FALSE(one.socket.readable());
  peer.close();
  until([&] { return one.socket.readable(); });
  EXPECT_EQ(read(one), end);
}

TEST_P(Poller, AResetIsTold) {
  owner one(context);
  auto peer = connect(one);
  peer.set_option(tcp::socket::linger(true, 0));
  peer.close();
  until([&] { return one.socket.readable(); });
  EXPECT_EQ(read(one), text(asio::error::connection_reset));
}

// A read stops at urgent data, and nothing tells of what stands behind them.
TEST_P(Poller, ReadsAroundUrgentData) {
  owner one(context);
  auto peer = connect(one);
  say(peer, "a");
  ASSERT_EQ(::send(peer.native_handle(), "!", 1, MSG_OOB), 1);
  say(peer, "b");
  settle();
  std::string got;
  while (one.socket.readable()) {
    const std::string more = read(one);
    if (more != nothing) got += more;
  }
  EXPECT_EQ(got, "ab");
}

TEST_P(Poller, AShortReadOfAUnixSocketProvesNothing) {
  asio::local::stream_protocol::socket own(context), peer(context);
  asio::local::connect_pair(own, peer);
  owner one(context);
  take(one, stream::socket(std::move(own)));
  asio::write(peer, asio::buffer("x", 1));
  until([&] { return one.socket.readable(); });
  EXPECT_EQ(read(one), "x");
  EXPECT_TRUE(one.socket.readable());
  EXPECT_EQ(read(one), nothing);
  EXPECT_FALSE(one.socket.readable());
}

TEST_P(Poller, TellsOfRoomAfterAStall) {
  owner one(context);
  auto peer = connect(one);
  const std::string piece(64 * 1024, 'x');
  for (int stalls = 0; stalls < 3; ++stalls) {
    std::size_t sent = 0, got = 0;
    error_code failed;
    while (!failed) sent += one.socket.send(piece, failed);
    ASSERT_EQ(failed, asio::error::would_block);
    EXPECT_FALSE(one.socket.writable());
    std::string room(piece.size(), '\0');
    while (got < sent) got += peer.read_some(asio::buffer(room));
    until([&] { return one.socket.writable(); });
  }
}

TEST_P(Poller, AFailedWriteLeadsToWhatThePeerSaidLast) {
  owner one(context);
  auto peer = connect(one);
  settle();
  say(peer, "-ERR go away\r\n");
  peer.close();
  error_code failed;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!failed && std::chrono::steady_clock::now() < deadline) static_cast<void>(one.socket.send("x", failed));
  ASSERT_TRUE(failed);
  one.socket.suspect();
  EXPECT_TRUE(one.socket.readable());
  EXPECT_NE(read(one), nothing);
}

// Both have an event in the same round; the first to be called closes the other, and a new connection takes over its
// place in the poller and its descriptor's number. The event that was fetched for the old one is not the new one's.
TEST_P(Poller, AnEventOfAClosedSocketIsNotTheNextOnes) {
  owner one(context), two(context);
  auto [first, first_peer] = connection();
  auto [second, second_peer] = connection();
  auto [fresh, fresh_peer] = connection();
  const int numbers[] = {first.native_handle(), second.native_handle()};
  take(one, std::move(first));
  take(two, std::move(second));
  bool replaced = false;
  const auto replace = [&](owner& other, int number) {
    if (std::exchange(replaced, true)) return;
    other.calls = 0;
    other.socket.close();
    const int copy = ::fcntl(fresh.native_handle(), F_DUPFD, number);
    ASSERT_EQ(copy, number);
    take(other, stream::socket(context, stream(AF_INET, IPPROTO_TCP), copy));
  };
  one.then = [&] { replace(two, numbers[1]); };
  two.then = [&] { replace(one, numbers[0]); };
  say(first_peer, "x");
  say(second_peer, "x");
  until([&] { return replaced; });
  owner& other = one.calls == 0 ? one : two;
  settle();
  EXPECT_EQ(other.calls, 0);
  EXPECT_FALSE(other.socket.readable());
  say(fresh_peer, "mine");
  until([&] { return other.socket.readable(); });
  EXPECT_EQ(read(other), "mine");
}

TEST_P(Poller, AnOwnerMayDestroyItselfAndOthersWhenCalled) {
  std::vector<std::unique_ptr<owner>> owners;
  std::vector<tcp::socket> peers;
  int calls = 0;
  for (int i = 0; i < 4; ++i) {
    owners.push_back(std::make_unique<owner>(context));
    peers.push_back(connect(*owners.back()));
    owners.back()->then = [&] {
      ++calls;
      for (const auto& one : owners) one->socket.again();
      const auto gone = std::move(owners);
      owners.clear();
    };
  }
  for (auto& peer : peers) say(peer, "x");
  until([&] { return calls > 0; });
  settle();
  EXPECT_EQ(calls, 1);
}

TEST_P(Poller, AgainCallsOnceHoweverOftenItWasAskedFor) {
  owner one(context);
  auto peer = connect(one);
  one.socket.again();
  one.socket.again();
  until([&] { return one.calls > 0; });
  settle();
  EXPECT_EQ(one.calls, 1);
  one.socket.again();
  one.socket.close();
  settle();
  EXPECT_EQ(one.calls, 1);
}

TEST_P(Poller, AgainIsHeardHoweverOftenWithoutAnyEvent) {
  owner one(context);
  auto peer = connect(one);
  one.then = [&] {
    if (one.calls < 100) one.socket.again();
  };
  one.socket.again();
  until([&] { return one.calls == 100; });
}

TEST_P(Poller, WhoAlwaysWantsMoreKeepsNobodyOut) {
  owner greedy(context), modest(context);
  auto greedy_peer = connect(greedy);
  auto modest_peer = connect(modest);
  greedy.then = [&] { greedy.socket.again(); };
  greedy.socket.again();
  bool posted = false;
  asio::post(context, [&] { posted = true; });
  say(modest_peer, "x");
  until([&] { return modest.calls > 0 && posted; });
  greedy.then = nullptr;
}

TEST_P(Poller, ServesMoreSocketsThanOneRoundTakes) {
  std::vector<std::unique_ptr<owner>> owners;
  std::vector<tcp::socket> peers;
  for (int i = 0; i < 300; ++i) {
    owners.push_back(std::make_unique<owner>(context));
    peers.push_back(connect(*owners.back()));
  }
  for (auto& peer : peers) say(peer, "x");
  for (auto& one : owners) {
    until([&] { return one->socket.readable(); });
    EXPECT_EQ(read(*one), "x");
  }
}

// Asio waits in the poller: what is Asio's ends the wait, too.
TEST_P(Poller, WaitsForAsiosTimersAndSockets) {
  asio::steady_timer timer(context, std::chrono::milliseconds(5));
  bool rang = false;
  timer.async_wait([&](const error_code& failed) { rang = !failed; });
  EXPECT_EQ(context.run_one(), 1U);
  EXPECT_TRUE(rang);

  auto [own, peer] = connection();
  std::array<char, 5> room{};
  std::size_t got = 0;
  asio::async_read(own, asio::buffer(room), [&](const error_code&, std::size_t bytes) { got = bytes; });
  std::thread speaker([&peer = peer] { say(peer, "hello"); });
  EXPECT_EQ(context.run_one(), 1U);
  EXPECT_EQ(got, room.size());
  speaker.join();
}

TEST_P(Poller, IsWokenByAPostFromAnotherThread) {
  for (int i = 0; i < 100; ++i) {
    std::thread poster([this] { asio::post(context, [] {}); });
    EXPECT_EQ(context.run_one(), 1U);
    poster.join();
  }
}

TEST_P(Poller, HasToBeFirst) {
  asio::io_context late(1);
  const asio::steady_timer waits(late);
  EXPECT_THROW(gate::poller::of(late), asio::service_already_exists);
}

INSTANTIATE_TEST_SUITE_P(Waits, Poller, testing::Values(0, 1000),
                         [](const auto& of) { return of.param == 0 ? std::string("asleep") : std::string("busy"); });

}  // namespace
}  // namespace fencegate::test
