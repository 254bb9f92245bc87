// When files of TLS are read again. Certificates themselves: tests/live/test_tls_files.py.
#include "backend/tls_files.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace fencegate::backend {
namespace {

class TlsFilesTest : public testing::Test {
 protected:
  ~TlsFilesTest() override { ::unlink(path.c_str()); }

  static std::string new_file() {
    std::string name = testing::TempDir() + "tls-XXXXXX";
    ::close(::mkstemp(name.data()));
    return name;
  }
  result<tls_files::context> make() {
    ++reads;
    if (!problem.empty()) return error{problem};
    return tls_files::context(reinterpret_cast<ssl_ctx_st*>(this), [](ssl_ctx_st*) {});
  }

  const std::string path = new_file();
  int reads = 0;
  std::string problem;
  tls_files files{{path}, "", [this] { return make(); }};
};

using what = tls_files::used::what;

TEST_F(TlsFilesTest, ReadsOnceWhatHasNotChanged) {
  EXPECT_EQ(files.current()->happened, what::same);
  EXPECT_EQ(files.current()->happened, what::same);
  EXPECT_EQ(reads, 1);
}

TEST_F(TlsFilesTest, ReadsAgainWhatHasChangedAndWhenItIsAskedTo) {
  static_cast<void>(files.current());
  std::ofstream(path) << "longer";
  EXPECT_EQ(files.current()->happened, what::replaced);
  EXPECT_EQ(files.current()->happened, what::same);
  read_tls_files_again();
  EXPECT_EQ(files.current()->happened, what::replaced);
  EXPECT_EQ(reads, 3);
}

TEST_F(TlsFilesTest, KeepsWhatWasUsableAndSaysSoOnce) {
  static_cast<void>(files.current());
  std::ofstream(path) << "worse";
  problem = "nonsense";
  const auto kept = files.current();
  EXPECT_EQ(kept->happened, what::kept);
  EXPECT_EQ(kept->detail, "nonsense");
  EXPECT_NE(kept->of, nullptr);
  EXPECT_EQ(files.current()->happened, what::same);
  problem.clear();
  EXPECT_EQ(files.current()->happened, what::replaced)
      << "no change of the file is needed: a descriptor may have been missing";
}

TEST_F(TlsFilesTest, IsAnErrorWhereThereWasNeverAny) {
  problem = "nonsense";
  EXPECT_EQ(files.current().error().message, "nonsense");
}

}  // namespace
}  // namespace fencegate::backend
