#include "wire/sql_lane.hpp"

#include "wire/sql_bytes.hpp"

#include <algorithm>
#include <iterator>

namespace fencegate::wire {

namespace {

using namespace sql_limits;

// Whether a backslash escapes matters only where a quote follows it; behind any other byte both ways agree again.
bool may_part(const char* at, const char* end) { return *at == '\\' && (end - at == 1 || at[1] == '\''); }

}  // namespace

std::size_t sql_lane::read(std::string_view bytes, bool until_parting, sql_findings& out) {
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  while (at != end) {
    if (until_parting && s_.where == mode::literal && s_.kind == literal_kind::plain && may_part(at, end)) {
      break;
    }
    at = step(at, end, until_parting, out);
  }
  return static_cast<std::size_t>(at - bytes.data());
}

const char* sql_lane::step(const char* at, const char* end, bool until_parting, sql_findings& out) {
  switch (s_.where) {
    case mode::between: return between(at, end, out);
    case mode::slash:
      if (*at == '*') {
        s_.where = mode::comment;
        s_.depth = 1;
        return at + 1;
      }
      no_word();
      return at;
    case mode::dash:
      if (*at == '-') {
        s_.where = mode::line_comment;
        return at + 1;
      }
      no_word();
      return at;
    case mode::line_comment:
      at = skip_to(at, end, '\n', '\r');
      if (at != end) {
        s_.where = mode::between;
      }
      return at;
    case mode::comment: return comment(at, end);
    case mode::comment_slash: return comment_slash(at);
    case mode::comment_star: return comment_star(at, out);
    case mode::letter: return letter(at);
    case mode::word: return word(at, end);
    case mode::u_ampersand: return u_ampersand(at);
    case mode::number:
      while (at != end && in_number(*at)) {
        ++at;
      }
      if (at != end) {
        s_.where = mode::between;
      }
      return at;
    case mode::literal: return literal(at, end, until_parting);
    case mode::literal_backslash: s_.where = mode::literal; return at + 1;
    case mode::literal_quote: return literal_quote(at);
    case mode::name:
      // A doubled quote ends the name and begins another: to us that is the same.
      at = skip_to(at, end, '"');
      if (at != end) {
        s_.where = mode::between;
        ++at;
      }
      return at;
    case mode::dollar: return dollar(at);
    case mode::delimiter: return delimiter(at, end, out);
    case mode::dollar_literal:
      at = skip_to(at, end, '$');
      if (at != end) {
        s_.where = mode::dollar_end;
        ++at;
      }
      return at;
    case mode::dollar_end: return dollar_end(at);
    case mode::lost: return end;
  }
  return end;
}

const char* sql_lane::between(const char* at, const char* end, sql_findings& out) {
  for (; at != end; ++at) {
    switch (class_of(*at)) {
      case byte_class::blank: continue;
      case byte_class::line_end: s_.line_ended = s_.continues; continue;
      case byte_class::other:
      case byte_class::dot: no_word(); continue;
      case byte_class::semicolon: end_statement(out); continue;
      case byte_class::word:
        begin_token();
        if (at + 1 != end && in_word(at[1])) {
          s_.where = mode::word;
          return word(at, end);
        }
        s_.where = mode::letter;
        s_.first = upper(*at);
        if (s_.beginning) {
          s_.last_word = s_.first;
        }
        return at + 1;
      case byte_class::digit:
        no_word();
        while (at + 1 != end && in_number(at[1])) {
          ++at;
        }
        s_.where = at + 1 == end ? mode::number : mode::between;
        continue;
      case byte_class::quote: open_literal(s_.line_ended ? s_.kind : literal_kind::plain); return at + 1;
      case byte_class::double_quote:
        no_word();
        s_.where = mode::name;
        return at + 1;
      case byte_class::dollar:
        no_word();
        s_.where = mode::dollar;
        return at + 1;
      case byte_class::slash:
        // Not yet a token of the statement, but no literal goes on behind it, be it a comment or not.
        s_.continues = s_.line_ended = false;
        s_.kind = literal_kind::plain;
        s_.where = mode::slash;
        return at + 1;
      case byte_class::dash: s_.where = mode::dash; return at + 1;
    }
  }
  return at;
}

const char* sql_lane::letter(const char* at) {
  const char first = s_.first;
  if (*at == '\'' && (first == 'E' || first == 'B' || first == 'X' || first == 'N')) {
    open_literal(first == 'E' ? literal_kind::escape : first == 'N' ? literal_kind::plain : literal_kind::bits);
    return at + 1;
  }
  if (*at == '&' && first == 'U') {
    s_.where = mode::u_ampersand;
    return at + 1;
  }
  s_.where = mode::word;
  s_.first = 0;
  return at;
}

const char* sql_lane::word(const char* at, const char* end) {
  const char* const begin = at;
  while (at != end && in_word(*at)) {
    ++at;
  }
  if (s_.beginning) {
    const std::size_t room = word_bytes_max - s_.last_word.size();
    const std::string_view more(begin, std::min(room, static_cast<std::size_t>(at - begin)));
    std::transform(more.begin(), more.end(), std::back_inserter(s_.last_word), upper);
  }
  if (at != end) {
    end_word();
  }
  return at;
}

const char* sql_lane::u_ampersand(const char* at) {
  if (*at == '\'') {
    open_literal(literal_kind::unicode);
    return at + 1;
  }
  if (*at == '"') {
    no_word();
    s_.where = mode::name;
    return at + 1;
  }
  end_word();
  no_word();
  return at;
}

const char* sql_lane::literal(const char* at, const char* end, bool until_parting) {
  const bool plain = s_.kind == literal_kind::plain;
  const bool escapes = s_.kind == literal_kind::escape || (plain && backslashes_);
  if (escapes) {
    at = skip_to(at, end, '\'', '\\');
  } else if (plain && until_parting) {
    at = skip_to(at, end, '\'', '\\');
    while (at != end && *at == '\\' && !may_part(at, end)) {
      at = skip_to(at + 2, end, '\'', '\\');
    }
  } else {
    at = skip_to(at, end, '\'');
  }
  if (at == end) {
    return at;
  }
  if (*at == '\'') {
    s_.where = mode::literal_quote;
    return at + 1;
  }
  if (!escapes) {
    return at;  // the parting, at which read() stops
  }
  s_.where = mode::literal_backslash;
  return at + 1;
}

const char* sql_lane::literal_quote(const char* at) {
  if (*at == '\'' && s_.kind != literal_kind::bits) {
    s_.where = mode::literal;
    return at + 1;
  }
  s_.continues = true;
  s_.where = mode::between;
  return at;
}

// A `$` that begins neither a parameter nor a delimiter is a syntax error to the server.
const char* sql_lane::dollar(const char* at) {
  switch (class_of(*at)) {
    case byte_class::digit: s_.where = mode::number; return at + 1;
    case byte_class::dollar: s_.where = mode::dollar_literal; return at + 1;
    case byte_class::word: s_.where = mode::delimiter; return at;
    default: s_.where = mode::between; return at;
  }
}

const char* sql_lane::delimiter(const char* at, const char* end, sql_findings& out) {
  for (; at != end && in_delimiter(*at); ++at) {
    if (s_.delimiter.size() == delimiter_bytes_max) {
      out.too_many_tags = out.more_statements = true;
      s_ = {};
      s_.where = mode::lost;
      return end;
    }
    s_.delimiter += *at;
  }
  if (at == end) {
    return at;
  }
  if (*at == '$') {
    s_.where = mode::dollar_literal;
    return at + 1;
  }
  s_.delimiter.clear();
  s_.where = mode::between;
  return at;
}

const char* sql_lane::dollar_end(const char* at) {
  if (s_.matched < s_.delimiter.size() && *at == s_.delimiter[s_.matched]) {
    ++s_.matched;
    return at + 1;
  }
  const bool whole = s_.matched == s_.delimiter.size();
  s_.matched = 0;
  if (*at != '$') {
    s_.where = mode::dollar_literal;
    return at;
  }
  if (whole) {
    s_.delimiter.clear();
    s_.where = mode::between;
  }
  return at + 1;  // not whole: this dollar may begin the last delimiter itself
}

void sql_lane::begin_token() {
  s_.begun = true;
  s_.continues = s_.line_ended = false;
  s_.kind = literal_kind::plain;
}

// A token that is no word, or the end of one.
void sql_lane::no_word() {
  if (s_.beginning || s_.continues) {
    begin_token();
    s_.beginning = false;
    s_.last_word.clear();
  }
  s_.first = 0;
  s_.where = mode::between;
}

void sql_lane::end_word() {
  if (s_.beginning) {
    s_.words.push_back(s_.last_word);
    s_.beginning = s_.words.size() < words_kept;
  }
  s_.last_word.clear();
  s_.first = 0;
  s_.where = mode::between;
}

void sql_lane::end_statement(sql_findings& out) {
  if (s_.begun) {
    out.add_statement(s_.words);
  }
  begin_token();
  s_.begun = false;
  s_.beginning = true;
  s_.words.clear();
}

void sql_lane::open_literal(literal_kind kind) {
  no_word();
  s_.kind = kind;
  s_.where = mode::literal;
}

void sql_lane::finish(sql_findings& out) {
  switch (s_.where) {
    case mode::letter:
    case mode::word:
    case mode::u_ampersand: end_word(); break;
    case mode::slash:
    case mode::dash: no_word(); break;
    default: break;
  }
  end_statement(out);
}

bool sql_lane::unterminated() const {
  switch (s_.where) {
    case mode::comment:
    case mode::comment_slash:
    case mode::comment_star:
    case mode::literal:
    case mode::literal_backslash:
    case mode::name:
    case mode::dollar_literal:
    case mode::dollar_end: return true;
    default: return false;
  }
}

}  // namespace fencegate::wire
