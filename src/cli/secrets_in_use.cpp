#include "cli/secrets_in_use.hpp"

#include "cli/mark_places.hpp"

#include <algorithm>
#include <iterator>

namespace fencegate::cli {

std::vector<secrets_in_use::one> secrets_in_use::all_of(const settings::process& config) {
  std::vector<one> out;
  for (const auto& place : all_places(config)) {
    if (const auto at = postgres_at(config, place)) {
      out.push_back({place, at->at.where, at->at.secured, at->at.login});
    } else {
      const auto redis = redis_at(config, place);
      out.push_back({place, redis.where, redis.secured, redis.login});
    }
  }
  std::erase_if(out, [](const one& each) { return !each.login.password.is_of_file(); });
  return out;
}

std::vector<std::string> secrets_in_use::different_in(const settings::process& next) const {
  std::vector<std::string> out;
  for (const auto& is : all_of(next)) {
    const auto is_another = [&is, wanted = is.login.password.text()](const one& used) {
      return used.is_of(is) && used.login.password.text() != wanted;
    };
    if (std::ranges::any_of(all_, is_another)) out.push_back(is.place);
  }
  return out;
}

void secrets_in_use::take_over(const settings::process& next) {
  auto added = all_of(next);
  for (const auto& is : added)
    for (const auto& used : all_)
      if (used.is_of(is)) used.login.password.renew(is.login.password);
  std::ranges::move(added, std::back_inserter(all_));
  std::erase_if(all_, [](const one& each) { return !each.login.password.is_shared(); });
}

}  // namespace fencegate::cli
