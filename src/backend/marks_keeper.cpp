// Events, and the looks at the server: is it fit to keep marks?
#include "backend/marks_keeper.hpp"

#include "backend/redis_info.hpp"
#include "backend/redis_replies.hpp"
#include "base/log.hpp"

#include <string_view>
#include <utility>

namespace fencegate::backend {

using detail::is_error;
using detail::words_of;

namespace {

bool is_demoted(const wire::reply_value& info) { return !is_error(&info) && !read_redis_info(info.text).primary; }

}  // namespace

marks_keeper::marks_keeper(redis_state& shared, control_link& link)
    : shared_(shared),
      link_(link),
      raising_(
          shared, link,
          {.other_epoch = [this](auto then) { recheck(std::move(then)); }, .went_back = [this] { doubted_ = true; }}),
      compared_(shared.marks) {}

// ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────────

void marks_keeper::on_connected() {
  state_ = state::looking;
  look();
}

void marks_keeper::on_lost(const std::string& why) {
  if (state_ == state::ended) return;
  ++connection_;
  const bool proved = proves();
  if (state_ == state::at_work) {  // what it was about to put back, another thread may take for done
    doubted_ = true;
    shared_.marks.all_came_late();
  }
  state_ = state::down;
  put_back_.clear();
  quiet_.begin_anew();
  ++failures_;
  if (proved || failures_ == 1) shared_.event().add("detail", why).write(log::level::warn, "backend lost");
  not_ready("the backend is down: " + why);
  answer_rechecks();
}

void marks_keeper::end(const std::string& why) {
  ++connection_;
  if (state_ == state::at_work) shared_.marks.all_came_late();
  state_ = state::ended;
  problem_ = "the backend is down: " + why;
  answer_rechecks();
}

void marks_keeper::on_tick() {
  if (state_ == state::at_work) announce_healing([](const wire::reply_value*) {});
  if (state_ == state::unfit || (state_ == state::serving && next_look_ < link_.now())) look();
}

void marks_keeper::recheck(std::function<void()> done) {
  if (!connected()) return done();
  rechecks_.push_back(std::move(done));
  if (!looks()) look();
}

void marks_keeper::read(const std::shared_ptr<mark_cell>& cell, std::function<void(const mark_reading&)> done) {
  if (!cell->kept) return done({{}, std::string(too_many_resources)});
  if (!proves()) return done({{}, problem_});
  raising_.read(cell, std::move(done));
}

// ── the server's fitness ────────────────────────────────────────────────────────────────────────────────────────────

void marks_keeper::look() {
  state_ = proves() ? state::looking_again : state::looking;
  next_look_ = link_.now() + inspection_interval;
  link_.send({"INFO"}, [this](const wire::reply_value* reply) {
    if (reply != nullptr && !only_busy(reply)) on_info(*reply);
  });
}

void marks_keeper::on_info(const wire::reply_value& info) {
  const auto problem = unfitness(info);
  if (!problem.empty()) {
    if (proves() || failures_ <= 1) shared_.event().add("detail", problem).write(log::level::error, "backend unfit");
    ++failures_;
    // A connection outlives what its address leads to: another one may find the primary.
    if (!is_demoted(info)) return unfit(problem);
    not_ready(problem);
    return link_.drop(problem);
  }
  server_empty_ = info.text.find("\r\ndb") == std::string_view::npos;
  inspected_ = info_field(info.text, "run_id") + ":" + info_field(info.text, "master_replid");
  check_epoch();
}

// Why a server must not keep marks; "" = it may.
std::string marks_keeper::unfitness(const wire::reply_value& info) const {
  if (is_error(&info)) return "INFO failed: " + words_of(&info);
  const auto said = read_redis_info(info.text);
  if (!said.primary) return "the upstream is a replica; point the gate at the primary";
  if (said.may_evict_marks())
    return "maxmemory-policy " + said.eviction + " can evict marks; set noeviction or a volatile-* policy";
  if (said.cluster) return "Redis Cluster is not supported: marks and data of one batch must be in one slot";
  if (shared_.look().commands == command_table::empty()) return "the server's COMMAND table could not be read";
  return {};
}

// A script runs, and nothing else: what was seen before it still holds. The clients' links hear of it themselves. The look
// is made up for at once: others may count on it.
bool marks_keeper::only_busy(const wire::reply_value* reply) {
  if (!proves() || !is_error(reply) || !reply->text.starts_with("BUSY ")) return false;
  state_ = state::serving;
  next_look_ = {};
  answer_rechecks();
  return true;
}

void marks_keeper::healthy(const std::string& epoch, const std::string& known) {
  if (!shared_.take_over(epoch, known)) return check_epoch();
  if (!proves()) shared_.event().write(log::level::info, "backend up");
  state_ = state::serving;
  problem_.clear();
  not_put_back_.clear();
  proven_ = inspected_;
  failures_ = 0;
  answer_rechecks();
  heal_late();
}

// Writes are rejected from here on, and whoever waited for a look at the server learns it.
void marks_keeper::unfit(std::string problem) {
  not_ready(std::move(problem));
  state_ = state::unfit;
  answer_rechecks();
}

void marks_keeper::not_ready(std::string problem) {
  if (proves()) state_ = state::looking;
  problem_ = std::move(problem);
  shared_.change([this](redis_state::snapshot& p) {
    p.ready = false;
    p.problem = problem_;
  });
}

void marks_keeper::answer_rechecks() {
  auto waiting = std::exchange(rechecks_, {});
  for (auto& one : waiting) one();
}

}  // namespace fencegate::backend
