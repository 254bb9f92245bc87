#include "backend/mark_memory.hpp"

namespace fencegate::backend {

std::shared_ptr<mark_cell> mark_memory::cell(std::string_view resource) {
  auto& its = parts_[index_of(resource)];
  const std::lock_guard lock(its.mutex);
  const auto known = its.all.find(resource);
  if (known != its.all.end()) return *known;
  forget_some(its);
  const bool kept = size_.fetch_add(1) < most_;
  auto made = std::make_shared<mark_cell>(resource, kept);
  if (!kept) {
    size_.fetch_sub(1);
    if (!said_full_.exchange(true))
      log::write(log::level::error, "too many resources: new ones are refused",
                 {{"resources", static_cast<std::int64_t>(most_)}});
    return made;
  }
  its.all.insert(made);
  its.fresh.push_back(made);
  return made;
}

// Two of those without a mark are looked at for each that comes: so there are never many more than somebody holds.
void mark_memory::forget_some(part& of) {
  constexpr long held_here = 2;  // by the set and by `fresh`: nobody can come to hold it while this has the lock
  for (int looks = 0; looks < 2 && !of.fresh.empty(); ++looks) {
    if (of.looked_at >= of.fresh.size()) of.looked_at = 0;
    auto& one = of.fresh[of.looked_at];
    const bool held = one.use_count() > held_here;
    std::atomic_thread_fence(std::memory_order_acquire);  // whoever held it last may have seen a mark
    const bool seen = one->seen().has_value();
    if (held && !seen) {
      ++of.looked_at;
      continue;
    }
    if (!seen) {
      of.all.erase(one);
      size_.fetch_sub(1);
    }
    std::swap(one, of.fresh.back());
    of.fresh.pop_back();
  }
}

std::optional<fence::token> mark_memory::seen(std::string_view resource) const {
  const auto& its = parts_[index_of(resource)];
  const std::lock_guard lock(its.mutex);
  const auto known = its.all.find(resource);
  return known == its.all.end() ? std::nullopt : (*known)->seen();
}

// When a part has grown since the last look, its cells stand elsewhere: it begins anew there.
mark_memory::cells mark_memory::walk::next(std::size_t most) {
  cells out;
  for (; part_ < parts; ++part_, bucket_ = 0) {
    const auto& part = of_->parts_[part_];
    const std::lock_guard lock(part.mutex);
    const std::size_t buckets = part.all.bucket_count();
    if (std::exchange(buckets_, buckets) != buckets) bucket_ = 0;
    for (; bucket_ < buckets; ++bucket_) {
      if (out.size() >= most) return out;
      for (auto at = part.all.begin(bucket_); at != part.all.end(bucket_); ++at)
        if ((*at)->seen()) out.push_back(*at);
    }
  }
  if (out.empty()) part_ = 0;
  return out;
}

}  // namespace fencegate::backend
