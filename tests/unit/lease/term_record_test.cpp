#include "lease/term_record.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace fencegate::lease {
namespace {

using std::chrono::milliseconds;

class TermFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "fencegate-term-XXXXXX";
    folder = ::mkdtemp(name.data());
    file.emplace(folder, "app");
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  [[nodiscard]] std::string path() const { return folder + "/app.term"; }
  [[nodiscard]] std::string text() const {
    std::ifstream from(path());
    return {std::istreambuf_iterator<char>(from), {}};
  }
  void put(const std::string& other) const { std::ofstream(path()) << other; }

  const term_record record{{{{"orders", *fence::token::parse("34")}, {"stock", *fence::token::parse("7")}},
                            "0123456789abcdef0123456789abcdef"},
                           boot_clock::time_point(milliseconds(123'456))};
  std::string folder;
  std::optional<term_file> file;
};

TEST_F(TermFile, KeepsATerm) {
  EXPECT_FALSE(file->read().value().has_value());
  ASSERT_TRUE(file->write(record));
  const auto read = file->read();
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->held.grant, record.held.grant);
  EXPECT_EQ((*read)->held.claims, record.held.claims);
  EXPECT_EQ((*read)->writer_started, record.writer_started);
  ASSERT_TRUE(file->write({record.held, std::nullopt}));
  EXPECT_EQ(file->read().value()->writer_started, std::nullopt);
  ASSERT_TRUE(file->remove());
  EXPECT_FALSE(file->read().value().has_value());
  EXPECT_TRUE(file->remove());
}

TEST_F(TermFile, IsForItsOwnerAlone) {
  put("of an earlier version, which all may read");
  ::chmod(path().c_str(), 0666);
  ASSERT_TRUE(file->write(record));
  struct stat info {};
  ASSERT_EQ(::stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

TEST_F(TermFile, OfAnotherStartOfTheMachineIsNone) {
  ASSERT_TRUE(file->write(record));
  auto other = text();
  const auto at = other.find("boot ") + 5;
  other[at] = other[at] == '0' ? '1' : '0';
  put(other);
  EXPECT_FALSE(file->read().value().has_value());
}

TEST_F(TermFile, CutAnywhereIsAnError) {
  ASSERT_TRUE(file->write(record));
  const auto whole = text();
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    put(whole.substr(0, bytes));
    EXPECT_FALSE(file->read()) << bytes;
  }
}

TEST_F(TermFile, ThatCannotBeWrittenIsAnError) {
  std::filesystem::create_directory(path());
  EXPECT_FALSE(file->write(record));
  EXPECT_FALSE(term_file(folder + "/none", "app").write(record));
}

TEST_F(TermFile, ItsDirectoryIsOneProcesssAlone) {
  const auto inner = folder + "/state";
  {
    const auto mine = state_directory::open(inner);
    ASSERT_TRUE(mine);
    const auto second = state_directory::open(inner);
    ASSERT_FALSE(second);
    EXPECT_NE(second.error().message.find("another fencegate"), std::string::npos);
  }
  EXPECT_TRUE(state_directory::open(inner));
  EXPECT_FALSE(state_directory::open(folder + "/none/state"));
}

}  // namespace
}  // namespace fencegate::lease
