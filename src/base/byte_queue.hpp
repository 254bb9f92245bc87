// A contiguous first-in first-out of bytes: sockets append, decoders look at the front and consume. It gives memory back
// when it runs empty, because thousands of idle connections own two of them each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace fencegate {

class byte_queue {
 public:
  [[nodiscard]] std::string_view view() const { return {data_.get() + begin_, end_ - begin_}; }
  [[nodiscard]] std::size_t size() const { return end_ - begin_; }
  [[nodiscard]] bool empty() const { return begin_ == end_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }

  // At least `n` writable bytes behind the content; may move the content. Write there, then commit().
  [[nodiscard]] char* prepare(std::size_t n) {
    if (capacity_ - end_ >= n) return data_.get() + end_;
    if (begin_ > 0 && capacity_ - size() >= n && begin_ >= size()) {
      std::memmove(data_.get(), data_.get() + begin_, size());
    } else {
      const std::size_t wanted = std::max(size() + n, size() + size() / 2);
      auto grown = std::make_unique_for_overwrite<char[]>(wanted);
      if (!empty()) std::memcpy(grown.get(), data_.get() + begin_, size());
      data_ = std::move(grown);
      capacity_ = wanted;
    }
    end_ -= begin_;
    begin_ = 0;
    return data_.get() + end_;
  }
  [[nodiscard]] std::size_t writable() const { return capacity_ - end_; }
  // REQUIRES: n bytes were written behind the content.
  void commit(std::size_t n) { end_ += n; }

  void append(std::string_view bytes) {
    if (bytes.empty()) return;
    std::memcpy(prepare(bytes.size()), bytes.data(), bytes.size());
    commit(bytes.size());
  }

  // Puts bytes back in front of the content (a batch that is to be sent again).
  void prepend(std::string_view bytes) {
    if (bytes.empty()) return;
    if (begin_ >= bytes.size()) {
      begin_ -= bytes.size();
      std::memcpy(data_.get() + begin_, bytes.data(), bytes.size());
      return;
    }
    const std::size_t wanted = bytes.size() + size();
    auto grown = std::make_unique_for_overwrite<char[]>(wanted);
    std::memcpy(grown.get(), bytes.data(), bytes.size());
    if (!empty()) std::memcpy(grown.get() + bytes.size(), data_.get() + begin_, size());
    data_ = std::move(grown);
    capacity_ = wanted;
    begin_ = 0;
    end_ = wanted;
  }

  // REQUIRES: n <= size().
  void consume(std::size_t n) {
    begin_ += n;
    if (begin_ == end_) begin_ = end_ = 0;
  }

  // Gives back the memory that the content does not need.
  void fit() {
    byte_queue exact;
    exact.append(view());
    *this = std::move(exact);
  }

  // Gives the memory back when nothing is stored.
  void release() {
    if (!empty()) return;
    data_.reset();
    capacity_ = begin_ = end_ = 0;
  }

 private:
  std::unique_ptr<char[]> data_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace fencegate
