// A writer's lease in a sidecar that comes back: the term of an earlier process.
#include "base/log.hpp"
#include "lease/writer_lease.hpp"

#include <boost/asio/post.hpp>

#include <utility>

namespace fencegate::lease {
namespace {

using metrics::lease_state;

}  // namespace

void writer_lease::read_record() {
  auto on_read =
      current([](writer_lease& self, const result<std::optional<term_record>>& read) { self.on_record(read); });
  boost::asio::post(disk_, [&context = context_, file = *wish_.record, on_read] {
    boost::asio::post(context, [read = file.read(), on_read] { on_read(read); });
  });
}

void writer_lease::on_record(const result<std::optional<term_record>>& read) {
  if (!read)
    log::write(log::level::warn, "no term is resumed", {{"writer", wish_.name}, {"why", read.error().message}});
  if (read && *read && are_same(names_of((*read)->held.claims), wish_.resources)) {
    former_ = (*read)->held;
    return resume();
  }
  if (writer_.phase() == writer_phase::standby) acquire();
}

// It goes on only with this very term, and only when the issuer has just confirmed it.
void writer_lease::resume() {
  const auto source = sources_(wish_.resources, {}, {});
  if (!source) return give_up(source.error().message);
  auto identified = current([from = *source](writer_lease& self, const result<std::string>& known) {
    if (!known) return self.later(back_off, &writer_lease::resume);
    const auto sent = clock_reading::now();
    auto renewed = self.current([from, sent, id = *known](writer_lease& me, const result<renewal>& confirmed) {
      me.on_renewed(from, id, sent, confirmed);
    });
    from.by->renew(*self.former_, renewed);
  });
  source->by->identify(identified);
}

void writer_lease::on_renewed(const lease_source& from, const std::string& issuer_id, clock_reading sent,
                              const result<renewal>& confirmed) {
  if (!confirmed) return later(back_off, &writer_lease::resume);
  const auto held = *former_;
  if (confirmed->claims.size() != held.claims.size()) {
    former_.reset();
    return on_not_resumed("another has it, or it is over");
  }
  // As long as it was granted for, which the configuration may have changed since.
  auto source = sources_(wish_.resources, confirmed->ttl, {});
  if (!source) source = from;
  former_.reset();
  keeper_ = make_keeper(*source, &writer_lease::hold);
  resumes_ = true;
  count(lease_state::held, 1);
  // The configuration may name places by now that were never sealed for it.
  keeper_->resume(held, issuer_id, sent);
}

// Nothing is held any more.
void writer_lease::on_not_resumed(const std::string& why) {
  begin_anew();
  keeper_.reset();
  count(lease_state::held, 0);
  log::write(log::level::warn, "no term is resumed", {{"writer", wish_.name}, {"why", why}});
  forget();
  if (writer_.phase() == writer_phase::standby) acquire();
}

}  // namespace fencegate::lease
