#include "lease/pg_renewals.hpp"

#include "backend/pg_claims.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <set>
#include <utility>

namespace fencegate::lease {
namespace {

constexpr std::size_t rows_max = 500;

bool is_about_locks(std::string_view sqlstate) {
  constexpr std::string_view lock_not_available = "55P03", deadlock_detected = "40P01", query_canceled = "57014";
  return sqlstate == lock_not_available || sqlstate == deadlock_detected || sqlstate == query_canceled;
}

// Of one column for each resource, as the function's arrays want it.
struct columns {
  fence::claims_list claims;
  std::vector<std::string> grants;
};

// Rows: resource, token, ttl_ms.
renewal of_term(const term& held, const backend::pg_rows& rows) {
  renewal out;
  for (const auto& claim : held.claims)
    for (const auto& row : rows) {
      if (row.size() != 3 || row[0] != claim.resource || backend::token_of(row[1]) != claim.presented || !row[2])
        continue;
      std::int64_t ttl = 0;
      std::from_chars(row[2]->data(), row[2]->data() + row[2]->size(), ttl);
      out.ttl = out.claims.empty() ? std::chrono::milliseconds(ttl) : std::min(out.ttl, std::chrono::milliseconds(ttl));
      out.claims.push_back(claim);
      break;
    }
  return out;
}

}  // namespace

void pg_renewals::renew(const term& held, answer done) {
  waiting_.push_back({held, std::move(done)});
  if (std::exchange(busy_, true)) return;
  boost::asio::post(context_, [self = shared_from_this()] { self->send_next(); });
}

// No resource twice: an answer names the resource and its token, and not the grant.
pg_renewals::batch pg_renewals::next_batch() {
  if (!halves_.empty()) {
    auto out = std::move(halves_.front());
    halves_.pop_front();
    return out;
  }
  batch out;
  std::set<std::string> named;
  std::deque<waiting> later;
  for (auto& one : std::exchange(waiting_, {})) {
    const auto is_named = [&](const auto& claim) { return named.count(claim.resource) > 0; };
    const auto& claims = one.held.claims;
    if ((!out.empty() && named.size() + claims.size() > rows_max) ||
        std::any_of(claims.begin(), claims.end(), is_named)) {
      later.push_back(std::move(one));
      continue;
    }
    for (const auto& claim : claims) named.insert(claim.resource);
    out.push_back(std::move(one));
  }
  waiting_ = std::move(later);
  return out;
}

void pg_renewals::send_next() {
  auto asked = next_batch();
  if (asked.empty()) {
    busy_ = false;
    return;
  }
  columns all;
  for (const auto& one : asked)
    for (const auto& claim : one.held.claims) {
      all.claims.push_back(claim);
      all.grants.push_back(one.held.grant);
    }
  auto statement = backend::in_text(
      "SELECT resource, token, ttl_ms FROM fencegate.lease_renew($1::pg_catalog.text[], $2::pg_catalog.int8[], "
      "$3::pg_catalog.text[])",
      {backend::resources_of(all.claims), backend::tokens_of(all.claims), backend::array_of(all.grants)});
  const auto shared = std::make_shared<batch>(std::move(asked));
  caller_->call(std::move(statement), [self = shared_from_this(), shared](const backend::pg_result& rows) {
    self->on_answer(std::move(*shared), rows);
  });
}

void pg_renewals::on_answer(batch asked, const backend::pg_result& rows) {
  // One row that somebody has locked must not end all the others' leases.
  const bool is_split = rows.has_error() && is_about_locks(rows.error().sqlstate) && asked.size() > 1;
  if (is_split) {
    const auto middle = asked.begin() + static_cast<std::ptrdiff_t>(asked.size() / 2);
    halves_.emplace_front(std::make_move_iterator(middle), std::make_move_iterator(asked.end()));
    halves_.emplace_front(std::make_move_iterator(asked.begin()), std::make_move_iterator(middle));
  } else {
    for (const auto& one : asked)
      one.done(rows ? result<renewal>(of_term(one.held, *rows))
                    : result<renewal>(error{backend::rejection_of(rows.error(), {}).detail}));
  }
  assert(busy_);
  boost::asio::post(context_, [self = shared_from_this()] { self->send_next(); });
}

}  // namespace fencegate::lease
