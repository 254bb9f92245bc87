// A password. One that stands in a file can be renewed while it is used: its copies share it, and each connection is made with it as
// it is by then, on any thread.
#pragma once

#include "base/demand.hpp"

#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace fencegate {

class secret {
 public:
  secret() = default;  // none
  // NOLINTNEXTLINE(google-explicit-constructor): a text is one, which stays as it is.
  secret(std::string text) : cell_(text.empty() ? nullptr : std::make_shared<cell>(false, std::move(text))) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  secret(const char* text) : secret(std::string(text)) {}
  [[nodiscard]] static secret of_file(std::string text) {
    secret out;
    out.cell_ = std::make_shared<cell>(true, std::move(text));
    return out;
  }

  // "": there is none.
  [[nodiscard]] std::string text() const {
    if (!cell_) return {};
    const std::lock_guard lock(cell_->mutex);
    return cell_->text;
  }
  [[nodiscard]] bool empty() const { return text().empty(); }

  [[nodiscard]] bool is_of_file() const { return cell_ && cell_->of_file; }
  // All copies are what `next` is by now. REQUIRES: it is of a file.
  void renew(const secret& next) const {
    demand(is_of_file(), "a password that stands in no file is renewed");
    auto text = next.text();
    const std::lock_guard lock(cell_->mutex);
    cell_->text = std::move(text);
  }
  // Somebody has a copy of it.
  [[nodiscard]] bool is_shared() const { return cell_.use_count() > 1; }

  // Whether what is configured with the one goes on with the other: two of files are the same, whatever these hold, since the one
  // can be renewed to be as the other.
  friend bool operator==(const secret& a, const secret& b) {
    return a.is_of_file() == b.is_of_file() && (a.is_of_file() || a.text() == b.text());
  }

 private:
  struct cell {
    cell(bool of, std::string is) : of_file(of), text(std::move(is)) {}
    const bool of_file;
    std::mutex mutex;
    std::string text;
  };
  std::shared_ptr<cell> cell_;
};

}  // namespace fencegate
