// Whether a control group limits the time of processors, by files as the kernel writes them.
#include "cli/processor_time.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace fencegate::cli {
namespace {

class ProcessorTime : public testing::Test {
 protected:
  ProcessorTime() { std::filesystem::create_directories(mount_); }
  ~ProcessorTime() override { std::filesystem::remove_all(folder_); }

  void write(const std::filesystem::path& file, const std::string& text) const {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void group(const std::string& file, const std::string& text) const { write(mount_ / file, text); }
  [[nodiscard]] bool is_unlimited(const std::string& membership) const {
    write(folder_ / "cgroup", membership);
    return processor_time_is_unlimited(folder_ / "cgroup", mount_);
  }

  const std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) / "fencegate-cgroups";
  const std::filesystem::path mount_ = folder_ / "mount";
};

TEST_F(ProcessorTime, WithoutALimit) {
  EXPECT_TRUE(is_unlimited("0::/\n"));
  group("system.slice/fencegate.service/cpu.max", "max 100000\n");
  EXPECT_TRUE(is_unlimited("0::/system.slice/fencegate.service\n"));
  group("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  EXPECT_TRUE(is_unlimited("4:memory:/a\n3:cpu,cpuacct:/a\n0::/a\n"));
}

TEST_F(ProcessorTime, LimitedByItsGroupOrOneAbove) {
  group("cpu.max", "max 100000\n");
  group("pods/one/cpu.max", "50000 100000\n");
  EXPECT_FALSE(is_unlimited("0::/pods/one\n"));
  EXPECT_FALSE(is_unlimited("0::/pods/one/below\n"));
  EXPECT_TRUE(is_unlimited("0::/pods/other\n"));
  EXPECT_TRUE(is_unlimited("0::/pods\n"));
}

TEST_F(ProcessorTime, LimitedAsTheRootOfItsContainer) {
  group("cpu.max", "200000 100000\n");
  EXPECT_FALSE(is_unlimited("0::/\n"));
  EXPECT_FALSE(is_unlimited("0::/../../somewhere\n"));
  EXPECT_FALSE(is_unlimited("0::/kubepods/pod7/which/is/not/shown/here\n"));
}

TEST_F(ProcessorTime, LimitedInTheFirstVersion) {
  group("cpu,cpuacct/docker/7/cpu.cfs_quota_us", "50000\n");
  EXPECT_FALSE(is_unlimited("3:cpu,cpuacct:/docker/7\n"));
  EXPECT_TRUE(is_unlimited("3:cpu,cpuacct:/docker/8\n"));
}

TEST_F(ProcessorTime, WhatCannotBeSeenIsALimit) {
  EXPECT_FALSE(is_unlimited(""));
  EXPECT_FALSE(is_unlimited("nonsense\n"));
  EXPECT_FALSE(is_unlimited("2:memory:/a\n"));
  EXPECT_FALSE(is_unlimited("2:cpu:/a\n")) << "no such folder";
  EXPECT_FALSE(processor_time_is_unlimited("/nowhere", mount_));
}

}  // namespace
}  // namespace fencegate::cli
