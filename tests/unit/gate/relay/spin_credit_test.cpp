#include "gate/relay/spin_credit.hpp"

#include <gtest/gtest.h>

namespace fencegate::gate {
namespace {

int sleeps_until_it_may(spin_credit& credit) {
  int slept = 0;
  while (!credit.may_spin()) ++slept;
  return slept;
}

TEST(spin_credit, looks_once_and_sleeps_for_long_when_that_was_in_vain) {
  spin_credit credit;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(credit.may_spin());
    credit.in_vain(false);
    EXPECT_EQ(sleeps_until_it_may(credit), spin_credit::sleeps - 1);
  }
}

TEST(spin_credit, goes_on_while_every_other_look_finds_something) {
  spin_credit credit;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(credit.may_spin());
    credit.found();
    ASSERT_TRUE(credit.may_spin());
    credit.in_vain(false);
  }
}

TEST(spin_credit, what_paid_off_for_long_is_not_given_up_at_once_but_soon) {
  spin_credit credit;
  for (int i = 0; i < 1000; ++i) credit.found();
  int looks = 0;
  for (; credit.may_spin(); ++looks) credit.in_vain(false);
  EXPECT_EQ(looks, spin_credit::most);
}

TEST(spin_credit, others_who_want_the_processor_count_for_more) {
  spin_credit credit;
  for (int i = 0; i < 1000; ++i) credit.found();
  int looks = 0;
  for (; credit.may_spin(); ++looks) credit.in_vain(true);
  EXPECT_EQ(looks, spin_credit::most / spin_credit::lost_to_others);
}

}  // namespace
}  // namespace fencegate::gate
