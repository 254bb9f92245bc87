// Leases, and seals: marks that rise with a lease's grant.
#include "backend/redis_control.hpp"
#include "backend/redis_replies.hpp"
#include "backend/redis_scripts.hpp"
#include "base/random_id.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

namespace fencegate::backend {

using detail::is_error;
using detail::words_of;

redis_control::sent redis_control::run_sealing(const std::vector<fence::claim>& claims, const lease_grant& grant,
                                               bool though_full, time_point deadline, reply_callback done) {
  const auto known = proven();
  if (!known) return std::nullopt;
  std::vector<std::string> keys, grants, tokens, seen;
  for (const auto& [resource, presented] : claims) {
    const auto cell = state_->marks.cell(resource);
    if (!cell->kept) return std::nullopt;
    keys.push_back(cell->key);
    grants.push_back(cell->grant_key());
    tokens.push_back(presented.to_string());
    seen.push_back(cell->seen() ? cell->seen()->to_string() : "");
  }
  const std::string count = std::to_string(2 * keys.size() + 1);
  static const std::string when_full = std::string(allow_oom) + seal_marks;
  std::vector<std::string_view> words{"EVAL", though_full ? when_full : seal_marks, count};
  words.insert(words.end(), keys.begin(), keys.end());
  words.insert(words.end(), grants.begin(), grants.end());
  words.insert(words.end(), {epoch_key, known->epoch, grant.issuer, grant.id});
  words.insert(words.end(), tokens.begin(), tokens.end());
  words.insert(words.end(), seen.begin(), seen.end());
  client_->send(words, std::move(done), deadline);
  return known->lowerings;
}

bool redis_control::run_leasing(std::string_view script, const std::vector<std::string>& keys,
                                const std::vector<std::string>& arguments, time_point deadline, reply_callback done) {
  const auto known = proven();
  if (!known) return false;
  const std::string count = std::to_string(1 + keys.size());
  std::vector<std::string_view> words{"EVAL", script, count, epoch_key};
  words.insert(words.end(), keys.begin(), keys.end());
  words.emplace_back(known->epoch);
  words.insert(words.end(), arguments.begin(), arguments.end());
  client_->send(words, std::move(done), deadline);
  return true;
}

void redis_control::identify(time_point deadline, std::function<void(const result<std::string>&)> done) {
  if (!keeper_.proves()) return done(error{problem()});
  const std::string fresh = random_id();
  client_->send(
      {"EVAL", name_store, "2", store_key, epoch_key, fresh, state_->look().epoch},
      [done = std::move(done)](const wire::reply_value* reply) {
        if (is_error(reply) || reply->type != '$' || reply->null) return done(error{words_of(reply)});
        const auto is_hexadecimal = [](unsigned char c) { return std::isxdigit(c) != 0; };
        if (reply->text.empty() || !std::all_of(reply->text.begin(), reply->text.end(), is_hexadecimal))
          return done(error{"its id, " + std::string(store_key) + ", is none that fencegate wrote"});
        done({boost::system::in_place_value, std::string(reply->text)});
      },
      deadline);
}

}  // namespace fencegate::backend
