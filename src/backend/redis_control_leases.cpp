// Seals: marks that rise with a lease's grant.
#include "backend/redis_control.hpp"
#include "backend/redis_replies.hpp"
#include "backend/redis_scripts.hpp"
#include "base/random_id.hpp"

#include <utility>

namespace fencegate::backend {

using detail::is_error;
using detail::words_of;

bool redis_control::run_sealing(const std::vector<fence::claim>& claims, const lease_grant& grant, time_point deadline,
                                std::function<void(const wire::reply_value*)> done) {
  const auto epoch = state_->look().epoch;
  if (!up_ || epoch.empty()) return false;
  std::vector<std::string> keys, grants, tokens, seen;
  for (const auto& [resource, presented] : claims) {
    const auto cell = state_->marks.cell(resource);
    if (!cell->kept) return false;
    keys.push_back(cell->key);
    grants.push_back(cell->grant_key());
    tokens.push_back(presented.to_string());
    seen.push_back(cell->seen() ? cell->seen()->to_string() : "");
  }
  const std::string count = std::to_string(2 * keys.size() + 1);
  std::vector<std::string_view> words{"EVAL", seal_marks, count};
  words.insert(words.end(), keys.begin(), keys.end());
  words.insert(words.end(), grants.begin(), grants.end());
  words.insert(words.end(), {epoch_key, epoch, grant.issuer, grant.id});
  words.insert(words.end(), tokens.begin(), tokens.end());
  words.insert(words.end(), seen.begin(), seen.end());
  send(words, std::move(done), deadline);
  return true;
}

void redis_control::identify(time_point deadline, std::function<void(const result<std::string>&)> done) {
  if (!up_) return done(error{problem_});
  const std::string fresh = random_id();
  send(
      {"EVAL", name_store, "1", store_key, fresh},
      [done = std::move(done)](const wire::reply_value* reply) {
        if (is_error(reply) || reply->type != '$' || reply->null) return done(error{words_of(reply)});
        done({boost::system::in_place_value, std::string(reply->text)});
      },
      deadline);
}

}  // namespace fencegate::backend
