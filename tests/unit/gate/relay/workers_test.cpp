#include "gate/relay/workers.hpp"

#include <boost/asio/execution_context.hpp>
#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include <memory>

namespace fencegate::gate {
namespace {

namespace asio = boost::asio;

// As those of sockets: what belongs to it must be gone before it is.
class service final : public asio::execution_context::service {
 public:
  using key_type = service;
  inline static asio::execution_context::id id;  // NOLINT(readability-identifier-naming)

  explicit service(asio::execution_context& context) : asio::execution_context::service(context) {}
  ~service() override { *gone = true; }
  void shutdown() override {}

  const std::shared_ptr<bool> gone = std::make_shared<bool>(false);
};

class thing {
 public:
  thing(asio::io_context& of, bool& too_late) : gone_(asio::use_service<service>(of).gone), too_late_(too_late) {}
  ~thing() { too_late_ = too_late_ || *gone_; }
  thing(const thing&) = delete;
  thing& operator=(const thing&) = delete;

 private:
  const std::shared_ptr<bool> gone_;
  bool& too_late_;
};

TEST(Workers, DropWhatWaitsOnAnyThreadBeforeWhatItBelongsToIsGone) {
  bool too_late = false;
  {
    workers threads(3);
    for (std::size_t on = 0; on < threads.size(); ++on)
      for (std::size_t of = 0; of < threads.size(); ++of)
        asio::post(threads.context(on), [one = std::make_shared<thing>(threads.context(of), too_late)] {});
  }
  EXPECT_FALSE(too_late);
}

}  // namespace
}  // namespace fencegate::gate
