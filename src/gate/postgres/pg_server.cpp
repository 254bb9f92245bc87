#include "gate/postgres/pg_server.hpp"

#include "gate/postgres/pg_session.hpp"
#include "wire/pg_message.hpp"
#include "wire/pg_opening.hpp"

#include <algorithm>

namespace fencegate::gate {
namespace {

class pg_sessions final : public protocol_shard {
 public:
  // `leads`: this shard's thread is the one of the gate's own connections.
  pg_sessions(pg_shard common, bool leads) : common_(std::move(common)), leads_(leads) {}

  void start(std::shared_ptr<void> unsettled) override {
    if (leads_) common_.control->start(std::move(unsettled));
  }
  std::shared_ptr<session> open(client_link client, session_ended ended, bound_tag tag) override {
    return std::make_shared<pg_session>(common_, std::move(client), std::move(ended), std::move(tag));
  }
  void stop() override {
    if (leads_) common_.control->stop();
  }

 private:
  pg_shard common_;
  const bool leads_;
};

class pg_protocol final : public protocol {
 public:
  pg_protocol(const settings::postgres_gate& gate, metrics::gate& stats, rejection_log& rejections,
              std::shared_ptr<cancel_routes> cancels)
      : gate_(gate), stats_(stats), rejections_(rejections), cancels_(std::move(cancels)) {}

  std::unique_ptr<protocol_shard> make_shard(boost::asio::io_context& context) override {
    const bool leads = control_ == nullptr;
    if (leads) {
      control_ = std::make_shared<backend::pg_control>(context, gate_, stats_);
      waiting_ = std::make_shared<waiting_room>(std::max<std::size_t>(gate_.connections_max / 4, 1),
                                                stats_.connections_waiting);
      tls_ = backend::tls_context::to(gate_.upstream, gate_.secured);
    }
    return std::make_unique<pg_sessions>(
        pg_shard{context, gate_, stats_, rejections_, control_, poller::of(context), tls_, cancels_, waiting_}, leads);
  }
  std::string_view tls_name() const override { return "postgresql"; }
  std::size_t opening_bytes() const override { return wire::pg_opening_head_bytes; }
  opening judge_opening(std::string_view bytes, std::string& to_client) const override {
    using kind = wire::pg_opening::kind;
    const auto asked = wire::kind_of_pg_opening(bytes);
    if (asked == kind::ssl) to_client += 'S';
    if (asked == kind::gss) to_client += 'N';
    if (asked == kind::ssl) return opening::secures;
    if (asked == kind::gss) return opening::asks;
    // As servers do: libpq before 17 knows no other way. Who has the secret of a session may end its statement, and no more.
    if (asked == kind::cancel) return opening::passes;
    if (asked == kind::start)
      to_client +=
          wire::encode_pg_error({"FATAL", "28000", "this gate is reached through TLS only", {}, "Set sslmode."});
    return opening::refused;
  }
  std::string turned_away(const std::string& why) const override {
    return wire::encode_pg_error(pg_error_of_limit(why));
  }
  bool refuse(std::string& from_client, std::string& to_client, const std::string& why) const override {
    using kind = wire::pg_opening::kind;
    while (true) {
      const auto asked = wire::decode_pg_opening(from_client);
      if (!asked) return true;
      if (!*asked) return false;
      from_client.erase(0, (*asked)->bytes);
      if ((*asked)->what == kind::cancel) return true;
      if ((*asked)->what == kind::start) break;
      to_client += 'N';
    }
    to_client += wire::encode_pg_error({"FATAL", "57P03", why, {}, "Nothing was applied. Connect again later."});
    return true;
  }

 private:
  const settings::postgres_gate& gate_;
  metrics::gate& stats_;
  rejection_log& rejections_;
  const std::shared_ptr<cancel_routes> cancels_;
  std::shared_ptr<backend::pg_control> control_;
  std::shared_ptr<backend::tls_context> tls_;
  std::shared_ptr<waiting_room> waiting_;
};

}  // namespace

std::unique_ptr<server> make_pg_server(workers& threads, const settings::postgres_gate& gate, metrics::gate& stats,
                                       rejection_log& rejections, std::shared_ptr<cancel_routes> cancels) {
  auto spoken = std::make_unique<pg_protocol>(gate, stats, rejections, std::move(cancels));
  return std::make_unique<server>(threads, place_of(gate), std::move(spoken), stats, rejections);
}

}  // namespace fencegate::gate
