#include "lease/redis_seal_place.hpp"

#include "backend/redis_lease_scripts.hpp"

#include <utility>

namespace fencegate::lease {

using backend::redis_store;
using backend::store_caller;

redis_seal_place::redis_seal_place(boost::asio::io_context& context, std::string name, const settings::mark_store& at,
                                   std::chrono::milliseconds patience)
    : name_(std::move(name)), caller_(context, at, patience) {}

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

}  // namespace fencegate::lease
