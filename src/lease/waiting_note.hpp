// What an issuer is told of one who waits there, so that others see it. It is said again now and then: who dies is forgotten.
#pragma once

#include "lease/issuer.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace fencegate::lease {

class waiting_note {
 public:
  static constexpr std::chrono::milliseconds stays{20'000}, said_again{10'000};
  // For one who is about to ask again under the same id, so that he waits since the first time.
  static constexpr std::chrono::milliseconds comes_back{2'000};

  waiting_note(std::shared_ptr<issuer> at, std::string holder) : at_(std::move(at)) {
    note_.holder = std::move(holder);
  }

  // He waits for this resource, under that grant id.
  void say(const std::string& resource, const std::string& grant) {
    const auto now = std::chrono::steady_clock::now();
    const bool same = note_.resource == resource && note_.grant == grant;
    if (same && now < again_) return;
    if (!same) end();
    again_ = now + said_again;
    note_.resource = resource;
    note_.grant = grant;
    note_.stays = stays;
    at_->note_waiter(note_);
  }

  // He waits no more, or is gone for so long at most.
  void end(std::chrono::milliseconds gone = std::chrono::milliseconds(0)) {
    if (note_.resource.empty()) return;
    note_.stays = gone;
    at_->note_waiter(note_);
    note_.resource.clear();
  }

 private:
  const std::shared_ptr<issuer> at_;
  waiter_note note_{};  // resource "": nothing was said
  std::chrono::steady_clock::time_point again_{};
};

}  // namespace fencegate::lease
