// What a Redis connection is bound to: its resources and tokens, and what is known about each; and the judgment of a
// command against them. Pure: no I/O.
#pragma once

#include "backend/command_table.hpp"
#include "backend/mark_memory.hpp"
#include "fence/gate_settings.hpp"
#include "fence/policy.hpp"
#include "fence/rejection.hpp"
#include "fence/tag.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::backend {
struct mark_reading;
struct raise_outcome;
}  // namespace fencegate::backend

namespace fencegate::gate {

enum class claim_status : std::uint8_t {
  unraised,  // the mark was not raised yet, or that could not be done
  held,      // the mark was equal to the token when last looked at (equal_token: reject: it was lower)
  stale,     // the mark is higher; final, unless an operator lowers it
  used,      // equal_token: reject, and the mark has reached the token: no more writes
  jump,      // too far ahead of the mark when it was presented
};

struct bound_claim {
  std::shared_ptr<backend::mark_cell> cell;
  fence::token presented;
  std::string digits;  // of `presented`
  fence::policy rules;
  bool enforced = false;  // by the rules of some key that needs it; `rules` are those of the first that can name it
  claim_status status = claim_status::unraised;
  std::optional<fence::token> mark;  // stale, jump: what it was compared with
  std::string detail;                // unraised: why
  int attempted = 0;                 // the round of raising in which it was tried last
};

using claim_mask = std::uint32_t;  // bit i: claim i; limits::tag_resources_max is 32

class claims {
 public:
  explicit claims(const settings::redis_gate& gate) : gate_(gate) {}

  // A tag was read from a client name: it replaces everything. One that cannot be used binds, too: each write is
  // rejected, and told why.
  void bind(const std::vector<fence::claim>& tag, backend::mark_memory& marks);
  void bind_unusable(fence::reason why, std::string detail);
  // These could not be bound. No write passes until set() has bound each of them. Where there are none, nobody can tell them,
  // and any set() will do. With "" among them only clear() helps.
  void add_unusable(fence::reason why, std::string detail, std::vector<std::string> resources);
  // FENCE SET: all of these may be added, or replaced.
  [[nodiscard]] bool has_room(const std::vector<fence::claim>& more) const;
  // REQUIRES: has_room() for it.
  void set(const fence::claim& one, backend::mark_memory& marks);
  void clear();

  // Changes whenever the items do (not their status).
  [[nodiscard]] std::uint64_t generation() const { return generation_; }

  [[nodiscard]] bool bound() const { return unusable_.has_value() || !items_.empty(); }
  [[nodiscard]] std::vector<bound_claim>& items() { return items_; }
  [[nodiscard]] const std::vector<bound_claim>& items() const { return items_; }
  [[nodiscard]] claim_mask held() const;
  // Of these, some mark was not raised yet.
  [[nodiscard]] bool are_unraised(claim_mask these) const;
  // What a link is armed for: of the claims that some key's rules enforce, those under which a command may be sent: `held`;
  // with reads: fence also `used`, which reads go on under.
  [[nodiscard]] claim_mask armable() const;
  // Held claims that nothing enforces: their marks are looked at, and no proof of anything.
  [[nodiscard]] claim_mask looked_at() const;
  // Claims that some key's rules enforce, and those that some only watch.
  [[nodiscard]] claim_mask enforced() const;
  [[nodiscard]] claim_mask monitored() const;
  // A claim whose token is below what this process has seen needs no backend to be stale.
  void learn_from_memory();
  // Their marks have risen to them by somebody else's doing.
  void learn_that_they_were_raised();
  // The mark was read, and is not back where it was: an operator has lowered it. What was held has to be raised anew.
  void on_lowered(const backend::mark_cell& cell, std::optional<fence::token> mark);
  // What the control link has raised, or has read where a token is used once: the first batch raises its mark.
  void on_raised(const backend::mark_cell& cell, const backend::raise_outcome& outcome);
  void on_mark_for_one_use(const backend::mark_cell& cell, const backend::mark_reading& reading);
  // Why the first claim of the mask may not be used; nullopt when all may.
  [[nodiscard]] std::optional<fence::rejection> refusal(claim_mask mask) const;
  // As refusal(), for a read: it uses nothing up, so a used token is as good as any other that equals the mark.
  [[nodiscard]] std::optional<fence::rejection> refusal_to_read(claim_mask mask) const;
  [[nodiscard]] std::optional<fence::rejection> refusal_of(const bound_claim& one) const;
  // That the marks could not be proven, by the first claim of the mask.
  [[nodiscard]] fence::rejection unavailable(claim_mask mask, std::string detail) const;

  struct verdict {
    claim_mask required = 0;                   // fenced by these; 0 and no rejection: passes unfenced
    claim_mask monitored = 0;                  // would be fenced by these, whose rules are in monitor mode
    std::optional<fence::rejection> rejected;  // not to be sent
    std::optional<fence::rejection> would_be;  // monitor mode: what would have been answered

    [[nodiscard]] bool watched() const { return monitored != 0 || would_be.has_value(); }
  };
  // Judges a command that writes (or a read where reads are fenced). REQUIRES: keys from find_keys.
  [[nodiscard]] verdict judge(const std::vector<std::string_view>& arguments,
                              const std::vector<std::size_t>& keys) const;
  // As judge(), for a read: policy reads: fence.
  [[nodiscard]] verdict judge_read(const std::vector<std::string_view>& arguments,
                                   const std::vector<std::size_t>& keys) const;
  // Of claims that were just bound to these resources, or of a tag that cannot be used.
  [[nodiscard]] verdict judge_binding(const std::vector<fence::claim>& asked) const;
  [[nodiscard]] bool reads_may_be_fenced() const { return reads_fenced_ && bound(); }
  void note_reads_fenced(bool yes) { reads_fenced_ = yes; }
  [[nodiscard]] fence::policy policy_of(std::string_view resource) const;

 private:
  template <class Predicate>
  [[nodiscard]] claim_mask where(Predicate is) const;
  void need_resource(std::string_view resource, const fence::policy& rules, bool read, verdict& out) const;
  // `any_key`: it may touch keys that nobody has told; what some key's rules enforce is enforced.
  void need_tag(bool read, verdict& out, bool any_key = false) const;
  void reject(const fence::policy& rules, fence::rejection why, verdict& out) const;
  [[nodiscard]] bound_claim make(const fence::claim& one, backend::mark_memory& marks) const;
  [[nodiscard]] verdict judge_all(const std::vector<std::string_view>& arguments, const std::vector<std::size_t>& keys,
                                  bool read) const;

  const settings::redis_gate& gate_;
  std::vector<bound_claim> items_;
  std::optional<fence::rejection> unusable_;
  std::vector<std::string> unbound_;  // resources that lift unusable_ when they are bound
  std::uint64_t generation_ = 1;
  bool reads_fenced_ = false;
};

}  // namespace fencegate::gate
