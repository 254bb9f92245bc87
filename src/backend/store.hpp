// What the stores of HTTP gates have in common: who asks, how the answer gets back, and what it may be.
#pragma once

#include "backend/mark_memory.hpp"
#include "fence/compare.hpp"
#include "fence/rejection.hpp"
#include "fence/tag.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/result.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::fence {

// Called by result::value() on an error; see base/result.hpp.
[[noreturn]] inline void throw_exception_from_error(const rejection& r, const boost::source_location&) {
  throw std::logic_error("unchecked result: " + describe(r));
}

}  // namespace fencegate::fence

namespace fencegate::backend {

struct store_caller {
  boost::asio::io_context& thread;                 // where the answer is given
  std::weak_ptr<const void> session;               // lives on that thread; when it is gone, nothing is answered
  std::chrono::steady_clock::time_point deadline;  // about: an answer of the backend that is under way is waited for
};

// The tokens of a request; the claims name each resource once.
struct presented_claims {
  std::vector<fence::claim> claims;  // of run: none = it is not checked
  std::int64_t max_step = 0;         // largest rise of a mark by one of them; 0 = no limit
  bool read_only = false;            // of run: nothing is raised or written, and no token may be below its mark
  bool spends = false;               // every token must be above its mark, all of which are raised in one step, or none

  [[nodiscard]] fence::policy rules() const {
    fence::policy out;
    out.equal = spends ? fence::equal_token::reject : fence::equal_token::accept;
    out.max_step = max_step;
    return out;
  }
};

// A rejection: certainly not applied.
template <class T>
using store_result = boost::system::result<T, fence::rejection>;

struct looked_mark {
  std::string resource;
  std::optional<fence::token> mark;  // nullopt: there is none
  std::uint64_t lowering = 0;        // which it stands under (backend/mark_memory.hpp), in PostgreSQL
  std::string epoch{};               // under which it was looked at, in Redis
};

struct sealed_mark {
  fence::claim at;
  bool raised = false;                      // it was lower before, or there was none
  std::optional<std::uint64_t> lowering{};  // which the mark stands under, where the server said so
};

// Gives the answer on the caller's thread, unless its session has ended.
template <class Done, class Answer>
void answer(const store_caller& to, Done done, Answer with) {
  auto deliver = [session = to.session, done = std::move(done), with = std::move(with)]() mutable {
    if (const auto alive = session.lock()) done(std::move(with));
  };
  boost::asio::post(to.thread, std::move(deliver));
}

// A token below what this process has seen of its mark, or spent: rejected without asking the backend. A mark is seen
// when it was committed, and only rises: a token that it was equal to once is not above it any more.
// `Marks`: a mark_memory, or a store that has one.
template <class Marks>
[[nodiscard]] std::optional<fence::rejection> known_rejected(const Marks& marks, const presented_claims& wanted) {
  std::optional<fence::rejection> used;
  for (const auto& one : wanted.claims) {
    const auto mark = marks.seen(one.resource);
    const auto stands = fence::compare(one.presented, mark, wanted.rules());
    if (stands == fence::comparison::stale)
      return fence::rejection{fence::reason::stale, one.resource, one.presented, mark, {}};
    if (stands == fence::comparison::used)
      used = fence::rejection{fence::reason::equal, one.resource, one.presented, mark, {}};
  }
  return used;
}

[[nodiscard]] inline fence::rejection unavailable(std::string why) {
  return {fence::reason::unavailable, {}, {}, {}, std::move(why)};
}

}  // namespace fencegate::backend
