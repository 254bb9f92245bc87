#include "base/byte_queue.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

namespace fencegate {
namespace {

TEST(ByteQueue, GivesBytesBackInOrder) {
  byte_queue queue;
  EXPECT_TRUE(queue.empty());
  queue.append("abc");
  queue.append("def");
  EXPECT_EQ(queue.view(), "abcdef");
  queue.consume(4);
  EXPECT_EQ(queue.view(), "ef");
  queue.consume(2);
  EXPECT_TRUE(queue.empty());
}

TEST(ByteQueue, PreparedBytesCountOnlyOnceCommitted) {
  byte_queue queue;
  char* room = queue.prepare(4);
  EXPECT_GE(queue.writable(), 4u);
  EXPECT_TRUE(queue.empty());
  std::memcpy(room, "wxyz", 4);
  queue.commit(3);
  EXPECT_EQ(queue.view(), "wxy");
}

TEST(ByteQueue, PutsBytesBackInFront) {
  byte_queue queue;
  queue.append("abcdef");
  queue.consume(3);
  queue.prepend("XY");  // fits where the consumed bytes were
  EXPECT_EQ(queue.view(), "XYdef");
  queue.prepend("0123456789");  // does not
  EXPECT_EQ(queue.view(), "0123456789XYdef");
  byte_queue fresh;
  fresh.prepend("abc");
  fresh.append("d");
  EXPECT_EQ(fresh.view(), "abcd");
}

TEST(ByteQueue, GivesMemoryBackOnlyWhenEmpty) {
  byte_queue queue;
  queue.append(std::string(1000, 'x'));
  queue.consume(999);
  queue.release();
  EXPECT_EQ(queue.view(), "x");
  queue.consume(1);
  queue.release();
  EXPECT_EQ(queue.capacity(), 0u);
  queue.append("again");
  EXPECT_EQ(queue.view(), "again");
}

TEST(ByteQueue, AStreamThroughItNeedsNoMoreRoomThanItHolds) {
  byte_queue queue;
  const std::string piece(100, 'x');
  for (int i = 0; i < 10'000; ++i) {
    queue.append(piece);
    queue.append(piece);
    queue.consume(150);
    queue.append(std::string(50, 'y'));
    queue.consume(100);
  }
  EXPECT_LE(queue.capacity(), 2048u);
}

// Against a plain string, with a fixed seed.
TEST(ByteQueue, BehavesLikeAString) {
  std::mt19937 random(7);
  byte_queue queue;
  std::string model;
  for (int i = 0; i < 20'000; ++i) {
    const std::string bytes(random() % 50, static_cast<char>('a' + i % 26));
    switch (random() % 5) {
      case 0:
      case 1:
        queue.append(bytes);
        model += bytes;
        break;
      case 2:
        queue.prepend(bytes);
        model = bytes + model;
        break;
      case 3: {
        const std::size_t n = model.empty() ? 0 : random() % (model.size() + 1);
        queue.consume(n);
        model.erase(0, n);
        break;
      }
      default: queue.release();
    }
    ASSERT_EQ(queue.view(), model);
  }
}

}  // namespace
}  // namespace fencegate
