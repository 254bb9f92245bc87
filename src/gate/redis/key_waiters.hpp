// Who waits for something to come under which keys, and when it is worth looking again. Pure; redis_key_watch asks and
// hears.
//
// Rule kept: a hint, no more. Whoever is woken looks for itself, behind its own check; who is not woken looks now and then.
//
// Of those that wait for a key one at a time is woken, in the order in which they came, as Redis serves them: it takes what
// is there, or finds nothing, and either way the next one follows while there is reason to.
#pragma once

#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::gate {

class key_waiter {
 public:
  // Something may have come.
  virtual void on_key() = 0;

 protected:
  ~key_waiter() = default;
};

class key_waiters {
 public:
  struct place {
    std::string key;
    int database = 0;
    auto operator<=>(const place&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 is wrong
  };

  // It has found nothing under any of these, and waits. True: all are watched, and it is woken when that may have changed.
  [[nodiscard]] bool wait(key_waiter& who, int database, const std::vector<std::string>& keys);
  // It has found something, or has gone.
  void leave(key_waiter& who);
  [[nodiscard]] bool empty() const { return places_.empty(); }

  // The server's words. `name`: of a key that was touched, in whichever database.
  void on_touched(std::string_view name);
  void on_all_touched();
  // The answer to the oldest question. False: there is nothing, by a look behind which the key is watched.
  void on_answer(bool exists);
  void on_refusal();
  // The server can be asked.
  void on_up();
  // It cannot: questions are void, nothing is watched any more, and all look for themselves. Who came first still comes first.
  void on_lost();

  // What is to be asked, in this order.
  [[nodiscard]] std::vector<place> take_questions() { return std::exchange(questions_, {}); }
  // Who is to be woken; nullptr: nobody.
  [[nodiscard]] key_waiter* next_woken();

 private:
  enum class state : std::uint8_t { unasked, asked, watched, refused };
  struct waiting {
    key_waiter* who;
    std::uint64_t looked = 0;  // at which version it was woken last
  };
  struct watch {
    state is = state::unasked;
    bool exists = false;
    std::uint64_t version = 1;  // of what is there: moves with each answer
    key_waiter* awake = nullptr;
    std::list<waiting> order;
  };

  void ask(const place& at, watch& one);
  void touch(const place& at, watch& one);
  void wake_next(watch& one);
  void settle(bool refused, bool exists);

  bool up_ = false;
  std::map<place, watch> places_;
  std::map<key_waiter*, std::vector<place>> by_waiter_;
  std::vector<place> questions_;
  std::list<place> asked_;  // were sent, or are to be
  std::list<key_waiter*> woken_;
};

}  // namespace fencegate::gate
