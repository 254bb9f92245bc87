#include "gate/http/http_server.hpp"

#include "backend/plain_answer.hpp"
#include "gate/http/http_messages.hpp"
#include "gate/http/http_session.hpp"

#include <utility>

namespace fencegate::gate {
namespace {

class http_sessions final : public protocol_shard {
 public:
  // `leads`: this shard's thread is the one of the stores.
  http_sessions(http_shard common, std::shared_ptr<http_store_set> stores, bool leads)
      : common_(std::move(common)), stores_(std::move(stores)), leads_(leads) {}

  void start(std::shared_ptr<void> unsettled) override {
    if (!leads_) return;
    stores_->start(unsettled);
    if (common_.upstream) common_.upstream->start(std::move(unsettled));
  }
  std::shared_ptr<session> open(client_link client, session_ended ended, bound_tag tag) override {
    return std::make_shared<http_session>(common_, std::move(client), std::move(ended), std::move(tag));
  }
  void stop() override {
    stores_->stop(common_.context);
    if (leads_ && common_.upstream) common_.upstream->stop();
  }

 private:
  http_shard common_;
  const std::shared_ptr<http_store_set> stores_;
  const bool leads_;
};

class http_protocol final : public protocol {
 public:
  http_protocol(const settings::http_gate& gate, http_plan plan, std::shared_ptr<http_store_set> stores,
                metrics::gate& stats, rejection_log& rejections)
      : gate_(gate), plan_(std::move(plan)), stats_(stats), rejections_(rejections), stores_(std::move(stores)) {}

  std::unique_ptr<protocol_shard> make_shard(boost::asio::io_context& context) override {
    const bool leads = std::exchange(first_, false);
    if (leads && gate_.upstream) {
      upstream_ = std::make_shared<backend::upstream_address>(context, *gate_.upstream);
      tls_ = backend::tls_context::to(*gate_.upstream, gate_.secured, "http/1.1");
    }
    auto asked = std::make_shared<http_session_stores>(stores_, context);
    return std::make_unique<http_sessions>(
        http_shard{context, gate_, plan_, stats_, rejections_, upstream_, tls_, std::move(asked), poller::of(context)},
        stores_, leads);
  }
  std::string_view tls_name() const override { return "http/1.1"; }
  std::string turned_away(const std::string& why) const override {
    std::string out;
    append_refusal(out, 503, too_many_connections(why));
    return out;
  }
  std::string told_to_use_tls() const override {
    std::string out;
    append_refusal(out, 400, backend::plain_http_on_tls);
    return out;
  }
  bool refuse(std::string& from_client, std::string& to_client, const std::string& why) const override {
    if (from_client.empty()) return false;
    append_refusal(to_client, 503, why);
    return true;
  }

 private:
  const settings::http_gate& gate_;
  const http_plan plan_;
  metrics::gate& stats_;
  rejection_log& rejections_;
  const std::shared_ptr<http_store_set> stores_;
  std::shared_ptr<backend::upstream_address> upstream_;
  std::shared_ptr<backend::tls_context> tls_;
  bool first_ = true;  // no shard was made yet
};

}  // namespace

std::unique_ptr<server> make_http_server(workers& threads, const settings::http_gate& gate, http_plan plan,
                                         std::shared_ptr<http_store_set> stores, metrics::gate& stats,
                                         rejection_log& rejections) {
  auto spoken = std::make_unique<http_protocol>(gate, std::move(plan), std::move(stores), stats, rejections);
  return std::make_unique<server>(threads, place_of(gate), std::move(spoken), stats, rejections);
}

}  // namespace fencegate::gate
