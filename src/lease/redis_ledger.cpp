#include "lease/redis_ledger.hpp"

#include "backend/redis_lease_scripts.hpp"
#include "base/random_id.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <optional>
#include <string_view>
#include <utility>

namespace fencegate::lease {
namespace {

using std::chrono::milliseconds;
using words = std::vector<std::string>;

// Granted tokens end there.
constexpr std::int64_t granted_most = std::int64_t{1} << 62U;
constexpr milliseconds time_most = std::chrono::hours(24);
constexpr std::size_t holder_bytes_max = 200;
// What a grant may take that is not in the way of a renewal.
constexpr milliseconds grant_patience_least{5'000};
// Leases that one script reads.
constexpr std::size_t listed_at_once = 200;

// What the scripts answer when the issuer is another one.
constexpr std::string_view issuer_lost = "FENCEGATELOST ";

std::string lease_key(const std::string& resource) { return "fencegate:lease:{" + resource + "}"; }
std::string waiters_key(const std::string& resource) { return "fencegate:waiters:{" + resource + "}"; }
std::string mark_key(const std::string& resource) { return backend::mark_cell(resource).key; }

template <class All, class Text>
words each(const All& all, Text text) {
  words out;
  for (const auto& one : all) out.push_back(text(one));
  return out;
}

void append(words& to, const words& more) { to.insert(to.end(), more.begin(), more.end()); }

std::optional<std::int64_t> number_of(std::string_view digits) {
  std::int64_t n = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (failed != std::errc{} || end != digits.data() + digits.size() || n < 0) return std::nullopt;
  return n;
}

std::optional<fence::token> token_of(const std::string& digits) {
  const auto token = fence::token::parse(digits);
  return token ? std::optional(*token) : std::nullopt;
}

error unexpected_reply() { return {"it answered something unexpected"}; }

// For a person.
error told(const error& by) {
  if (by.message.starts_with(issuer_lost))
    return {"this Redis lost its leases, or was replaced: it is another issuer than before"};
  return by;
}

// Redis says it again.
bool is_for_good(const error& by) {
  const std::string_view text = by.message;
  const auto says = [text](std::string_view what) { return text.find(what) != std::string_view::npos; };
  return text.starts_with(issuer_lost) || text.starts_with("NOPERM ") || says("can't run this command") ||
         says("can't access at least one of the keys");
}

grant_answer ended(grant_answer::kind what, std::string detail) {
  grant_answer out;
  out.what = what;
  out.detail = std::move(detail);
  return out;
}

// What cannot be meant; nullopt: it can.
std::optional<std::string> senseless(const grant_request& wanted) {
  auto names = wanted.resources;
  std::sort(names.begin(), names.end());
  if (names.empty() || std::adjacent_find(names.begin(), names.end()) != names.end() ||
      !std::all_of(names.begin(), names.end(), fence::is_resource_name))
    return "a grant names each of its resources once";
  if (wanted.floors.size() != names.size() ||
      std::any_of(wanted.floors.begin(), wanted.floors.end(), [](auto floor) { return floor < 0; }))
    return "a grant has one floor for each resource, which is not below 0";
  if (wanted.ttl < milliseconds(1) || std::max({wanted.ttl, wanted.at_least, wanted.lock_delay}) > time_most ||
      std::min(wanted.at_least, wanted.lock_delay) < milliseconds(0))
    return "the times of a lease are 24h at most";
  if (wanted.stride >= granted_most) return "the stride is too large";
  const auto has_blank = [](const std::string& id) { return id.empty() || id.find_first_of(" \t\r\n\v\f") != id.npos; };
  if (wanted.id.empty() || std::any_of(wanted.stores.begin(), wanted.stores.end(), has_blank))
    return "a grant and all stores have ids, without blanks";
  if (wanted.holder.size() > holder_bytes_max) return "the holder's name is too long";
  return std::nullopt;
}

std::string force_of(taking how) { return how == taking::freezing ? "freeze" : how == taking::by_force ? "force" : ""; }

std::string joined(const words& all) {
  std::string out;
  for (const auto& one : all) out += (out.empty() ? "" : " ") + one;
  return out;
}

grant_answer granted(const grant_request& wanted, const result<words>& answered) {
  using kind = grant_answer::kind;
  if (!answered)
    return ended(is_for_good(answered.error()) ? kind::refused : kind::failed, told(answered.error()).message);
  const auto& said = *answered;
  auto wrong = ended(kind::failed, unexpected_reply().message);
  if (said.empty()) return wrong;
  if (said[0] == "granted") {
    if (said.size() != 1 + wanted.resources.size()) return wrong;
    grant_answer out;
    for (std::size_t i = 0; i < wanted.resources.size(); ++i) {
      const auto token = token_of(said[1 + i]);
      if (!token || token->value() < 1 || token->value() > granted_most || token->value() <= wanted.floors[i])
        return wrong;
      out.claims.push_back({wanted.resources[i], *token});
    }
    out.what = kind::granted;
    return out;
  }
  const auto index = said.size() > 1 ? number_of(said[1]) : std::nullopt;
  if (!index || *index < 1 || static_cast<std::size_t>(*index) > wanted.resources.size()) return wrong;
  grant_answer out;
  out.resource = wanted.resources[static_cast<std::size_t>(*index) - 1];
  if (said[0] == "over" && said.size() == 2) {
    out.what = kind::over;
  } else if (said[0] == "uncovered" && said.size() == 3) {
    out.what = kind::uncovered;
    out.by = said[2];
  } else if (said[0] == "held" && said.size() == 4) {
    const auto left = number_of(said[3]);
    if (!left) return wrong;
    out.what = kind::held;
    out.by = said[2];
    out.left = milliseconds(*left);
  } else if (said[0] == "high" && said.size() == 3) {
    return ended(kind::refused, "the mark, or the last token, of " + out.resource + " is " + said[2] +
                                    ": no token above it is left for leases, which end at 2^62");
  } else {
    return wrong;
  }
  return out;
}

// Of a script that answers one word.
std::function<void(const result<words>&)> yes_or_no(std::function<void(const result<bool>&)> done) {
  return [done = std::move(done)](const result<words>& said) {
    if (!said) return done(told(said.error()));
    if (said->size() != 1) return done(unexpected_reply());
    done(said->front() == "1");
  };
}

// The TTL for each claim, or 0.
result<renewal> renewed(const term& held, const result<words>& answered) {
  if (!answered) return told(answered.error());
  if (answered->size() != held.claims.size()) return unexpected_reply();
  renewal out;
  for (std::size_t i = 0; i < answered->size(); ++i) {
    const auto ttl = number_of((*answered)[i]);
    if (!ttl || *ttl < 0) return unexpected_reply();
    if (*ttl == 0) continue;
    out.ttl = out.claims.empty() ? milliseconds(*ttl) : std::min(out.ttl, milliseconds(*ttl));
    out.claims.push_back(held.claims[i]);
  }
  return out;
}

// The tokens, then the grant's id for each of them.
words terms_of(const term& held) {
  words out;
  for (const auto& one : held.claims) out.push_back(one.presented.to_string());
  out.insert(out.end(), held.claims.size(), held.grant);
  return out;
}

// "2026-11-25 19:05:17+00"
std::string day_and_time(std::int64_t microseconds) {
  const std::time_t seconds = microseconds / 1'000'000;
  std::tm parts{};
  std::array<char, 32> out{};
  if (gmtime_r(&seconds, &parts) == nullptr) return {};
  return {out.data(), std::strftime(out.data(), out.size(), "%Y-%m-%d %H:%M:%S+00", &parts)};
}

}  // namespace

redis_issuer::redis_issuer(boost::asio::io_context& context, const settings::mark_store& at, milliseconds patience)
    : patience_(patience), grant_patience_(std::max(patience, grant_patience_least)), caller_(context, at, patience) {}

void redis_issuer::run(const std::string& script, words keys, words arguments, milliseconds patience,
                       word_callback done) {
  caller_.ask(patience, [this, script, keys = std::move(keys), arguments = std::move(arguments),
                         done = std::move(done)](backend::redis_store& store, const backend::store_caller& from) {
    words all_keys{std::string(backend::issuer_key)}, all_arguments{id_};
    append(all_keys, keys);
    append(all_arguments, arguments);
    store.run_leasing(from, script, std::move(all_keys), std::move(all_arguments), done);
  });
}

void redis_issuer::identify(std::function<void(const answer<std::string>&)> done) {
  auto answered = [this, done = std::move(done)](const result<words>& said) {
    if (!said) return done(told(said.error()));
    if (said->size() != 1 || said->front().empty()) return done(unexpected_reply());
    if (!id_.empty() && id_ != said->front()) return done(told({std::string(issuer_lost)}));
    id_ = said->front();
    done({boost::system::in_place_value, id_});
  };
  caller_.ask(grant_patience_, [answered = std::move(answered)](backend::redis_store& store,
                                                                const backend::store_caller& from) {
    store.run_leasing(from, backend::name_issuer, {std::string(backend::issuer_key)}, {random_id()}, answered);
  });
}

void redis_issuer::acquire(const grant_request& wanted, std::function<void(const grant_answer&)> done) {
  if (const auto why = senseless(wanted)) return done(ended(grant_answer::kind::refused, *why));
  if (id_.empty())
    return identify([this, wanted, done = std::move(done)](const result<std::string>& id) {
      if (!id) return done(ended(grant_answer::kind::failed, id.error().message));
      acquire(wanted, done);
    });
  const auto stride = std::max<std::int64_t>(wanted.stride, 1);
  words keys{std::string(backend::leases_key)};
  append(keys, each(wanted.resources, lease_key));
  append(keys, each(wanted.resources, mark_key));
  words arguments{wanted.id,
                  wanted.holder,
                  std::to_string(wanted.ttl.count()),
                  std::to_string(wanted.at_least.count()),
                  std::to_string(wanted.lock_delay.count()),
                  std::to_string(stride),
                  std::to_string(granted_most - stride),
                  joined(wanted.stores),
                  force_of(wanted.how)};
  append(arguments, each(wanted.floors, [](auto floor) { return std::to_string(floor); }));
  auto answered = [wanted, done = std::move(done)](const result<words>& said) { done(granted(wanted, said)); };
  run(backend::lease_grant_script, std::move(keys), std::move(arguments), grant_patience_, std::move(answered));
}

void redis_issuer::renew(const term& held, std::function<void(const result<renewal>&)> done) {
  auto keys = each(names_of(held.claims), lease_key);
  append(keys, each(names_of(held.claims), mark_key));
  auto answered = [held, done = std::move(done)](const result<words>& said) { done(renewed(held, said)); };
  run(backend::lease_renew_script, std::move(keys), terms_of(held), patience_, std::move(answered));
}

void redis_issuer::release(const term& held, bool unused, std::function<void(const result<void>&)> done) {
  words arguments{unused ? "unused" : ""};
  append(arguments, terms_of(held));
  auto answered = [held, listeners = std::weak_ptr(listeners_), done = std::move(done)](const result<words>& said) {
    if (!said) return done(told(said.error()));
    if (said->size() != held.claims.size()) return done(unexpected_reply());
    done({});
    if (const auto there = listeners.lock())
      for (const auto& claim : held.claims) there->tell(claim.resource);
  };
  run(backend::lease_release_script, each(names_of(held.claims), lease_key), std::move(arguments), patience_,
      std::move(answered));
}

void redis_issuer::forget_store(const std::string& resource, const std::string& store,
                                std::function<void(const result<bool>&)> done) {
  run(backend::lease_forget_script, {lease_key(resource)}, {store}, grant_patience_, yes_or_no(std::move(done)));
}

void redis_issuer::thaw(const std::string& resource, std::function<void(const result<bool>&)> done) {
  run(backend::lease_thaw_script, {lease_key(resource)}, {}, grant_patience_, yes_or_no(std::move(done)));
}

void redis_issuer::note_waiter(const waiter_note& note) {
  run(backend::lease_wait_script, {lease_key(note.resource), waiters_key(note.resource)},
      {note.grant, note.holder, std::to_string(note.stays.count())}, patience_, [](const result<words>&) {});
}

namespace {

// Lines of a time in microseconds and a name.
std::vector<lease_waiter> waiters_of(std::string_view lines) {
  std::vector<lease_waiter> out;
  while (!lines.empty()) {
    const auto line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    const auto blank = std::min(line.find(' '), line.size());
    const auto since = number_of(line.substr(0, blank));
    if (since) out.push_back({std::string(line.substr(std::min(blank + 1, line.size()))), day_and_time(*since)});
  }
  return out;
}

}  // namespace

// ── the list ────────────────────────────────────────────────────────────────────────────────────────────────────────

struct redis_issuer::listing {
  std::function<void(const result<std::vector<lease_entry>>&)> done;
  words names;
  std::vector<lease_entry> found = {};
  std::size_t next = 0;  // of the names

