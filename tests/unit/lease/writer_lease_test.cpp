// The lease of a writer, with an issuer, gates and a clock that are the test's: what comes in which order.
#include "lease/writers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace fencegate::lease {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using phase = writer_phase;
using report = writer::report;

constexpr timing quick{milliseconds(300), milliseconds(20), milliseconds(20), milliseconds(5), milliseconds(5)};

// Grants what is free, and says so in `seen`.
class scripted_issuer final : public issuer {
 public:
  scripted_issuer(boost::asio::io_context& io, std::vector<std::string>& seen) : io_(io), seen_(seen) {}

  void identify(std::function<void(const answer<std::string>&)> done) override {
    boost::asio::post(io_, [done] { done({boost::system::in_place_value, "me"}); });
  }
  void acquire(const grant_request& wanted, std::function<void(const grant_answer&)> done) override {
    boost::asio::post(io_, [this, wanted, done] {
      if (held_by_another) return done({grant_answer::kind::held, {}, "orders", "b", milliseconds(20)});
      ++token;
      valid = true;
      seen_.push_back("granted");
      done({grant_answer::kind::granted, {{"orders", fence::token(token)}}});
    });
  }
  void renew(const term& held, std::function<void(const result<renewal>&)> done) override {
    ++renewals;
    if (deaf) return;
    boost::asio::post(io_, [this, held, done] {
      const bool mine = valid && held.claims.front().presented == fence::token(token);
      done(renewal{mine ? held.claims : fence::claims_list{}, quick.ttl});
    });
  }
  void release(const term&, bool, std::function<void(const result<void>&)> done) override {
    boost::asio::post(io_, [this, done] {
      seen_.push_back("released");
      valid = false;
      if (keeps_answers) return kept.push_back([done] { done({}); });
      done({});
    });
  }
  void forget_store(const std::string&, const std::string&, std::function<void(const result<bool>&)>) override {}
  void list(std::function<void(const result<std::vector<lease_entry>>&)>) override {}

  bool held_by_another = false, valid = false;
  bool deaf = false;  // to renewals
  bool keeps_answers = false;
  std::vector<std::function<void()>> kept;  // answers to releases
  int token = 0, renewals = 0;

 private:
  boost::asio::io_context& io_;
  std::vector<std::string>& seen_;
};

// Seals for one grant, and for each other above its mark.
class scripted_place final : public seal_place {
 public:
  scripted_place(boost::asio::io_context& io, std::vector<std::string>& seen) : io_(io), seen_(seen) {}

  [[nodiscard]] const std::string& name() const override { return name_; }
  void identify(std::function<void(const answer<std::string>&)> done) override {
    boost::asio::post(io_, [done] { done({boost::system::in_place_value, "place"}); });
  }
  void look(const std::vector<std::string>&,
            std::function<void(const answer<std::vector<backend::looked_mark>>&)> done) override {
    boost::asio::post(io_, [done] { done(std::vector<backend::looked_mark>{}); });
  }
  void seal(const term& held, const std::string&,
            std::function<void(const backend::store_result<void>&)> done) override {
    boost::asio::post(io_, [this, held, done] {
      const auto& claim = held.claims.front();
      if (unreachable) {
        ++missed;
        return done(fence::rejection{fence::reason::unavailable, claim.resource, claim.presented, {}, "no answer"});
      }
      if (claim.presented < mark)
        return done(fence::rejection{fence::reason::stale, claim.resource, claim.presented, mark, {}});
      mark = claim.presented;
      seen_.push_back("sealed");
      done({});
    });
  }
  void move(const std::string&, const std::string&, const std::string&,
            std::function<void(const result<std::string>&)>) override {}

  fence::token mark{0};
  bool unreachable = false;
  int missed = 0;

 private:
  boost::asio::io_context& io_;
  std::vector<std::string>& seen_;
  const std::string name_ = "gate:cache";
};

class scripted_gate final : public writer_gate {
 public:
  scripted_gate(std::vector<std::string>& seen, std::function<bool()> recorded)
      : seen_(seen), recorded_(std::move(recorded)) {}

  void listen_anew(std::function<void(const result<void>&)> done) override {
    seen_.emplace_back("listens anew");
    if (cannot_listen) return done(error{"the port is taken"});
    done({});
  }
  void open_to(std::shared_ptr<const bond> held) override {
    seen_.push_back("open to " + fence::write_tag(held->claims()) + (recorded_() ? "" : ", not written down"));
    last = std::move(held);
  }
  void shut(writer_phase, const std::string& why) override {
    if (last && !last->may_bind(clock_reading::now())) revoked_when_shut = true;
    words = why;
  }

