// Raises and reads single marks in Redis: compare-and-set, again until it is settled, behind the epoch. No I/O of its own.
//
// Rule kept: a raise is reported as done only after the reply that proves it was read. Whatever is missing, late or
// unexpected is `unavailable`.
#pragma once

#include "backend/control_link.hpp"
#include "backend/mark_healing.hpp"
#include "backend/redis_state.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::backend {

struct raise_outcome {
  enum class kind : std::uint8_t {
    held,   // the mark equals the token now
    stale,  // the mark is higher
    jump,   // the token is more than max_step above the mark, or above one that only leases raise; nothing was raised
    unavailable,  // not known; the mark may or may not have been raised
  } what = kind::unavailable;
  bool raised = false;               // held only: it was lower before
  std::optional<fence::token> mark;  // what was found (stale, jump) or is set (held)
  std::string detail;                // unavailable; jump: "" = by more than max_step
};
using raise_callback = std::function<void(const raise_outcome&)>;

// A mark as it is in the backend. detail is set when it could not be read.
struct mark_reading {
  std::optional<fence::token> mark;
  std::string detail;
  bool leased = false;  // it has an issuer: only seals raise it
  std::string epoch{};  // which was known when it was asked for
};

// Why a mark closes its resource until an operator replaces it.
inline constexpr std::string_view mark_is_no_number = "the mark in Redis is not a canonical integer";
// Whether this detail of a rejection, by the gate or by a script, says so, or that the key is of another type.
[[nodiscard]] inline bool says_mark_is_broken(std::string_view detail) {
  return detail == mark_is_no_number || detail.starts_with("WRONGTYPE");
}
inline constexpr std::string_view too_many_resources = "this gate remembers the marks of no more resources";

class mark_raising {
 public:
  // What raises see that concerns all marks.
  struct signs {
    std::function<void(std::function<void()> then)>
        other_epoch;                  // it is gone, or another one; calls back when that was seen to
    std::function<void()> went_back;  // a mark is lower than it was: others may have gone with it
  };
  // REQUIRES: state and link live longer.
  mark_raising(redis_state& state, control_link& link, signs seen)
      : state_(state), link_(link), signs_(std::move(seen)) {}

  // Raises the mark of the cell's resource to `wanted` unless it is there already or higher. 0 = no step limit.
  void raise(std::shared_ptr<mark_cell> cell, fence::token wanted, std::int64_t max_step, raise_callback done);

  // Puts back what was seen of a mark, as a part of this healing. REQUIRES: a mark was seen.
  void put_back(std::shared_ptr<mark_cell> cell, std::shared_ptr<mark_healing> healing, raise_callback done);

  // Reads the mark; puts right a regression that it sees.
  void read(const std::shared_ptr<mark_cell>& cell, std::function<void(const mark_reading&)> done);

 private:
  struct attempt;

  void begin(const std::shared_ptr<attempt>& a);
  void try_raise(const std::shared_ptr<attempt>& a);
  void on_reply(const std::shared_ptr<attempt>& a, const wire::reply_value* reply);
  void is_set(const std::shared_ptr<attempt>& a);
  void judge(const std::shared_ptr<attempt>& a, std::optional<std::string_view> found);  // nullopt: no mark
  void broken(const attempt& a);
  void note_regression(const attempt& a, std::optional<fence::token> found);

  redis_state& state_;
  control_link& link_;
  const signs signs_;
};

}  // namespace fencegate::backend
