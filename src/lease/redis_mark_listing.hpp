// All marks of a Redis, or one: their names by SCAN, whose they are by the records of grants beside them. One that is no number is
// named with its problem, and hides no other. A running gate may have seen a higher mark, and puts that back.
#pragma once

#include "backend/redis_dialogue.hpp"
#include "lease/issuer.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::lease {

class redis_mark_listing : public std::enable_shared_from_this<redis_mark_listing> {
 public:
  // `patience`: for each answer.
  redis_mark_listing(boost::asio::io_context& context, const settings::mark_store& at,
                     std::chrono::milliseconds patience);

  // `only`: that mark, if there is any; else all. `done` once, unless it is dropped before.
  void start(const std::optional<std::string>& only, std::function<void(const result<std::vector<listed_mark>>&)> done);

 private:
  using outcome = backend::redis_dialogue::outcome;

  void scan(const std::string& cursor);
  // `last`, behind what a connection begins with.
  [[nodiscard]] std::vector<std::vector<std::string>> with_greeting(std::vector<std::string> last);
  void scanned(const outcome& came);
  void read_more();
  void read(const std::vector<std::string>& names, const outcome& came);
  void end(const result<std::vector<listed_mark>>& with);

  const std::shared_ptr<backend::redis_dialogue> dialogue_;
  std::vector<std::vector<std::string>> greeting_;  // until it was sent
  std::vector<std::string> names_;
  std::size_t next_ = 0;  // of the names, to read
  std::vector<listed_mark> found_;
  std::function<void(const result<std::vector<listed_mark>>&)> done_;
};

}  // namespace fencegate::lease