  std::shared_ptr<const bond> last;
  std::string words;
  bool cannot_listen = false, revoked_when_shut = false;

 private:
  std::vector<std::string>& seen_;
  const std::function<bool()> recorded_;
};

class WriterLease : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "fencegate-writer-XXXXXX";
    folder = ::mkdtemp(name.data());
    source = std::make_shared<scripted_issuer>(io, seen);
    gate.emplace(seen, [this] { return std::filesystem::exists(folder + "/app.term"); });
  }
  void TearDown() override {
    lease.reset();
    source->kept.clear();  // each keeps its keeper, and that keeps the source
    disk.join();
    std::filesystem::remove_all(folder);
  }

  void begin(writer_rules rules = {}) {
    writer_wish wish{"app", std::move(rules), {"orders"}, {&*gate}, term_file(folder, "app")};
    lease = std::make_shared<writer_lease>(io, disk, std::move(wish), sources(), stats, state);
    lease->start();
  }
  lease_sources sources() {
    return [this](const std::vector<std::string>& resources, std::optional<milliseconds>, std::optional<milliseconds>) {
      keeper_request request;
      request.resources = resources;
      request.holder = "a";
      request.times = times;
      return result<lease_source>(lease_source{source, places, request});
    };
  }
  template <class Condition>
  void until(Condition holds) {
    const auto end = std::chrono::steady_clock::now() + seconds(10);
    bool held = holds();  // asked once: it may be a report, which changes something
    while (!held && std::chrono::steady_clock::now() < end) {
      io.restart();
      io.run_one_for(milliseconds(10));
      held = holds();
    }
    ASSERT_TRUE(held) << testing::PrintToString(seen);
  }
  void until(phase wanted) {
    until([&] { return lease->view().phase == wanted; });
  }
  report start_now() {
    return lease->started(
        "", boot_clock::time_point(std::chrono::floor<milliseconds>(boot_clock::now().time_since_epoch())));
  }
  void hold() {
    until([this] { return start_now() == report::counted; });  // a millisecond later than this process
    until(phase::holding);
  }

  boost::asio::io_context io;
  boost::asio::thread_pool disk{1};
  std::vector<std::string> seen;
  std::shared_ptr<scripted_issuer> source;
  std::vector<std::shared_ptr<seal_place>> places;
  std::optional<scripted_gate> gate;
  metrics::leases stats;
  metrics::writer state{"app"};
  std::string folder;
  timing times = quick;
  std::shared_ptr<writer_lease> lease;
};

TEST_F(WriterLease, ListensAnewTakesWritesDownAndOpensInThisOrder) {
  begin();
  EXPECT_EQ(lease->started("", boot_clock::now() - seconds(1)), report::early);
  EXPECT_THAT(seen, IsEmpty());
  hold();
  EXPECT_THAT(seen, ElementsAre("listens anew", "granted", "open to orders=1"));
}

TEST_F(WriterLease, ALossIsBehindTheRevocation) {
  begin();
  hold();
  const auto bound = gate->last;
  source->valid = false;
  until(phase::lost);
  EXPECT_TRUE(gate->revoked_when_shut);
  EXPECT_FALSE(bound->may_bind(clock_reading::now()));
  EXPECT_EQ(stats.lost(metrics::lease_end::superseded).value(), 1u);
  EXPECT_THAT(gate->words, testing::StartsWith("lost: "));
  seen.clear();
  hold();
  EXPECT_THAT(seen, ElementsAre("listens anew", "granted", "open to orders=2"));
}

TEST_F(WriterLease, BindsNothingThatIsNotWrittenDown) {
  begin();
  until([this] { return lease->view().phase == phase::unknown; });
  std::filesystem::remove_all(folder);
  until([this] { return start_now() == report::counted; });
  until([this] { return std::find(seen.begin(), seen.end(), "released") != seen.end(); });
  EXPECT_EQ(lease->view().phase, phase::standby);
  EXPECT_EQ(gate->last, nullptr);
  std::filesystem::create_directory(folder);
  until(phase::holding);
}

TEST_F(WriterLease, TakesNothingWhileAGateCannotListenAnew) {
  begin();
  gate->cannot_listen = true;
  until([this] { return start_now() == report::counted; });
  until([this] { return lease->view().detail == "standby: the port is taken"; });
  EXPECT_THAT(seen, testing::Not(Contains("granted")));
  gate->cannot_listen = false;
  until(phase::holding);
}

