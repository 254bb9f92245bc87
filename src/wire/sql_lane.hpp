// One way of reading SQL text: the state machine of sql_scanner, which runs one or two of them. Follows PostgreSQL's
// scan.l (15 and later) as to where tokens begin and end; text that the server refuses may be read in any way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::wire {

namespace sql_limits {
inline constexpr std::size_t words_kept = 6;        // of each statement, where it begins
inline constexpr std::size_t word_bytes_max = 24;   // longer words are cut
inline constexpr std::size_t statements_kept = 64;  // what comes behind them only sets `more_statements`
inline constexpr std::size_t tags_kept = 4;
inline constexpr std::size_t tag_bytes_max = 8192;
inline constexpr std::size_t delimiter_bytes_max = 256;  // the name in `$name$`
}  // namespace sql_limits

struct sql_findings {
  // The texts behind `fence:` of comments `/*fence:…*/` outside literals, blanks around them cut off; each text once.
  std::vector<std::string> tags;
  bool too_many_tags = false;  // more than tags_kept different ones, or one longer than tag_bytes_max
  // The first words of each statement (identifiers and keywords, upper case, up to the first thing that is neither a
  // word nor a blank nor a comment), e.g. {"PREPARE", "TRANSACTION"}; none for `(SELECT 1)`. Empty statements are left
  // out.
  std::vector<std::vector<std::string>> statements;
  bool more_statements = false;
  // All statements in their order as the way with backslash escapes reads them, where that differs from the other way's and
  // does not end inside a literal or comment. `statements` has those of both, but what both have stands where it stands
  // without escapes.
  std::vector<std::vector<std::string>> other_way;
  // A delimiter `$name$` longer than delimiter_bytes_max sets both flags: what follows it is not read any more.

  // A statement begins with these words, given in upper case.
  [[nodiscard]] bool begins_with(std::string_view first, std::string_view second = {}) const;

  // A statement has this word, given in upper case, among its first.
  [[nodiscard]] bool names(std::string_view word) const;

  void add_tag(std::string_view text);
  void add_statement(const std::vector<std::string>& words);
  // Takes over what is new in `other`.
  void merge(const sql_findings& other);

  friend bool operator==(const sql_findings&, const sql_findings&) = default;
};

// All that the meaning of the bytes to come depends on; equal states read them alike, but for backslashes in '…'. What
// a mode does not use has its default, so that equal means equal.
struct sql_state {
  enum class mode : std::uint8_t {
    between,            // tokens, blanks, operators
    slash,              // `/`, perhaps of a comment
    dash,               // `-`, perhaps of a comment
    line_comment,       // behind `--`
    comment,            // behind `/*`
    comment_slash,      // `/` inside it, perhaps of a comment in the comment
    comment_star,       // `*` inside it, perhaps its end
    letter,             // the first byte of a word, perhaps of E'…' and the like
    word,               // the bytes behind it
    u_ampersand,        // `U&`, perhaps of U&'…' or U&"…"
    number,             // also `$1`
    literal,            // inside '…', of any kind
    literal_backslash,  // the next byte belongs to the literal, whatever it is
    literal_quote,      // `'` inside it: its end, or doubled
    name,               // inside "…"
    dollar,             // `$`, perhaps of $tag$
    delimiter,          // in the first $tag$
    dollar_literal,     // behind it
    dollar_end,         // `$` inside it, perhaps of the last $tag$
    lost,               // a delimiter too long to remember
  };
  enum class literal_kind : std::uint8_t {
    plain,    // '…' and N'…': whether a backslash escapes is what the two ways differ in
    escape,   // E'…'
    unicode,  // U&'…'
    bits,     // B'…' and X'…', in which a quote cannot be doubled
  };

  mode where = mode::between;
  literal_kind kind = literal_kind::plain;
  bool continues = false;   // behind a literal, only blanks and `--` since: after a line end `'` continues it
  bool line_ended = false;  // … and there was one
  char first = 0;           // letter: in lower case
  std::uint8_t fence = 0;   // comment: bytes of `fence:` seen, fence_none or fence_whole
  std::size_t depth = 0;    // of comments
  std::size_t matched = 0;  // dollar_end: bytes of the delimiter
  std::string delimiter;    // delimiter … dollar_end: without its dollars
  std::string tag;          // comment: what stands behind `fence:`
  bool begun = false;       // the statement: something stands in it
  bool beginning = true;    // … and nothing but words
  std::vector<std::string> words;
  std::string last_word;  // letter, word: as far as it is there

  friend bool operator==(const sql_state&, const sql_state&) = default;
};

class sql_lane {
 public:
  explicit sql_lane(bool backslashes) : backslashes_(backslashes) {}

  // Reads and says how many bytes it read: all, but with `until_parting` only up to a backslash in a plain literal.
  std::size_t read(std::string_view bytes, bool until_parting, sql_findings& out);
  // The text is over: what was begun is a statement.
  void finish(sql_findings& out);
  [[nodiscard]] bool unterminated() const;

  [[nodiscard]] const sql_state& state() const { return s_; }
  void continue_from(const sql_state& state) { s_ = state; }

 private:
  using mode = sql_state::mode;
  using literal_kind = sql_state::literal_kind;

  // Each reads some bytes from `at` on in its mode (at least one, or it changes the mode) and returns where it stopped.
  const char* step(const char* at, const char* end, bool until_parting, sql_findings& out);
  const char* between(const char* at, const char* end, sql_findings& out);
  const char* comment(const char* at, const char* end);
  const char* comment_star(const char* at, sql_findings& out);
  const char* comment_slash(const char* at);
  const char* letter(const char* at);
  const char* word(const char* at, const char* end);
  const char* u_ampersand(const char* at);
  const char* literal(const char* at, const char* end, bool until_parting);
  const char* literal_quote(const char* at);
  const char* dollar(const char* at);
  const char* delimiter(const char* at, const char* end, sql_findings& out);
  const char* dollar_end(const char* at);

  void begin_token();
  void no_word();
  void end_word();
  void end_statement(sql_findings& out);
  void open_literal(literal_kind kind);
  void comment_byte(char c);

  bool backslashes_;  // they escape in plain literals
  sql_state s_;
};

}  // namespace fencegate::wire
