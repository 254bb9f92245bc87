// Which way small writes go, by how long they have waited either way.
#include "gate/redis/share_choice.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace fencegate::gate {
namespace {

using namespace std::chrono_literals;
using microseconds = std::chrono::microseconds;

// Writers that always have a write under way, as clients that wait for each answer.
struct writers {
  int many = 8;
  microseconds own = 100us, shared = 100us;  // how long a write takes
  bool link_is_there = true;

  share_choice choice{};
  share_choice::time_point now{1h};
  int shared_writes = 0, own_writes = 0, in_vain = 0;  // in_vain: that should be shared, while the link is not there

  // All write once, and are answered.
  void round() {
    int over_the_link = 0;
    const auto read = now;
    for (int i = 0; i < many; ++i) {
      const bool shares = choice.shares(now, link_is_there);
      over_the_link += shares && link_is_there ? 1 : 0;
      in_vain += shares && !link_is_there ? 1 : 0;
    }
    now += over_the_link > 0 ? shared : own;
    for (int i = 0; i < many; ++i) choice.answered(i < over_the_link, read, now);
    shared_writes += over_the_link;
    own_writes += many - over_the_link;
  }
  void write_for(microseconds time) {
    shared_writes = own_writes = 0;
    const auto end = now + time;
    while (now < end) round();
  }
  // Of all writes, once what there is to find out was found out.
  double part_shared() {
    write_for(20s);
    write_for(20s);
    return static_cast<double>(shared_writes) / (shared_writes + own_writes);
  }
};

TEST(share_choice, goes_the_way_on_which_writes_wait_less) {
  EXPECT_GT((writers{.own = 100us, .shared = 40us}.part_shared()), 0.97);
  EXPECT_LT((writers{.own = 100us, .shared = 150us}.part_shared()), 0.03);
}

TEST(share_choice, prefers_the_shared_link_where_that_is_hardly_slower) {
  EXPECT_GT((writers{.own = 100us, .shared = 105us}.part_shared()), 0.97);
  EXPECT_LT((writers{.own = 100us, .shared = 115us}.part_shared()), 0.03);
}

TEST(share_choice, one_writer_alone_has_nothing_to_share) {
  writers alone{.many = 1, .own = 100us, .shared = 10us};
  alone.write_for(20s);
  EXPECT_EQ(alone.shared_writes, 0);
}

TEST(share_choice, the_last_of_many_goes_back_to_its_own_link) {
  writers some{.own = 100us, .shared = 40us};
  some.write_for(5s);
  some.many = 1;
  some.write_for(20s);
  some.write_for(20s);
  EXPECT_EQ(some.shared_writes, 0);
}

TEST(share_choice, follows_what_changes) {
  writers some{.own = 100us, .shared = 40us};
  EXPECT_GT(some.part_shared(), 0.97);
  some.shared = 200us;
  some.write_for(20s);
  EXPECT_LT(some.part_shared(), 0.03);
}

TEST(share_choice, too_few_writes_tell_nothing) {
  writers slow{.many = 2, .own = 50ms, .shared = 1ms};
  slow.write_for(60s);
  EXPECT_EQ(slow.shared_writes, 0);
}

TEST(share_choice, a_link_that_does_not_open_is_asked_for_now_and_then) {
  writers some{.own = 100us, .shared = 40us, .link_is_there = false};
  some.write_for(60s);
  EXPECT_GT(some.in_vain, 0);
  EXPECT_LT(some.in_vain, some.own_writes / 4);
  some.link_is_there = true;
  EXPECT_GT(some.part_shared(), 0.97);
}

TEST(share_choice, goes_back_when_few_write_or_rarely) {
  for (const auto& [many, each] : {std::pair<int, microseconds>{2, 50ms}, {8, 1'100ms}}) {
    writers some{.own = 100us, .shared = 40us};
    some.write_for(5s);
    some.many = many;
    some.own = some.shared = each;
    some.write_for(20s);
    some.write_for(60s);
    EXPECT_EQ(some.shared_writes, 0) << many;
  }
}

TEST(share_choice, one_pause_of_the_server_is_soon_forgotten) {
  writers some{.own = 100us, .shared = 40us};
  some.write_for(5s);
  some.shared = 1s;
  some.round();
  some.shared = 40us;
  some.write_for(20s);
  EXPECT_GT(some.part_shared(), 0.97);
}

// How many writes of trials there were: a trial takes some 20 ms.
TEST(share_choice, trials_grow_rare_while_nothing_changes_and_come_soon_behind_a_change) {
  writers some{.own = 100us, .shared = 200us};
  some.write_for(20s);
  some.write_for(40s);
  const int rare = some.shared_writes;
  EXPECT_GT(rare, 0);
  some.shared = 40us;
  some.write_for(20s);  // it takes the shared link
  some.shared = 200us;
  some.write_for(8s);  // and its own one again
  some.write_for(2s);
  EXPECT_GT(some.shared_writes, 2 * rare / 40);
}

// A trial is measured by what was begun in it, and answered in it.
TEST(share_choice, what_was_under_way_before_tells_nothing) {
  share_choice choice;
  const share_choice::time_point start{1h};
  EXPECT_FALSE(choice.shares(start, true));
  for (int i = 0; i < 100; ++i) choice.answered(false, start, start + 1ms);
  const auto trial = start + share_choice::slice;
  EXPECT_TRUE(choice.shares(trial, true));
  for (int i = 0; i < 100; ++i) choice.answered(true, trial - 10ms, trial + 5ms);
  EXPECT_TRUE(choice.shares(trial + share_choice::slice, true)) << "the trial goes on: it has measured nothing";
}

}  // namespace
}  // namespace fencegate::gate
