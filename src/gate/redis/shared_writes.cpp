#include "gate/redis/shared_writes.hpp"

#include "base/demand.hpp"
#include "base/limits.hpp"
#include "fence/tag.hpp"
#include "wire/resp_reply.hpp"
#include "wire/resp_request.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <set>
#include <utility>

namespace fencegate::gate {
namespace {

// How long the whole reply at the front is, with the attribute in front of it; 0: there is none yet.
std::size_t whole_reply(std::string_view view) {
  wire::reply_head head;
  if (wire::read_head(view, head) != wire::head_status::complete) return 0;
  wire::value_scanner scanner;
  scanner.begin(head);
  const auto step = scanner.done() ? wire::value_scanner::step{} : scanner.advance(view.substr(head.bytes));
  if (!scanner.done()) return 0;
  const std::size_t bytes = head.bytes + step.consumed;
  if (head.type != '|') return bytes;
  const std::size_t behind = whole_reply(view.substr(bytes));
  return behind == 0 ? 0 : bytes + behind;
}

// Other errors pass, as those of a server that is full or loads its data.
bool refuses_for_good(std::string_view answer) {
  return answer.starts_with("-NOPERM") || answer.starts_with("-WRONGPASS") || answer.starts_with("-ERR unknown");
}

}  // namespace

shared_writes::shared_writes(engine_host& host, const settings::redis_gate& gate, backend::mark_memory& marks,
                             metrics::gate& stats, const session_profile& like)
    : host_(host),
      stats_(stats),
      claims_(gate),
      link_(*this, host, gate, marks, stats, claims_, answers_),
      greetings_left_(like.commands),
      marks_(marks),
      server_(like.server) {
  link_.database = like.database;
  link_.out = like.bytes;
  for (std::size_t i = 0; i < like.commands; ++i) link_.expect({awaits::greeting});
}

// ── what the server says ────────────────────────────────────────────────────────────────────────────────────────────

void shared_writes::on_backend_bytes(std::string_view bytes) {
  link_.in.append(bytes);
  link_.read();
  link_.in.release();
  read_answers();
  invariants();
}

void shared_writes::on_reply(const expectation& /*front*/, const wire::reply_head& head) {
  link_.begin(head, sink::capture);
}

// The last greeting is INFO server. What comes behind it is the answer to a later name, without which the link works, too.
void shared_writes::on_reply_end(awaits /*what*/, std::string text) {
  if (refusal_.empty() && refuses_for_good(text)) refusal_ = armed_link::error_text(text);
  broken_ = broken_ || !refusal_.empty();
  if (ready() || broken_) return;
  const bool is_error = text.starts_with('-') || text.starts_with('!');
  const bool last = --greetings_left_ == 0;
  broken_ = is_error || (last && server_in(text).run_id != server_);
}

// Each whole answer is that of the first write that has none.
void shared_writes::read_answers() {
  std::string_view left = answers_;
  while (const std::size_t bytes = whole_reply(left)) {
    if (sent_.empty()) {
      broken_ = true;  // an answer to nothing
      break;
    }
    tell(std::string(left.substr(0, bytes)));
    left.remove_prefix(bytes);
  }
  answers_.erase(0, answers_.size() - left.size());
}

void shared_writes::tell(std::optional<std::string> answer) {
  ++answered_;
  told_.push_back({std::move(sent_.front()), std::move(answer)});
  sent_.pop_front();
}

void shared_writes::on_batch() {
  auto& batch = link_.batch;
  read_answers();
  const std::size_t applied = batch.applied();
  if (sent_.size() != batch.commands.size() - applied || !answers_.empty())
    return link_.unexpected("EXEC answered something else");
  if (batch.merged && batch.refused()) link_.merge_no_more();
  if (applied != 0) stats_.checks(metrics::check_outcome::admitted).add(applied);
  for (std::size_t i = applied; i < batch.commands.size(); ++i) {
    const auto& one = batch.commands[i];
    const bool goes_back = one.error.empty() || one.goes_alone();
    tell(goes_back ? std::nullopt : std::optional("-" + one.error + "\r\n"));
  }
  batch.clear();
  link_.finish_arm();
}

// ── its tags ────────────────────────────────────────────────────────────────────────────────────────────────────────

// Who brings a higher token has raised the mark.
std::shared_ptr<shared_writes::known_tag> shared_writes::know(const fence::claims_list& claims) {
  for (const auto& one : tags_)
    if (one->claims == claims) return one;
  const auto now = host_.now();
  for (const auto& tag : tags_)
    for (const auto& its : tag->claims)
      for (const auto& mine : claims)
        if (its.resource == mine.resource && its.presented > mine.presented &&
            now - tag->used <= limits::shared_tag_kept_min)
          return nullptr;
  const auto is_new = [this](const fence::claim& mine) {
    return std::none_of(tags_.begin(), tags_.end(), [&](const auto& tag) {
      return std::any_of(tag->claims.begin(), tag->claims.end(),
                         [&](const fence::claim& its) { return its.resource == mine.resource; });
    });
  };
  const auto has_room = [&] {
    const auto more = static_cast<std::size_t>(std::count_if(claims.begin(), claims.end(), is_new));
    return resources_ + more <= limits::tag_resources_max && tags_.size() < limits::tag_resources_max;
  };
  if (!has_room()) forget_if([now](const known_tag& one) { return now - one.used > limits::shared_tag_kept_min; });
  if (!has_room()) return nullptr;
  forget_if([&](const known_tag& tag) {
    for (const auto& its : tag.claims)
      for (const auto& mine : claims)
        if (its.resource == mine.resource && its.presented != mine.presented) return true;
    return false;
  });
  to_be_bound_ = true;
  tags_.push_back(std::make_shared<known_tag>(known_tag{claims, now}));
  count_resources();
  return tags_.back();
}

template <class Predicate>
void shared_writes::forget_if(Predicate is) {
  const auto forgotten = std::erase_if(tags_, [&](const auto& one) {
    if (!is(*one)) return false;
    one->bound = false;
    return true;
  });
  if (forgotten == 0) return;
  to_be_bound_ = true;
  count_resources();
}

void shared_writes::count_resources() {
  std::set<std::string_view> names;
  for (const auto& tag : tags_)
    for (const auto& one : tag->claims) names.insert(one.resource);
  resources_ = names.size();
}

// A tag that does not write any more costs each batch the look at its marks.
bool shared_writes::is_to_be_bound() {
  const auto now = host_.now();
  if (now - looked_through_ > limits::shared_tag_kept_max) {
    looked_through_ = now;
    forget_if([now](const known_tag& one) { return now - one.used > limits::shared_tag_kept_max; });
  }
  return to_be_bound_;
}

// Its writers have raised the marks: their claims are held. What the marks are, the arm tells.
void shared_writes::bind() {
  demand(link_.is_open(), "a shared link is bound anew while nothing is proven on it");
  to_be_bound_ = false;
  fence::claims_list all;
  for (const auto& tag : tags_)
    for (const auto& one : tag->claims)
      if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
  demand(all.size() <= limits::tag_resources_max, "a claim for each bit of a mask");
  claims_.bind(all, marks_);
  for (auto& one : claims_.items()) one.status = claim_status::held;
  for (const auto& tag : tags_) {
    tag->bound = true;
    tag->all = 0;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (std::find(tag->claims.begin(), tag->claims.end(), all[i]) != tag->claims.end())
        tag->all |= claim_mask{1} << i;
    tag->needs = tag->all & claims_.enforced();
  }
  const std::string name = std::string(shared_link_name) + ";fence:" + fence::write_tag(all);
  wire::append_command_of(link_.out, std::string_view("CLIENT"), std::string_view("SETNAME"), name);
  link_.expect({awaits::greeting});
}

// ── what its writers want ───────────────────────────────────────────────────────────────────────────────────────────

bool shared_writes::add(std::string_view command, const batched& as, std::weak_ptr<shared_writer> from,
                        const fence::claims_list& tag) {
  const auto known = know(tag);
  if (known == nullptr) return false;
  known->used = host_.now();
  waiting_.add({std::move(from), as, known}, command);
  invariants();
  return true;
}

// An arm in vain is repeated only without the marks that were in its way: else their own links tell the writers why.
bool shared_writes::arm() {
  if (!host_.snapshot().ready) return false;
  if (!tried_ && is_to_be_bound()) bind();
  give_back_unless([](const write& one) { return one.tag->bound; });
  give_back_overtaken();
  const auto these = claims_.armable();
  if (waiting_.writes.empty() || (tried_ && (these == *tried_ || (these & ~*tried_) != 0))) return false;
  tried_ = these;
  link_.arm(false);
  return true;
}

// One batch at a time, and nothing while the marks are not proven: until then a writer can have its write back.
void shared_writes::feed() {
  if (!ready() || broken() || waiting_.writes.empty()) return;
  const auto is_proven = [this](const write& one) { return one.tag->bound && link_.proves(one.tag->needs); };
  if (link_.armed()) {
    // What was proven just now goes first, or tags that come all the time would hold up all others.
    const bool just_now = std::exchange(tried_, std::nullopt).has_value();
    give_back_overtaken();
    const auto proven = std::count_if(waiting_.writes.begin(), waiting_.writes.end(), is_proven);
    const bool all = proven == std::ssize(waiting_.writes);
    // A mark that is known to have moved would end the batch.
    const bool in_vain = (link_.armed_for() & ~claims_.armable()) != 0;
    if (!waiting_.writes.empty() && (in_vain || ((is_to_be_bound() || !all) && !(just_now && proven != 0))))
      link_.leave();
  }
  if (link_.is_open() && !waiting_.writes.empty() && !arm()) give_back();
  if (!link_.armed()) return;
  auto& batch = link_.batch;
  std::size_t room = limits::batch_commands_max;
  const auto next = take_if([&](const write& one) { return room > 0 && is_proven(one) && room-- > 0; });
  std::string_view left = next.bytes;
  for (const auto& one : next.writes) {
    const auto bytes = left.substr(0, one.as.bytes);
    left.remove_prefix(one.as.bytes);
    if (const auto from = one.from.lock(); from == nullptr || from->gone()) continue;
    batch.bytes += bytes;
    batch.add(one.as);
    batch.required |= one.tag->needs;
    sent_.push_back(one.from);
  }
  if (batch.empty()) return feed();  // nobody waited for what was taken: no answer will come to go on with
  batch.needs = batch.required;
  link_.send_batch();
  invariants();
}

bool shared_writes::take_back(const shared_writer& from) {
  for (auto& one : waiting_.writes) {
    if (one.from.lock().get() != &from) continue;
    one.from.reset();
    return true;
  }
  return false;
}

void shared_writes::give_back() {
  tried_.reset();
  give_back_unless([](const write&) { return false; });
}

// As far as it is known, some mark is not its token any more.
void shared_writes::give_back_overtaken() {
  claims_.learn_from_memory();
  claims_.learn_that_they_were_raised();
  const claim_mask held = claims_.held();
  give_back_unless([held](const write& one) { return !one.tag->bound || (one.tag->all & ~held) == 0; });
}

template <class Predicate>
void shared_writes::give_back_unless(Predicate stays) {
  if (std::all_of(waiting_.writes.begin(), waiting_.writes.end(), stays)) return;
  const auto back = take_if([&](const write& one) { return !stays(one); });
  for (const auto& one : back.writes)  // who may add() another one
    if (const auto to = one.from.lock()) to->on_shared(std::nullopt);
}

// The others stay.
template <class Predicate>
shared_writes::queue shared_writes::take_if(Predicate is) {
  const auto all = std::exchange(waiting_, {});
  queue taken;
  std::string_view left = all.bytes;
  for (const auto& one : all.writes) {
    (is(one) ? taken : waiting_).add(one, left.substr(0, one.as.bytes));
    left.remove_prefix(one.as.bytes);
  }
  return taken;
}

void shared_writes::hand_out() {
  for (auto& one : std::exchange(told_, {}))
    if (const auto to = one.to.lock()) to->on_shared(one.answer);
  invariants();
}

void shared_writes::invariants(bool thorough) const {
  if (broken()) return;
  link_.invariants(false);
  demand(sent_.empty() || link_.at() == armed_link::state::batch, "what was sent is a batch under way");
  demand(resources_ <= limits::tag_resources_max, "a claim for each bit of a mask");
  if (!thorough) return;
  for (const auto& tag : tags_)
    demand(!tag->bound || static_cast<std::size_t>(std::popcount(tag->all)) == tag->claims.size(),
           "who is bound has a bit for each claim");
}

void shared_writes::end() {
  broken_ = true;
  for (const auto& one : std::exchange(sent_, {}))
    if (const auto to = one.lock()) to->on_shared_lost();
  give_back();
}

}  // namespace fencegate::gate
