#include "hold/exit_status.hpp"

#include <gtest/gtest.h>

namespace fencegate::hold {
namespace {

using kind = job_end::kind;

std::string told(kind what, int status = 0) { return result_text(ending_of(job_end{.what = what, .status = status})); }

TEST(ExitStatus, OfAJobIsItsOwn) {
  EXPECT_EQ(told(kind::exited, 0), "{\"outcome\":\"exited\",\"status\":0}\n");
  EXPECT_EQ(told(kind::exited, 75), "{\"outcome\":\"exited\",\"status\":75}\n");
  EXPECT_EQ(told(kind::exited, 255), "{\"outcome\":\"exited\",\"status\":255}\n");
  EXPECT_EQ(told(kind::signaled, 9), "{\"outcome\":\"signaled\",\"status\":137}\n");
  EXPECT_EQ(told(kind::signaled, 64), "{\"outcome\":\"signaled\",\"status\":192}\n");
}

TEST(ExitStatus, OfAJobThatDidNotRunIsThatOfEnv) {
  EXPECT_EQ(told(kind::not_found, 2), "{\"outcome\":\"error\",\"status\":127}\n");
  EXPECT_EQ(told(kind::not_executable, 13), "{\"outcome\":\"error\",\"status\":126}\n");
}

TEST(ExitStatus, OfAJobThatWasEnded) {
  EXPECT_EQ(told(kind::overdue), "{\"outcome\":\"lost\",\"status\":79}\n");
  EXPECT_EQ(told(kind::guard_died), "{\"outcome\":\"error\",\"status\":125}\n");
}

TEST(ExitStatus, OfOutcomesWithoutAJob) {
  EXPECT_EQ(result_text(ending_of(outcome::busy)), "{\"outcome\":\"busy\",\"status\":75}\n");
  EXPECT_EQ(result_text(ending_of(outcome::unreachable)), "{\"outcome\":\"unreachable\",\"status\":69}\n");
  EXPECT_EQ(result_text(ending_of(outcome::lost)), "{\"outcome\":\"lost\",\"status\":79}\n");
  EXPECT_EQ(result_text(ending_of(outcome::max_run)), "{\"outcome\":\"max_run\",\"status\":124}\n");
  EXPECT_EQ(result_text(ending_of(outcome::error)), "{\"outcome\":\"error\",\"status\":125}\n");
}

}  // namespace
}  // namespace fencegate::hold
