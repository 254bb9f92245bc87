#include "cli/copy_self.hpp"

#include "base/result.hpp"
#include "cli/commands.hpp"
#include "hold/descriptor.hpp"

#include <sys/sendfile.h>
#include <sys/stat.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ostream>

namespace fencegate::cli {
namespace {

namespace fs = std::filesystem;
using hold::descriptor;

constexpr std::string_view program = "fencegate-hold";

error failed(const fs::path& at) { return {at.string() + ": " + std::strerror(errno)}; }

result<void> copy_bytes(const descriptor& from, const fs::path& source, const descriptor& to, const fs::path& target) {
  struct stat known {};
  if (::fstat(from.get(), &known) != 0) return failed(source);
  for (off_t at = 0; at < known.st_size;) {
    const auto copied = ::sendfile(to.get(), from.get(), &at, static_cast<std::size_t>(known.st_size - at));
    if (copied < 0) return failed(target);
    if (copied == 0) return error{source.string() + " became shorter"};
  }
  // Not later than its name is it on the disk.
  return ::fchmod(to.get(), 0755) == 0 && ::fsync(to.get()) == 0 ? result<void>() : failed(target);
}

result<void> copy_program(const fs::path& source, const fs::path& folder) {
  const descriptor from(::open(source.c_str(), O_RDONLY | O_CLOEXEC));
  if (!from) return failed(source);
  std::error_code not_made;
  fs::create_directories(folder, not_made);
  if (not_made) return error{folder.string() + ": " + not_made.message()};
  std::string temporary = folder / ".fencegate-hold.XXXXXX";
  descriptor to(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!to) return failed(folder);
  auto outcome = copy_bytes(from, source, to, folder);
  to.close();  // a program that somebody may still write to cannot be started
  const auto target = folder / program;
  if (outcome && ::rename(temporary.c_str(), target.c_str()) != 0) outcome = failed(target);
  if (!outcome) ::unlink(temporary.c_str());
  return outcome;
}

}  // namespace

int copy_self(const std::string& folder, std::ostream& err) {
  std::error_code unknown;
  const auto self = fs::read_symlink("/proc/self/exe", unknown);
  const auto outcome = unknown ? result<void>(error{"/proc/self/exe: " + unknown.message()})
                               : copy_program(self.parent_path() / program, folder);
  if (outcome) return exit_ok;
  err << "fencegate copy-self: " << outcome.error().message << '\n';
  return exit_failed;
}

}  // namespace fencegate::cli
