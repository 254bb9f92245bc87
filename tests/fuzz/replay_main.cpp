// Stands in for libFuzzer where there is none: runs a fuzz target over every file below the given directories. A target
// without seeds would pass whatever it does, hence fails.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  in.exceptions(std::ios::badbit | std::ios::failbit);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Says which seed comes before running it: a crash ends the process, and the last line names the culprit.
std::size_t replay(const std::filesystem::path& directory) {
  std::size_t seeds = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) {
      continue;
    }
    std::fprintf(stderr, "%s\n", entry.path().c_str());
    const std::string seed = contents(entry.path());
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(seed.data()), seed.size());
    ++seeds;
  }
  return seeds;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    std::size_t seeds = 0;
    for (int i = 1; i < count; ++i) {
      seeds += replay(arguments[i]);
    }
    if (seeds == 0) {
      std::fprintf(stderr, "no seeds\n");
      return 1;
    }
    std::fprintf(stderr, "%zu seeds\n", seeds);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
