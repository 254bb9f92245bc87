#include "wire/sql_scanner.hpp"

#include <algorithm>

namespace fencegate::wire {

namespace {

// How far two lanes that parted read before they are compared: soon at first, since behind `\` at the end of
// a piece they often agree again at the second byte; seldom later.
constexpr std::size_t stretch_bytes_min = 2;
constexpr std::size_t stretch_bytes_max = 4096;

template <class T>
bool contains(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

bool sql_findings::begins_with(std::string_view first, std::string_view second) const {
  const auto matches = [&](const std::vector<std::string>& words) {
    return !words.empty() && words[0] == first && (second.empty() || (words.size() > 1 && words[1] == second));
  };
  return std::any_of(statements.begin(), statements.end(), matches);
}

bool sql_findings::names(std::string_view word) const {
  return std::any_of(statements.begin(), statements.end(), [&](const std::vector<std::string>& words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  });
}

void sql_findings::add_tag(std::string_view text) {
  if (text.size() > sql_limits::tag_bytes_max) {
    too_many_tags = true;
  } else if (std::find(tags.begin(), tags.end(), text) != tags.end()) {
    return;
  } else if (tags.size() == sql_limits::tags_kept) {
    too_many_tags = true;
  } else {
    tags.emplace_back(text);
  }
}

void sql_findings::add_statement(const std::vector<std::string>& words) {
  if (statements.size() == sql_limits::statements_kept) {
    more_statements = true;
  } else {
    statements.push_back(words);
  }
}

void sql_findings::merge(const sql_findings& other) {
  too_many_tags = too_many_tags || other.too_many_tags;
  for (const std::string& tag : other.tags) {
    add_tag(tag);
  }
  more_statements = more_statements || other.more_statements;
  std::vector<std::vector<std::string>> more;
  for (const auto& words : other.statements) {
    if (!contains(statements, words) && !contains(more, words)) {
      more.push_back(words);
    }
  }
  statements.insert(statements.end(), more.begin(), more.end());
}

void sql_scanner::feed(std::string_view bytes) {
  if (over_) {
    return;
  }
  const std::size_t nul = bytes.find('\0');
  over_ = nul != std::string_view::npos;
  bytes = bytes.substr(0, nul);
  while (!bytes.empty()) {
    if (!parted_) {
      bytes.remove_prefix(plain_.read(bytes, true, plain_found_));
      if (!bytes.empty()) {
        part();
      }
      continue;
    }
    const std::string_view stretch = bytes.substr(0, stretch_left_);
    plain_.read(stretch, false, plain_found_);
    escaped_.read(stretch, false, escaped_found_);
    bytes.remove_prefix(stretch.size());
    stretch_left_ -= stretch.size();
    if (stretch_left_ == 0) {
      compare();
    }
  }
}

void sql_scanner::share_statements(const sql_findings& from, sql_findings& to) const {
  std::for_each(from.statements.begin() + static_cast<std::ptrdiff_t>(joined_at_), from.statements.end(),
                [&to](const auto& words) { to.add_statement(words); });
}

void sql_scanner::part() {
  escaped_.continue_from(plain_.state());
  share_statements(plain_found_, escaped_found_);
  parted_ = ever_parted_ = true;
  stretch_ = stretch_left_ = stretch_bytes_min;
}

// Where lanes are compared depends on the text alone and not on how it was cut into pieces; so does what is found.
void sql_scanner::compare() {
  parted_ = plain_.state() != escaped_.state();
  if (!parted_) joined_at_ = plain_found_.statements.size();
  stretch_ = stretch_left_ = std::min(2 * stretch_, stretch_bytes_max);
}

sql_findings sql_scanner::found() const {
  sql_findings out = plain_found_;
  sql_lane(plain_).finish(out);
  if (!ever_parted_) {
    return out;
  }
  sql_findings other = escaped_found_;
  if (parted_) {
    sql_lane(escaped_).finish(other);
  } else {
    share_statements(out, other);
  }
  if (other.statements != out.statements && !(parted_ && escaped_.unterminated())) {
    out.other_way = other.statements;
  }
  out.merge(other);
  return out;
}

bool sql_scanner::unterminated() const { return plain_.unterminated() && (!parted_ || escaped_.unterminated()); }

void sql_scanner::reset() { *this = {}; }

sql_findings scan_sql(std::string_view sql) {
  sql_scanner scanner;
  scanner.feed(sql);
  return scanner.found();
}

std::size_t mentions(std::string_view text, std::string_view what) {
  const auto same = [](char a, char b) { return (a >= 'a' && a <= 'z' ? a - 'a' + 'A' : a) == b; };
  std::size_t times = 0;
  for (auto at = text.begin(); (at = std::search(at, text.end(), what.begin(), what.end(), same)) != text.end(); ++at)
    ++times;
  return times;
}

}  // namespace fencegate::wire
