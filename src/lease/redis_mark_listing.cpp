#include "lease/redis_mark_listing.hpp"

#include "fence/printable.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace fencegate::lease {
namespace {

using words = std::vector<std::string>;

constexpr std::size_t read_at_once = 256;
constexpr std::size_t shown_bytes_max = 40;  // of a mark that is no number

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
                                       std::chrono::milliseconds patience)
    : dialogue_(std::make_shared<backend::redis_dialogue>(context, at.where, at.secured, patience)),
      greeting_{backend::first_words(at.login)} {}

void redis_mark_listing::start(const std::optional<std::string>& only,
                               std::function<void(const result<std::vector<listed_mark>>&)> done) {
  done_ = std::move(done);
  if (!only) return scan("0");
  names_.push_back(*only);
  read_more();
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
    if (key.text.size() > front().size() + 1 && key.text.starts_with(front()) && key.text.ends_with('}') &&
        fence::is_resource_name(
            std::string_view(key.text).substr(front().size(), key.text.size() - front().size() - 1)))
      names_.push_back(key.text.substr(front().size(), key.text.size() - front().size() - 1));
  if (answer.list[0].text != "0") return scan(answer.list[0].text);
  std::sort(names_.begin(), names_.end());
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());  // SCAN may tell one twice
  read_more();
}

void redis_mark_listing::read_more() {
  if (next_ == names_.size()) return end(found_);
  const auto from = names_.begin() + static_cast<std::ptrdiff_t>(next_);
  const auto count = std::min(read_at_once, names_.size() - next_);
  next_ += count;
  const words names(from, from + static_cast<std::ptrdiff_t>(count));
  words command{"MGET"};
  for (const auto& name : names) command.push_back(backend::mark_cell(name).key);
  for (const auto& name : names) command.push_back(backend::mark_cell(name).grant_key());
  dialogue_->ask(with_greeting(std::move(command)), [weak = weak_from_this(), names](const outcome& came) {
    if (const auto self = weak.lock()) self->read(names, came);
  });
}

void redis_mark_listing::read(const words& names, const outcome& came) {
  if (!came.problem.empty()) return end(error{came.problem});
  const auto& texts = came.replies.back();
  if (texts.is_error) return end(backend::why_refused(texts.text, "+mget"));
  if (texts.list.size() != 2 * names.size()) return end(error{"Redis sent what is not an answer"});
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto& text = texts.list[i].text;
    if (text.empty()) continue;  // it is gone by now
    const auto issuer = issuer_in(texts.list[names.size() + i].text);
    if (const auto mark = fence::token::parse(text))
      found_.push_back({names[i], *mark, {}, issuer});
    else
      found_.push_back({names[i], {}, {}, issuer, "no number: " + fence::printable(text, shown_bytes_max)});
  }
  read_more();
}

void redis_mark_listing::end(const result<std::vector<listed_mark>>& with) {
  dialogue_->close();
  if (const auto done = std::exchange(done_, nullptr)) done(with);
}

}  // namespace fencegate::lease