  [[nodiscard]] bool take(const words& said, std::size_t count) {
    if (said.size() != 7 * count) return false;
    for (std::size_t i = 0; i < count; ++i) {
      const auto* one = &said[7 * i];
      const auto token = token_of(one[0]);
      const auto granted = number_of(one[3]), left = number_of(one[4]);
      if (!token || !granted || !left) return false;
      if (token->value() > 0)  // or it was not granted after all
        found.push_back({names[next + i], *token, token_of(one[1]), one[2], day_and_time(*granted), milliseconds(*left),
                         one[5] == "1", waiters_of(one[6])});
    }
    next += count;
    return true;
  }
};

void redis_issuer::list(std::function<void(const result<std::vector<lease_entry>>&)> done) {
  auto answered = [this, done = std::move(done)](const result<words>& said) {
    if (!said) return done(told(said.error()));
    const auto l = std::make_shared<listing>(listing{done, *said});
    std::sort(l->names.begin(), l->names.end());
    list_more(l);
  };
  run(backend::lease_names_script, {std::string(backend::leases_key)}, {}, grant_patience_, std::move(answered));
}

void redis_issuer::list_more(const std::shared_ptr<listing>& l) {
  const auto count = std::min(listed_at_once, l->names.size() - l->next);
  if (count == 0) return l->done(std::move(l->found));
  const words names(l->names.begin() + static_cast<std::ptrdiff_t>(l->next),
                    l->names.begin() + static_cast<std::ptrdiff_t>(l->next + count));
  auto keys = each(names, lease_key);
  append(keys, each(names, mark_key));
  append(keys, each(names, waiters_key));
  auto answered = [this, l, count](const result<words>& said) {
    if (!said) return l->done(told(said.error()));
    if (!l->take(*said, count)) return l->done(unexpected_reply());
    list_more(l);
  };
  run(backend::lease_list_script, std::move(keys), {}, grant_patience_, std::move(answered));
}

}  // namespace fencegate::lease
