// One operation on leases at a time: what it asks of servers, one thing after the other, on a thread that has nothing else to do.
#pragma once

#include "base/result.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

namespace fencegate::cli {

// For asked(), where there was none.
inline const error no_answer{"there was no answer"};

class operation_run {
 public:
  boost::asio::io_context io{1};
  // Called where it waits for as long as whoever asked wants, when he has left.
  std::function<void()> on_left;

  // Runs the context until `ask`, which is given what takes the answer, has been answered; `unanswered`: it never was.
  template <class Answer, class Ask>
  Answer asked(Answer unanswered, const Ask& ask) {
    if (ended_) return unanswered;
    struct {
      Answer answer;
      bool came = false;
    } first{std::move(unanswered)};
    const auto kept = std::make_shared<decltype(first)>(std::move(first));
    io.restart();
    ask([this, kept](const Answer& told) {
      *kept = {told, true};
      io.stop();
    });
    if (!kept->came) io.run();
    return std::move(kept->answer);
  }

  // Any thread. Whoever asked has left.
  void leave() {
    boost::asio::post(io, [this] {
      left_ = true;
      if (on_left) on_left();
    });
  }
  [[nodiscard]] bool left() const { return left_; }
  // Any thread. The process ends: nothing is answered any more.
  void end() {
    ended_ = true;
    boost::asio::post(io, [this] { io.stop(); });
  }

 private:
  std::atomic<bool> ended_ = false;
  bool left_ = false;
};

}  // namespace fencegate::cli
