// A session in PostgreSQL that holds marks where they are while a request is forwarded: no raise commits while it
// lives. A raise that has waited for long enough ends it; then the forward has to be cut.
//
// Belongs to the thread that asked for it; destroying it lets go of the marks.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

namespace fencegate::backend {

// A file descriptor of its own for the session's socket: to look at, never to read from.
class socket_view {
 public:
  // -1: nothing to look at.
  explicit socket_view(int socket);
  ~socket_view();
  socket_view(const socket_view&) = delete;
  socket_view& operator=(const socket_view&) = delete;

  // True when nothing has arrived on it, neither bytes nor its end.
  [[nodiscard]] bool silent() const;

 private:
  int descriptor_;
};

class held_marks {
 public:
  // What both threads know of the session. `in_doubt`: it has ended, or said something that was not understood yet.
  struct session_state {
    explicit session_state(int socket) : view(socket) {}
    const socket_view view;
    const std::shared_ptr<std::atomic<bool>> in_doubt = std::make_shared<std::atomic<bool>>(false);
    std::atomic<bool> released = false;
  };

  // `let_go` is called once, `set_aside` before it, both on the thread that owns this.
  held_marks(std::shared_ptr<session_state> state, std::function<void()> let_go, std::function<void()> set_aside)
      : state_(std::move(state)), let_go_(std::move(let_go)), set_aside_(std::move(set_aside)) {}
  held_marks(held_marks&& from) noexcept
      : state_(std::move(from.state_)),
        let_go_(std::exchange(from.let_go_, nullptr)),
        set_aside_(std::exchange(from.set_aside_, nullptr)) {}
  held_marks& operator=(held_marks&& from) noexcept {
    release();
    state_ = std::move(from.state_);
    let_go_ = std::exchange(from.let_go_, nullptr);
    set_aside_ = std::exchange(from.set_aside_, nullptr);
    return *this;
  }
  ~held_marks() { release(); }

  // As far as this host knows, at this moment: asks the kernel what the server said last, so that a process that was
  // frozen does not believe what it knew before. To be asked right before anything is sent upstream. The doubt is looked at
  // last: it comes before the bytes are taken out of the kernel.
  [[nodiscard]] bool alive() const { return let_go_ && state_->view.silent() && !state_->in_doubt->load(); }

  // No client waits for what it is held for: the session shall not keep others waiting for one, if there is room.
  void set_aside() {
    if (let_go_ && set_aside_) std::exchange(set_aside_, nullptr)();
  }

  void release() {
    if (!let_go_) return;
    state_->released = true;
    std::exchange(let_go_, nullptr)();
  }

 private:
  std::shared_ptr<session_state> state_;
  std::function<void()> let_go_, set_aside_;
};

}  // namespace fencegate::backend
