#include "backend/redis_facts.hpp"

#include "backend/redis_dialogue.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

namespace fencegate::backend {
namespace {

using words = std::vector<std::string>;
using stranger = redis_facts::stranger;

// Of a resource that nobody has; nothing is written to it.
constexpr std::string_view some_mark = "fencegate:mark:{fencegate-doctor}";
constexpr std::string_view some_key = "fencegate-doctor";

// Each of them by itself can change or take away a mark.
std::vector<words> ways_to_change(const std::string& key) {
  return {{"SET", key, "1"},
          {"SETEX", key, "9", "1"},
          {"GETSET", key, "1"},
          {"MSET", key, "1"},
          {"SETRANGE", key, "0", "1"},
          {"APPEND", key, "1"},
          {"INCR", key},
          {"DEL", key},
          {"UNLINK", key},
          {"GETDEL", key},
          {"EXPIRE", key, "9"},
          {"RENAME", key, key},
          {"COPY", key, key, "REPLACE"},
          {"RESTORE", key, "0", "1", "REPLACE"}};
}

// Users are asked about so many at most.
constexpr std::size_t users_most = 200;

result<std::string> setting_of(const redis_dialogue::reply& said, std::string_view name) {
  if (said.is_error) return why_refused(said.text, "+config|get");
  if (said.list.size() != 2 || said.list[0].text != name) return error{"Redis does not tell"};
  return {boost::system::in_place_value, said.list[1].text};
}

// Those who may sign in, but `own`. A line of ACL LIST: "user orders on …".
words users_of(const redis_dialogue::reply& listed, std::string_view own) {
  words out;
  constexpr std::string_view front = "user ";
  for (const auto& one : listed.list) {
    const std::string_view line = one.text;
    if (!line.starts_with(front)) continue;
    const auto name = line.substr(front.size(), line.find(' ', front.size()) - front.size());
    const auto rest = line.substr(front.size() + name.size());
    if (name != own && (rest.starts_with(" on ") || rest == " on")) out.emplace_back(name);
  }
  return out;
}

// Of PING, MULTI and what stands behind it, as far as it was answered. REQUIRES: PING was.
result<stranger> stranger_of(const redis_dialogue::outcome& came) {
  const auto& all = came.replies;
  if (all[0].is_error && all[0].text.starts_with("NOAUTH")) return stranger::nothing;
  if (all[0].is_error && !all[0].text.starts_with("NOPERM")) return error{all[0].text};
  if (!came.problem.empty()) return error{came.problem};
  if (all[1].is_error) return error{"the default user needs no password, and may not MULTI: " + all[1].text};
  const auto may = [](const redis_dialogue::reply& one) {
    return !one.is_error || one.text.find(" key") != std::string::npos;  // one that he may write elsewhere
  };
  const auto writes = std::any_of(all.begin() + 2, all.end() - 1, may);  // the last one is DISCARD's
  return writes ? stranger::writes : stranger::no_writes;
}

}  // namespace

redis_facts_question::redis_facts_question(boost::asio::io_context& context, settings::address where,
                                           settings::tls secured, settings::credentials login,
                                           std::chrono::milliseconds patience)
    : context_(context),
      where_(std::move(where)),
      secured_(std::move(secured)),
      login_(std::move(login)),
      patience_(patience) {}

void redis_facts_question::ask(std::function<void(const findings&)> done) {
  done_ = std::move(done);
  ask_as_stranger();
}

void redis_facts_question::ask_as_stranger() {
  stranger_ = std::make_shared<redis_dialogue>(context_, where_, secured_, patience_);
  const std::string mark(some_mark), key(some_key);
  stranger_->ask({{"PING"}, {"MULTI"}, {"SET", mark, "1"}, {"DEL", mark}, {"SET", key, "1"}, {"DEL", key}, {"DISCARD"}},
                 [weak = weak_from_this()](const redis_dialogue::outcome& came) {
                   const auto self = weak.lock();
                   if (!self) return;
                   self->stranger_->close();
                   if (came.replies.empty()) return std::exchange(self->done_, nullptr)(unreached(came.problem));
                   self->found_.strangers = stranger_of(came);
                   self->ask_as_gate();
                 });
}

void redis_facts_question::ask_as_gate() {
  gate_ = std::make_shared<redis_dialogue>(context_, where_, secured_, patience_);
  std::vector<words> commands{first_words(login_)};
  const words questions[] = {
      {"INFO"}, {"CONFIG", "GET", "appendfsync"}, {"CONFIG", "GET", "no-appendfsync-on-rewrite"}, {"ACL", "LIST"}};
  commands.insert(commands.end(), std::begin(questions), std::end(questions));
  gate_->ask(std::move(commands), [weak = weak_from_this()](const redis_dialogue::outcome& came) {
    const auto self = weak.lock();
    if (!self) return;
    const auto& all = came.replies;
    if (!came.problem.empty()) return std::exchange(self->done_, nullptr)(unreached(came.problem));
    if (all[0].is_error && !all[0].text.starts_with("NOPERM"))
      return std::exchange(self->done_, nullptr)(unreached("Redis refused the gate's own user: " + all[0].text));
    auto& found = self->found_;
    found.info = all[1].is_error ? result<redis_info>(why_refused(all[1].text, "+info")) : read_redis_info(all[1].text);
    found.appendfsync = setting_of(all[2], "appendfsync");
    found.no_fsync_on_rewrite = setting_of(all[3], "no-appendfsync-on-rewrite");
    if (!all[4].is_error)
      return self->ask_of_users(users_of(all[4], self->login_.user.empty() ? "default" : self->login_.user));
    found.forgers = why_refused(all[4].text, "+acl|list and +acl|dryrun");
    self->finish();
  });
}

void redis_facts_question::ask_of_users(const words& users) {
  if (users.size() > users_most) {
    found_.forgers = error{"there are more than " + std::to_string(users_most) + " users"};
    return finish();
  }
  const auto ways = ways_to_change(std::string(some_mark));
  std::vector<words> commands;
  for (const auto& user : users)
    for (const auto& way : ways) {
      commands.push_back({"ACL", "DRYRUN", user});
      commands.back().insert(commands.back().end(), way.begin(), way.end());
    }
  if (commands.empty()) {
    found_.forgers = words{};
    return finish();
  }
  gate_->ask(std::move(commands),
             [weak = weak_from_this(), users, each = ways.size()](const redis_dialogue::outcome& came) {
               const auto self = weak.lock();
               if (!self) return;
               if (!came.problem.empty()) return std::exchange(self->done_, nullptr)(unreached(came.problem));
               words forgers;
               error failed;
               for (std::size_t i = 0; i < came.replies.size(); ++i) {
                 const auto& one = came.replies[i];
                 if (one.is_error) failed = why_refused(one.text, "+acl|dryrun");
                 const auto& user = users[i / each];
                 if (one.text == "OK" && (forgers.empty() || forgers.back() != user)) forgers.push_back(user);
               }
               if (failed.message.empty())
                 self->found_.forgers = std::move(forgers);
               else
                 self->found_.forgers = failed;
               self->finish();
             });
}

void redis_facts_question::finish() {
  gate_->close();
  std::exchange(done_, nullptr)(judge(found_));
}

}  // namespace fencegate::backend
