#include "gate/redis/pubsub.hpp"

#include "backend/command_table.hpp"
#include "wire/resp_reply.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

namespace fencegate::gate::pubsub {
namespace {

constexpr std::string_view invalidation_channel = "__redis__:invalidate";

// The next element's text when it is a short string: nullopt = incomplete, "" = something else.
std::optional<std::string_view> next_text(std::string_view& elements) {
  wire::reply_head head;
  const auto status = wire::read_head(elements, head);
  if (status == wire::head_status::need_more) return std::nullopt;
  if (status == wire::head_status::malformed) return std::string_view{};
  if (head.type == '+') {
    elements.remove_prefix(head.bytes);
    return head.line;
  }
  if (head.type != '$' || head.count < 0 || head.count > 64) return std::string_view{};
  const auto size = static_cast<std::size_t>(head.count);
  if (elements.size() < head.bytes + size + 2) return std::nullopt;
  const auto text = elements.substr(head.bytes, size);
  elements.remove_prefix(head.bytes + size + 2);
  return text;
}

void append_bulk(std::string& out, std::string_view text) {
  out += "$" + std::to_string(text.size()) + "\r\n";
  out += text;
  out += "\r\n";
}

}  // namespace

message_kind kind_of(std::string_view elements, std::int64_t count) {
  if (count <= 0) return message_kind::other;
  const auto kind = next_text(elements);
  if (!kind) return message_kind::need_more;
  if (*kind == "message" && count == 3) {
    const auto channel = next_text(elements);
    if (!channel) return message_kind::need_more;
    return *channel == invalidation_channel ? message_kind::invalidation : message_kind::message;
  }
  if ((*kind == "pmessage" && count == 4) || (*kind == "smessage" && count == 3)) return message_kind::message;
  if (*kind == "invalidate") return message_kind::invalidation;
  for (const std::string_view one :
       {"subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe"})
    if (*kind == one && count == 3) return message_kind::confirmation;
  return message_kind::other;
}

std::string without_reserved_keys(std::string_view invalidation) {
  const auto parsed = wire::parse_value(invalidation);
  if (parsed.has_error() || !*parsed) return std::string(invalidation);
  const auto& value = (*parsed)->first;
  if (value.elements.empty() || value.elements.back().type != '*' || value.elements.back().null)
    return std::string(invalidation);
  const auto& keys = value.elements.back().elements;
  std::vector<std::string_view> kept;
  for (const auto& key : keys)
    if (!backend::is_reserved(key.text)) kept.push_back(key.text);
  if (kept.size() == keys.size()) return std::string(invalidation);
  if (kept.empty()) return {};
  std::string out = std::string(1, value.type) + std::to_string(value.elements.size()) + "\r\n";
  for (std::size_t i = 0; i + 1 < value.elements.size(); ++i) append_bulk(out, value.elements[i].text);
  out += "*" + std::to_string(kept.size()) + "\r\n";
  for (const auto key : kept) append_bulk(out, key);
  return out;
}

std::int64_t subscription_counts::confirmed(std::string_view confirmation) {
  const auto parsed = wire::parse_value(confirmation);
  if (parsed.has_value() && *parsed && (*parsed)->first.elements.size() == 3) {
    const auto& elements = (*parsed)->first.elements;
    std::int64_t now = 0;
    const auto text = elements[2].text;
    std::from_chars(text.data(), text.data() + text.size(), now);
    // The server counts channels and patterns together, shard channels apart.
    const char family = elements[0].text.empty() ? 's' : elements[0].text.front();
    const bool shard = elements[0].text.starts_with("ss") || elements[0].text.starts_with("sun");
    if (shard)
      shards_ = now;
    else if (family == 'p')
      patterns_ = std::max<std::int64_t>(0, now - channels_);
    else
      channels_ = std::max<std::int64_t>(0, now - patterns_);
  }
  return channels_ + patterns_ + shards_;
}

std::uint32_t subscription_counts::unsubscribe_all(char family) const {
  const std::int64_t count = family == 's' ? shards_ : family == 'p' ? patterns_ : channels_;
  return static_cast<std::uint32_t>(std::max<std::int64_t>(1, count));
}

}  // namespace fencegate::gate::pubsub
