// Commands behind the marks: run, asked, raised with.
#include "backend/redis_control.hpp"
#include "backend/redis_replies.hpp"
#include "backend/redis_scripts.hpp"
#include "fence/compare.hpp"
#include "wire/resp_request.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace fencegate::backend {

using detail::is_error;

namespace {

// In place of an answer of the server's.
void refuse_too_many(const reply_callback& done) {
  wire::reply_value refused;
  refused.type = '-';
  refused.text = too_many_resources;
  done(&refused);
}

}  // namespace

std::optional<redis_state::snapshot> redis_control::proven() const {
  auto known = state_->look();
  if (!keeper_.proves() || known.epoch.empty()) return std::nullopt;
  return known;
}

redis_control::sent redis_control::run_checked(const std::vector<fence::claim>& claims,
                                               const std::vector<std::string>& command, time_point deadline,
                                               reply_callback done) {
  const auto known = proven();
  if (!known) return std::nullopt;
  std::vector<std::string> keys, values;
  for (const auto& one : claims) {
    const auto cell = state_->marks.cell(one.resource);
    if (!cell->kept) return refuse_too_many(done), known->lowerings;
    keys.push_back(cell->key);
    values.push_back(one.presented.to_string());
  }
  keys.emplace_back(epoch_key);
  values.push_back(known->epoch);
  const std::string count = std::to_string(keys.size());
  std::vector<std::string_view> words{"EVAL", checked_command, "0", "untyped", "0", count};
  words.insert(words.end(), keys.begin(), keys.end());
  words.insert(words.end(), values.begin(), values.end());
  words.insert(words.end(), command.begin(), command.end());
  client_->send(words, std::move(done), deadline);
  return known->lowerings;
}

redis_control::sent redis_control::run_raising(const presented_claims& wanted, const std::vector<std::string>& command,
                                               time_point deadline, reply_callback done) {
  const auto known = proven();
  if (!known) return std::nullopt;
  std::vector<std::string> keys, grants, tokens, least, seen;
  for (const auto& [resource, presented] : wanted.claims) {
    const auto cell = state_->marks.cell(resource);
    if (!cell->kept) return refuse_too_many(done), known->lowerings;
    keys.push_back(cell->key);
    grants.push_back(cell->grant_key());
    tokens.push_back(presented.to_string());
    least.push_back(std::to_string(fence::lowest_mark_for(presented, wanted.max_step)));
    seen.push_back(cell->seen() ? cell->seen()->to_string() : "");
  }
  keys.insert(keys.end(), grants.begin(), grants.end());
  keys.emplace_back(epoch_key);
  const std::string count = std::to_string(keys.size());
  std::vector<std::string_view> words{"EVAL", raise_marks, count};
  words.insert(words.end(), keys.begin(), keys.end());
  words.insert(words.end(), {known->epoch, wanted.spends ? "spend" : "raise"});
  for (const auto* part : std::initializer_list<const std::vector<std::string>*>{&tokens, &least, &seen, &command})
    words.insert(words.end(), part->begin(), part->end());
  client_->send(words, std::move(done), deadline);
  return known->lowerings;
}

redis_control::sent redis_control::ask_marks(const std::vector<fence::claim>& claims, time_point deadline,
                                             std::function<void(std::optional<bool>)> done) {
  const auto known = proven();
  if (!known) return std::nullopt;
  std::vector<std::shared_ptr<mark_cell>> cells;
  cells.reserve(claims.size());
  for (const auto& one : claims) cells.push_back(state_->marks.cell(one.resource));
  const auto kept = [](const auto& cell) { return cell->kept; };
  const auto all = std::make_shared<bool>(std::all_of(cells.begin(), cells.end(), kept));
  for (std::size_t i = 0; i < claims.size(); ++i)
    client_->send(
        {"GETEX", cells[i]->key, "PERSIST"},
        [all, token = claims[i].presented.to_string()](const wire::reply_value* reply) {
          *all = *all && detail::is_value(reply, token);
        },
        deadline);
  auto on_epoch = [all, epoch = known->epoch, done = std::move(done)](const wire::reply_value* reply) {
    if (reply == nullptr) return done(std::nullopt);
    done(*all && detail::is_value(reply, epoch));
  };
  client_->send({"GET", epoch_key}, std::move(on_epoch), deadline);
  return known->lowerings;
}

namespace {

// Redis keeps the passwords of MIGRATE out of SLOWLOG and MONITOR, but not those of a question about it.
void hide_passwords(std::vector<std::string_view>& migrate) {
  constexpr std::size_t options = 6;  // MIGRATE host port key database timeout
  for (std::size_t i = options; i < migrate.size() && !wire::iequals(migrate[i], "KEYS"); ++i) {
    const std::size_t words = wire::iequals(migrate[i], "AUTH") ? 1 : wire::iequals(migrate[i], "AUTH2") ? 2 : 0;
    for (std::size_t word = 0; word < words && i + 1 < migrate.size(); ++word) migrate[++i] = "(redacted)";
  }
}

}  // namespace

void redis_control::keys_of(const std::vector<std::string>& arguments,
                            std::function<void(std::optional<std::vector<std::string>>)> done) {
  std::vector<std::string_view> words(arguments.begin(), arguments.end());
  if (!words.empty() && wire::iequals(words[0], "MIGRATE")) hide_passwords(words);
  std::vector<std::string_view> command{"COMMAND", "GETKEYS"};
  command.insert(command.end(), words.begin(), words.end());
  client_->send(command, [done = std::move(done)](const wire::reply_value* reply) {
    if (is_error(reply) || reply->type != '*') {
      // "The command has no key arguments" is an answer, too.
      if (reply != nullptr && reply->text.find("no key arguments") != std::string_view::npos)
        return done(std::vector<std::string>{});
      return done(std::nullopt);
    }
    std::vector<std::string> keys;
    for (const auto& one : reply->elements) keys.emplace_back(one.text);
    done(std::move(keys));
  });
}

}  // namespace fencegate::backend
