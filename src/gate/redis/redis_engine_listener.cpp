// A listener with a tag of its own (tag_from: listen): each connection is bound to it when it is accepted, and stays so,
// whatever its client calls it. For clients that cannot say a tag, or overwrite the name that carries one.
#include "base/log.hpp"
#include "gate/redis/redis_engine.hpp"

namespace fencegate::gate {

// (A shared link is bound by what it says, like any client's without a listener.)
const fence::claims_list& redis_engine::tag_of_listener() const {
  static const fence::claims_list none;
  return tag_of_listener_ == nullptr ? none : *tag_of_listener_;
}

// The tag is the operator's: nobody has to sign in for its marks to rise.
void redis_engine::bind_to_listener(const fence::claims_list& tag) {
  if (tag.empty()) return;
  tag_of_listener_ = &tag;
  unbind();
  phase_ = phase::waiting;
  raise_claims([this] {
    phase_ = phase::ready;
    resume();
  });
}

void redis_engine::bind(const fence::claims_list& tag) {
  claims_.bind(tag_of_listener().empty() ? tag : tag_of_listener(), marks_);
}

void redis_engine::unbind() {
  claims_.clear();
  if (!tag_of_listener().empty()) bind({});
}

std::optional<fence::rejection> redis_engine::refusal_of_tag(const fence::claims_list& brought) const {
  auto other = fence::disagreement(tag_of_listener(), brought);
  if (!other) return std::nullopt;
  return fence::rejection{fence::reason::malformed, {}, {}, {}, std::move(*other)};
}

}  // namespace fencegate::gate
