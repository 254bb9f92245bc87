#include "lease/redis_mark_listing.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace fencegate::lease {
namespace {

using words = std::vector<std::string>;

constexpr std::size_t looked_at_once = 256;

const std::string& front() {
  static const std::string text = [] {
    const auto key = backend::mark_cell("").key;  // "fencegate:mark:{}"
    return std::string(key.substr(0, key.size() - 1));
  }();
  return text;
}

// Of "mark issuer grant": the issuer. "" where there is no record.
std::string issuer_in(std::string_view record) {
  const auto begin = record.find(' ');
  const auto end = record.rfind(' ');
  return begin == std::string_view::npos || begin == end ? "" : std::string(record.substr(begin + 1, end - begin - 1));
}

}  // namespace

redis_mark_listing::redis_mark_listing(boost::asio::io_context& context, const settings::mark_store& at,
                                       std::chrono::milliseconds patience, look look_at)
    : dialogue_(std::make_shared<backend::redis_dialogue>(context, at.where, at.secured, patience)),
      look_(std::move(look_at)),
      greeting_{backend::first_words(at.login)} {}

void redis_mark_listing::start(const std::optional<std::string>& only,
                               std::function<void(const result<std::vector<listed_mark>>&)> done) {
  done_ = std::move(done);
  if (!only) return scan("0");
  names_.push_back(*only);
  look_at_more();
}

std::vector<words> redis_mark_listing::with_greeting(words last) {
  auto commands = std::exchange(greeting_, {});
  commands.push_back(std::move(last));
  return commands;
}

void redis_mark_listing::scan(const std::string& cursor) {
  dialogue_->ask(with_greeting({"SCAN", cursor, "MATCH", front() + "*", "COUNT", "1000"}),
                 [weak = weak_from_this()](const outcome& came) {
                   if (const auto self = weak.lock()) self->scanned(came);
                 });
}

void redis_mark_listing::scanned(const outcome& came) {
  if (!came.problem.empty()) return end(error{came.problem});
  const auto& answer = came.replies.back();
  if (answer.is_error) return end(backend::why_refused(answer.text, "+scan"));
  if (answer.list.size() != 2) return end(error{"Redis sent what is not an answer"});
  for (const auto& key : answer.list[1].list)
    if (key.text.size() > front().size() + 1 && key.text.starts_with(front()) && key.text.ends_with('}'))
      names_.push_back(key.text.substr(front().size(), key.text.size() - front().size() - 1));
  if (answer.list[0].text != "0") return scan(answer.list[0].text);
  std::sort(names_.begin(), names_.end());
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());  // SCAN may tell one twice
  look_at_more();
}

void redis_mark_listing::look_at_more() {
  if (next_ == names_.size()) return end(found_);
  const auto from = names_.begin() + static_cast<std::ptrdiff_t>(next_);
  const auto count = std::min(looked_at_once, names_.size() - next_);
  next_ += count;
  look_(words(from, from + static_cast<std::ptrdiff_t>(count)),
        [weak = weak_from_this()](const answer<std::vector<backend::looked_mark>>& marks) {
          const auto self = weak.lock();
          if (!self) return;
          if (!marks) return self->end(marks.error());
          self->ask_whose(*marks);
        });
}

void redis_mark_listing::ask_whose(const std::vector<backend::looked_mark>& marks) {
  words command{"MGET"};
  for (const auto& one : marks) command.push_back(backend::mark_cell(one.resource).grant_key());
  dialogue_->ask(with_greeting(std::move(command)), [weak = weak_from_this(), marks](const outcome& came) {
    const auto self = weak.lock();
    if (!self) return;
    if (!came.problem.empty()) return self->end(error{came.problem});
    const auto& records = came.replies.back();
    if (records.is_error) return self->end(backend::why_refused(records.text, "+mget"));
    if (records.list.size() != marks.size()) return self->end(error{"Redis sent what is not an answer"});
    for (std::size_t i = 0; i < marks.size(); ++i)
      if (marks[i].mark)  // else it is gone by now
        self->found_.push_back({marks[i].resource, *marks[i].mark, {}, issuer_in(records.list[i].text)});
    self->look_at_more();
  });
}

void redis_mark_listing::end(const result<std::vector<listed_mark>>& with) {
  dialogue_->close();
  if (const auto done = std::exchange(done_, nullptr)) done(with);
}

}  // namespace fencegate::lease
