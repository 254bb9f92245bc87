#include "lease/term_record.hpp"

#include "fence/tag.hpp"

#include <sys/file.h>
#include <sys/stat.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

namespace fencegate::lease {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view first_line = "fencegate term 1";
constexpr std::size_t bytes_max = 64 * 1024;

// Its life is that of the clock by which starts are reported.
std::string boot_id() {
  std::ifstream from("/proc/sys/kernel/random/boot_id");
  std::string out;
  std::getline(from, out);
  return out;
}

class open_file {
 public:
  open_file(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600)) {}
  ~open_file() {
    if (fd_ >= 0) ::close(fd_);
  }
  open_file(const open_file&) = delete;
  open_file& operator=(const open_file&) = delete;

  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

error failed(const std::string& what, const std::string& path) {
  return {"cannot " + what + " " + path + ": " + std::strerror(errno)};
}

result<void> sync_directory(const std::string& path) {
  const open_file directory(path, O_RDONLY | O_DIRECTORY);
  if (!directory.is_open() || ::fsync(directory.fd()) != 0) return failed("write", path);
  return {};
}

std::string text_of(const term_record& record) {
  std::ostringstream out;
  out << first_line << "\nboot " << boot_id() << "\ngrant " << record.held.grant << "\ntag "
      << fence::write_tag(record.held.claims) << '\n';
  if (record.writer_started)
    out << "writer_started_ms " << std::chrono::floor<milliseconds>(record.writer_started->time_since_epoch()).count()
        << '\n';
  out << "end\n";
  return out.str();
}

// The value behind the word, or nullopt when the line is another one.
std::optional<std::string> value_of(std::istream& from, std::string_view word) {
  std::string line;
  if (!std::getline(from, line) || !line.starts_with(word)) return std::nullopt;
  return line.substr(word.size());
}

result<std::optional<term_record>> parse(const std::string& text) {
  const error broken{"it is not whole"};
  std::istringstream from(text);
  if (value_of(from, first_line) != "" || !text.ends_with("\nend\n")) return broken;
  const auto boot = value_of(from, "boot ");
  const auto grant = value_of(from, "grant ");
  const auto tag = value_of(from, "tag ");
  if (!boot || !grant || grant->empty() || !tag) return broken;
  auto claims = fence::parse_tag(*tag);
  if (!claims) return broken;
  if (boot->empty() || *boot != boot_id()) return std::optional<term_record>();
  term_record out{{std::move(*claims), *grant}, std::nullopt};
  if (const auto started = value_of(from, "writer_started_ms ")) {
    std::int64_t ms = 0;
    const auto [end, wrong] = std::from_chars(started->data(), started->data() + started->size(), ms);
    if (wrong != std::errc() || end != started->data() + started->size()) return broken;
    out.writer_started = boot_clock::time_point(milliseconds(ms));
  }
  return std::optional(std::move(out));
}

}  // namespace

term_file::term_file(const std::string& directory, const std::string& writer)
    : directory_(directory), path_(directory + "/" + writer + ".term") {}

result<std::optional<term_record>> term_file::read() const {
  const open_file from(path_, O_RDONLY | O_NONBLOCK);
  if (!from.is_open() && errno == ENOENT) return std::optional<term_record>();
  if (!from.is_open()) return failed("read", path_);
  std::string text;
  std::array<char, 4096> some{};
  while (text.size() <= bytes_max) {
    const auto bytes = ::read(from.fd(), some.data(), some.size());
    if (bytes < 0) return failed("read", path_);
    if (bytes == 0) break;
    text.append(some.data(), static_cast<std::size_t>(bytes));
  }
  auto read = parse(text);
  if (!read) return error{"cannot use " + path_ + ": " + read.error().message};
  return read;
}

result<void> term_file::write(const term_record& record) const {
  const auto text = text_of(record);
  const auto fresh = path_ + ".new";
  {
    const open_file to(fresh, O_WRONLY | O_CREAT | O_TRUNC);
    if (!to.is_open() || ::fchmod(to.fd(), 0600) != 0) return failed("write", fresh);
    const auto written = ::write(to.fd(), text.data(), text.size());
    if (written != static_cast<ssize_t>(text.size()) || ::fsync(to.fd()) != 0) return failed("write", fresh);
  }
  if (::rename(fresh.c_str(), path_.c_str()) != 0) return failed("write", path_);
  return sync_directory(directory_);
}

result<void> term_file::remove() const {
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) return failed("remove", path_);
  return sync_directory(directory_);
}

result<state_directory> state_directory::open(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return failed("make the state_dir", path);
  const auto file = path + "/lock";
  const int lock = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock < 0) return failed("use the state_dir", path);
  state_directory out(lock);
  if (::flock(lock, LOCK_EX | LOCK_NB) == 0) return {boost::system::in_place_value, std::move(out)};
  if (errno == EWOULDBLOCK) return error{"another fencegate uses the state_dir " + path + ": each has its own"};
  return failed("lock", file);
}

state_directory::state_directory(state_directory&& other) noexcept : lock_(std::exchange(other.lock_, -1)) {}

state_directory::~state_directory() {
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace fencegate::lease