TEST_F(WriterLease, ANewProcessGoesOnWithThatVeryTermOnly) {
  begin();
  hold();
  lease.reset();  // killed
  gate->last = nullptr;
  seen.clear();
  begin();
  EXPECT_EQ(lease->view().phase, phase::unknown);
  until(phase::holding);
  EXPECT_THAT(seen, ElementsAre("open to orders=1"));
  lease.reset();
  ++source->token;  // another took it
  seen.clear();
  begin();
  until([this] { return !std::filesystem::exists(folder + "/app.term"); });
  EXPECT_EQ(lease->view().phase, phase::unknown);
  EXPECT_THAT(seen, IsEmpty());
}

TEST_F(WriterLease, ATermThatIsResumedIsSealedAgainBeforeAnythingIsBoundToIt) {
  begin();
  hold();
  lease.reset();  // killed
  const auto added = std::make_shared<scripted_place>(io, seen);
  added->unreachable = true;
  places = {added};
  seen.clear();
  begin();
  until([&] { return added->missed == 2; });
  EXPECT_EQ(lease->view().phase, phase::unknown);
  EXPECT_THAT(seen, IsEmpty());
  added->unreachable = false;
  until(phase::holding);
  EXPECT_THAT(seen, ElementsAre("sealed", "open to orders=1"));
}

TEST_F(WriterLease, ATermWhoseSealIsRefusedIsNotResumed) {
  begin();
  hold();
  lease.reset();  // killed
  const auto held_before = stats.in(metrics::lease_state::held).value();
  const auto added = std::make_shared<scripted_place>(io, seen);
  added->mark = fence::token(5);
  places = {added};
  seen.clear();
  begin();
  until([this] { return !seen.empty() && !std::filesystem::exists(folder + "/app.term"); });
  EXPECT_EQ(lease->view().phase, phase::unknown);
  EXPECT_THAT(seen, ElementsAre("released"));
  EXPECT_EQ(stats.in(metrics::lease_state::held).value(), held_before);
}

TEST_F(WriterLease, AProcessThatEndsWhileItResumesReleasesThatTerm) {
  const std::vector<std::function<bool()>> when{
      [] { return true; },                                                  // the record is being read
      [this] { return source->renewals > 0; },                              // the issuer is asked
      [this] { return stats.in(metrics::lease_state::held).value() > 0; },  // it is being sealed
  };
  for (std::size_t i = 0; i < when.size(); ++i) {
    SCOPED_TRACE(i);
    begin();
    hold();
    lease.reset();  // killed
    stats.in(metrics::lease_state::held).set(0);
    const auto place = std::make_shared<scripted_place>(io, seen);
    place->unreachable = true;
    places = {place};
    source->deaf = i == 1;
    source->renewals = 0;
    seen.clear();
    begin();
    until(when[i]);
    lease->drain();
    bool done = false;
    lease->release([&] { done = true; });
    until([&] { return done; });
    EXPECT_THAT(seen, ElementsAre("released"));
    lease.reset();
    places.clear();
    source->deaf = false;
  }
}

TEST_F(WriterLease, TheEndWaitsForWhatIsOnItsWayBack) {
  const auto place = std::make_shared<scripted_place>(io, seen);
  begin();
  hold();
  lease.reset();  // killed
  place->unreachable = true;
  places = {place};
  begin();
  until([&] { return place->missed > 0; });
  source->keeps_answers = true;
  lease->drain();
  bool done = false;
  lease->release([&] { done = true; });
  until([this] { return !source->kept.empty(); });
  EXPECT_FALSE(done);
  source->kept.front()();
  until([&] { return done; });
  EXPECT_FALSE(std::filesystem::exists(folder + "/app.term"));
}

TEST_F(WriterLease, AnotherStartInStandbyClosesWhatItsPredecessorLeft) {
  source->held_by_another = true;
  begin();
  until([this] { return start_now() == report::counted; });
  until([this] { return lease->view().held_by == "b"; });
  EXPECT_THAT(seen, ElementsAre("listens anew"));
  const auto then = boot_clock::now() + milliseconds(1);
  until([&] { return boot_clock::now() > then; });
  EXPECT_EQ(start_now(), report::counted);
  until([this] { return seen.size() == 2; });
  EXPECT_THAT(seen, ElementsAre("listens anew", "listens anew"));
  source->held_by_another = false;
  until(phase::holding);
  EXPECT_THAT(seen, ElementsAre("listens anew", "listens anew", "granted", "open to orders=1"));
}

