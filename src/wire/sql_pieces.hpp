// Where the statements of a message lie. A convenience: each goes to the server as a message of its own, which takes one
// statement only; so what is cut in the wrong place is refused there, and runs nowhere.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::wire {

struct sql_piece {
  std::string_view text;
  std::size_t at = 0;  // its first byte in the message
};

// The statements one after the other, without the semicolons between them and without those that hold nothing; one that is
// empty when all do. Follows PostgreSQL's scan.l and psqlscan.l: literals, quoted names, dollar quotes, comments, parentheses
// (CREATE RULE) and BEGIN ATOMIC … END.
class sql_pieces {
 public:
  // `backslashes`: they escape in '…' (standard_conforming_strings=off). The text has to outlive this.
  sql_pieces(std::string_view sql, bool backslashes) : sql_(sql), backslashes_(backslashes) {}

  // nullopt: there are no more.
  [[nodiscard]] std::optional<sql_piece> next();

 private:
  [[nodiscard]] bool step();
  template <class Belongs>
  void pass_while(Belongs belongs) {
    while (at_ < sql_.size() && belongs(sql_[at_])) ++at_;
  }
  void quoted(char quote, bool backslashes);
  [[nodiscard]] bool goes_on();
  void comment();
  void dollar();
  void word();
  [[nodiscard]] bool is_routine() const;
  [[nodiscard]] sql_piece end_piece();

  static constexpr std::size_t words_kept = 4;

  std::string_view sql_;
  bool backslashes_;
  std::size_t at_ = 0, begin_ = 0;  // what is read next; where the statement began
  std::size_t parentheses_ = 0, bodies_ = 0;
  std::vector<std::string> words_;  // the statement's first ones
  bool any_ = false;                // was there
};

// All of them.
[[nodiscard]] std::vector<sql_piece> split_sql(std::string_view sql, bool backslashes);

}  // namespace fencegate::wire
