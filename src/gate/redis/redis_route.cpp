#include "gate/redis/redis_route.hpp"

namespace fencegate::gate {
namespace {

using kind = route_facts::kind;
using proof = route_facts::proof;
using stand = route_facts::stand;

constexpr bool writes(const route_facts& f) { return f.what == kind::write || f.what == kind::blocking_write; }

constexpr routed no(refusal why) { return {route::reject, why}; }

// Nothing has to be proven. What joins a batch saves the link from leaving MULTI, and is then ordered with its writes.
routed unfenced(const route_facts& f) {
  if (f.where == stand::queued) return {route::queue};
  if (f.where == stand::streamed) return {f.proven == proof::none ? route::bare : route::by_pieces};
  if (f.unraised) return {route::raise_first};
  if (f.where != stand::plain || f.proven == proof::none) return {route::bare};
  const bool may_block = f.what == kind::blocking_read || f.what == kind::blocking_write;
  if (f.what == kind::read && (f.filling || f.reads_inside)) return {route::batch};
  return {f.filling && !may_block ? route::batch : route::bare};
}

// In a MULTI that was begun before the command was known: it is covered, or must not run.
routed inside(const route_facts& f, route to) {
  if (f.proven == proof::whole) return {to};
  return no(f.refused ? refusal::by_claim : refusal::unproven);
}

}  // namespace

routed route_of(const route_facts& f) {
  if (writes(f) && !f.table_known) return no(refusal::no_table);
  if (f.rejected) return no(refusal::by_rules);
  if (!f.required) return unfenced(f);

  const bool streams = f.where == stand::streaming || f.where == stand::streamed;
  if (streams && !writes(f)) return no(refusal::too_large);
  if (f.where == stand::queued) return inside(f, route::queue);
  if (f.where == stand::streamed) return inside(f, route::by_pieces);

  if (f.what == kind::blocking_read && f.waits) return no(refusal::waits);
  if (!f.ready) return no(refusal::not_ready);
  if (f.unraised) return {route::raise_first};
  if (f.refused) return no(refusal::by_claim);
  if (f.where == stand::called) return {route::wrap};
  if (f.unsettled) return no(refusal::unsettled);
  if (f.where == stand::again) return {route::wrap};

  if (f.watching) {
    const bool wraps = f.where == stand::plain && f.scriptable && f.what != kind::blocking_write;
    return wraps ? routed{route::wrap} : no(refusal::watching);
  }
  if (f.caching && f.shows_data) return no(refusal::caching);
  if (f.arm_failed) return no(refusal::arm_failed);
  if (f.proven != proof::whole) return {route::arm_first};
  if (f.where == stand::streaming) return {route::by_pieces};
  return {f.what == kind::blocking_write ? route::poll : route::batch};
}

}  // namespace fencegate::gate
