#include "gate/redis/redis_server.hpp"

#include "backend/redis_state.hpp"
#include "gate/redis/redis_key_watch.hpp"
#include "gate/redis/redis_session.hpp"

namespace fencegate::gate {
namespace {

class redis_sessions final : public protocol_shard {
 public:
  redis_sessions(boost::asio::io_context& context, std::shared_ptr<backend::redis_state> state,
                 rejection_log& rejections, std::shared_ptr<share_choices> choices)
      : common_(context, std::move(state), rejections, std::move(choices)) {}

  void start(std::shared_ptr<void> unsettled) override { common_.control->start(std::move(unsettled)); }
  std::shared_ptr<session> open(client_link client, session_ended ended, bound_tag tag) override {
    return std::make_shared<redis_session>(common_, std::move(client), std::move(ended), std::move(tag));
  }
  void stop() override {
    common_.control->stop();
    if (common_.key_watch != nullptr) common_.key_watch->stop();
  }

 private:
  redis_shard common_;
};

class redis_protocol final : public protocol {
 public:
  redis_protocol(const settings::redis_gate& gate, metrics::gate& stats, rejection_log& rejections)
      : gate_(gate), rejections_(rejections), state_(std::make_shared<backend::redis_state>(gate, stats)) {}

  std::unique_ptr<protocol_shard> make_shard(boost::asio::io_context& context) override {
    return std::make_unique<redis_sessions>(context, state_, rejections_, choices_);
  }
  std::string turned_away(const std::string& why) const override { return too_many_clients(why); }
  bool refuse(std::string& from_client, std::string& to_client, const std::string& why) const override {
    if (from_client.empty()) return false;
    to_client += fence::redis_refusal(why);
    return true;
  }

 private:
  const settings::redis_gate& gate_;
  rejection_log& rejections_;
  std::shared_ptr<backend::redis_state> state_;
  std::shared_ptr<share_choices> choices_ = std::make_shared<share_choices>();
};

}  // namespace

std::unique_ptr<server> make_redis_server(workers& threads, const settings::redis_gate& gate, metrics::gate& stats,
                                          rejection_log& rejections) {
  return std::make_unique<server>(threads, place_of(gate), std::make_unique<redis_protocol>(gate, stats, rejections),
                                  stats, rejections);
}

}  // namespace fencegate::gate