TEST_F(WriterLease, AStartThatIsRepeatedInStandbyChangesNothing) {
  source->held_by_another = true;
  begin();
  std::optional<boot_clock::time_point> start;
  until([&] {
    start = boot_clock::time_point(std::chrono::floor<milliseconds>(boot_clock::now().time_since_epoch()));
    return lease->started("", *start) == report::counted;
  });
  until([this] { return lease->view().held_by == "b"; });
  EXPECT_EQ(lease->started("", *start), report::counted);
  EXPECT_NE(lease->started("", *start - milliseconds(1)), report::ahead);
  source->held_by_another = false;
  until(phase::holding);
  EXPECT_THAT(seen, ElementsAre("listens anew", "granted", "open to orders=1"));
}

TEST_F(WriterLease, IsNotSilentBecauseItsSidecarStoodStill) {
  times = timing::of(seconds(30));
  begin({false, {}, milliseconds(600)});
  hold();
  lease->heard();
  std::this_thread::sleep_for(milliseconds(1'200));  // probes would wait in the queues
  io.restart();
  io.poll();
  EXPECT_EQ(lease->view().phase, phase::holding);
  until(phase::lost);  // there was none
}

TEST_F(WriterLease, IsLostAtOnceAndOnceByAMarkAboveItsToken) {
  times = timing::of(seconds(30));
  begin();
  hold();
  lease->superseded({"orders", fence::token(2)});
  lease->superseded({"stock", fence::token(1)});
  EXPECT_EQ(lease->view().phase, phase::holding) << "of another grant";
  const auto bound = gate->last;
  lease->superseded({"orders", fence::token(1)});
  lease->superseded({"orders", fence::token(1)});
  EXPECT_EQ(lease->view().phase, phase::lost);
  EXPECT_FALSE(bound->may_bind(clock_reading::now()));
  EXPECT_EQ(stats.lost(metrics::lease_end::superseded).value(), 1u);
  until([this] { return seen.back() == "released"; });
  hold();
  EXPECT_THAT(seen, ElementsAre("listens anew", "granted", "open to orders=1", "released", "listens anew", "granted",
                                "open to orders=2"));
}

TEST_F(WriterLease, ThatRebindsReleasesATermBelowAMarkBeforeItTakesTheNext) {
  times = timing::of(seconds(30));
  begin({true, {}, seconds(30)});
  until(phase::holding);
  lease->superseded({"orders", fence::token(1)});
  until(phase::holding);
  EXPECT_THAT(seen, ElementsAre("granted", "open to orders=1", "released", "granted", "open to orders=2"));
}

TEST_F(WriterLease, SaysWhoHoldsIt) {
  source->held_by_another = true;
  begin();
  until([this] { return start_now() == report::counted; });
  until([this] { return lease->view().held_by == "b"; });
  EXPECT_EQ(gate->words, "standby: held by b");
  EXPECT_EQ(state.in_state[static_cast<std::size_t>(phase::standby)].value(), 1);
  EXPECT_EQ(stats.in(metrics::lease_state::waiting).value(), 1);
  source->held_by_another = false;
  until(phase::holding);
  EXPECT_EQ(lease->view().held_by, "a");
  EXPECT_EQ(stats.in(metrics::lease_state::waiting).value(), 0);
  EXPECT_EQ(stats.in(metrics::lease_state::held).value(), 1);
}

TEST_F(WriterLease, ReleasesAtTheEndAndWhenTheWriterIsSilent) {
  begin({false, {}, milliseconds(600)});
  hold();
  lease->heard();
  until(phase::lost);
  until([this] { return seen.back() == "released"; });
  EXPECT_EQ(stats.in(metrics::lease_state::held).value(), 0);
  hold();
  lease->drain();
  bool done = false;
  EXPECT_EQ(lease->view().phase, phase::holding) << "until its connections have ended";
  lease->release([&] { done = true; });
  until([&] { return done; });
  EXPECT_EQ(seen.back(), "released");
  EXPECT_FALSE(std::filesystem::exists(folder + "/app.term"));
}

TEST_F(WriterLease, ThatRebindsTakesItAgainByItself) {
  begin({true, {}, seconds(30)});
  until(phase::holding);
  source->valid = false;
  until([this] { return gate->last->claims().front().presented == fence::token(2); });
  EXPECT_THAT(seen, testing::Not(Contains("listens anew")));
}

}  // namespace
}  // namespace fencegate::lease
