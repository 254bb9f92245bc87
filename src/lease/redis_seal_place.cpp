#include "lease/redis_seal_place.hpp"

#include "backend/redis_lease_scripts.hpp"
#include "backend/redis_scripts.hpp"

#include <chrono>
#include <utility>

namespace fencegate::lease {

using backend::redis_store;
using backend::store_caller;

redis_seal_place::redis_seal_place(boost::asio::io_context& context, std::string name, const settings::mark_store& at,
                                   std::chrono::milliseconds patience)
    : context_(context), name_(std::move(name)), at_(at), patience_(patience), caller_(context, at, patience) {}

void redis_seal_place::identify(std::function<void(const answer<std::string>&)> done) {
  caller_.ask([done = std::move(done)](redis_store& store, const store_caller& from) { store.identify(from, done); });
}

void redis_seal_place::look(const std::vector<std::string>& resources,
                            std::function<void(const answer<std::vector<backend::looked_mark>>&)> done) {
  auto answered = [done = std::move(done)](const backend::store_result<std::vector<backend::looked_mark>>& found) {
    if (found) return done(*found);
    done(error{found.error().detail});
  };
  caller_.ask([resources, answered = std::move(answered)](redis_store& store, const store_caller& from) {
    store.look(from, resources, answered);
  });
}

void redis_seal_place::seal(const term& held, const std::string& issuer_id,
                            std::function<void(const backend::store_result<void>&)> done) {
  caller_.ask([held, issuer_id, done = std::move(done)](redis_store& store, const store_caller& from) {
    store.seal_for_lease(from, held.claims, {issuer_id, held.grant}, done);
  });
}

void redis_seal_place::move(const std::string& resource, const std::string& from, const std::string& to,
                            std::function<void(const result<std::string>&)> done) {
  using words = std::vector<std::string>;
  words keys{std::string(backend::issuer_key), backend::mark_cell(resource).grant_key()};
  auto answered = [done = std::move(done)](const result<words>& said) {
    if (!said) return done(said.error());
    if (said->size() != 1) return done(error{"it answered something unexpected"});
    done({boost::system::in_place_value, said->front()});
  };
  caller_.ask([keys = std::move(keys), ids = words{from, to}, answered = std::move(answered)](redis_store& store,
                                                                                              const store_caller& by) {
    store.run_leasing(by, backend::move_issuer_script, keys, ids, answered);
  });
}

void redis_seal_place::list_marks(const std::optional<std::string>& only,
                                  std::function<void(const result<std::vector<listed_mark>>&)> done) {
  listing_ = std::make_shared<redis_mark_listing>(context_, at_, patience_);
  listing_->start(only, std::move(done));
}

void redis_seal_place::raise(const fence::claims_list& to,
                             std::function<void(const backend::store_result<void>&)> done) {
  auto answered = [done = std::move(done)](const backend::store_result<std::vector<backend::sealed_mark>>& sealed) {
    if (!sealed) return done(sealed.error());
    done({});
  };
  caller_.ask([to, answered = std::move(answered)](redis_store& store, const store_caller& from) {
    store.seal(from, {to}, answered);
  });
}

namespace {

std::string microseconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::to_string(std::chrono::floor<std::chrono::microseconds>(now).count());
}

std::vector<std::string> keys_to_lower(const std::string& resource) {
  const backend::mark_cell cell(resource);
  return {cell.key, cell.grant_key(), std::string(backend::lowered_key)};
}

const error no_epoch_above{"the epoch of this Redis has no higher number: SET fencegate:epoch to a new text"};
const error unexpected_answer{"it answered something unexpected"};

}  // namespace

void redis_seal_place::replace(const replacement_wish& wish, std::function<void(const result<void>&)> done) {
  using words = std::vector<std::string>;
  const words values{wish.to.to_string(), wish.lowers ? "lower" : "", microseconds_now(), wish.by, wish.why};
  auto answered = [done = std::move(done), resource = wish.resource](const result<words>& said) {
    if (!said) return done(said.error());
    const std::string word = said->empty() ? "" : said->front();
    if (word == "replaced") return done({});
    if (word == "is") return done(error{"it has changed meanwhile; look at it again"});
    if (word == "below")
      return done(error{"a lease has sealed it with " + said->back() + ": it goes no lower than that"});
    done(word == "last" ? no_epoch_above : unexpected_answer);
  };
  caller_.ask([keys = keys_to_lower(wish.resource), values, answered = std::move(answered)](redis_store& store,
                                                                                            const store_caller& by) {
    store.run_leasing(by, backend::replace_mark, keys, values, answered);
  });
}

void redis_seal_place::lower(const lowering_wish& wish, std::function<void(const result<void>&)> done) {
  using words = std::vector<std::string>;
  words values{wish.seen.mark->to_string(),
               wish.to.to_string(),
               wish.force ? "force" : "",
               microseconds_now(),
               wish.by,
               wish.why,
               wish.seen.epoch};
  auto answered = [done = std::move(done), resource = wish.seen.resource](const result<words>& said) {
    if (!said) return done(said.error());
    const std::string word = said->empty() ? "" : said->front();
    if (word == "lowered") return done({});
    if (word == "is") return done(error{"it has moved, or another was lowered meanwhile; look at it again"});
    if (word == "leased") return done(error{"its leases raise it: fencegate lease break " + resource});
    if (word == "last") return done(no_epoch_above);
    if (word == "floor")
      return done(
          error{"Redis does not keep what it was before; make sure that no older holder is at work, then use --force"});
    done(unexpected_answer);
  };
  caller_.ask([keys = keys_to_lower(wish.seen.resource), values = std::move(values), answered = std::move(answered)](
                  redis_store& store, const store_caller& by) {
    store.run_leasing(by, backend::lower_mark, keys, values, answered);
  });
}

}  // namespace fencegate::lease
