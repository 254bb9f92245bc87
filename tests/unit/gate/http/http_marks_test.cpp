// Marks as a resource of their own: what is asked, how it is answered, and the desk of the admin listener.
#include "gate/http/http_marks.hpp"

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::gate {
namespace {

using testing::HasSubstr;

fence::claim claim(std::string resource, std::string_view token) {
  return {std::move(resource), fence::token::parse(token).value()};
}

// Keeps every question until the test answers it, unless the one who asked is gone.
class fake_stores final : public http_stores {
 public:
  void look(std::weak_ptr<const void> session, where route, const claims_list& wanted, fence_callback done) override {
    ask("look", std::move(session), route, wanted, std::move(done));
  }
  void raise(std::weak_ptr<const void> session, where route, const claims_list& wanted, fence_callback done) override {
    ask("raise", std::move(session), route, wanted, std::move(done));
  }
  std::unique_ptr<mark_hold> hold(std::weak_ptr<const void>, where, const claims_list&, fence_callback,
                                  hold_lost) override {
    ADD_FAILURE() << "nobody holds a mark that is only raised";
    return nullptr;
  }
  void run(std::weak_ptr<const void>, std::size_t, const claims_list&, route_values, bool,
           std::function<void(const atomic_answer&)>) override {
    ADD_FAILURE() << "there is nothing to run";
  }

  std::optional<fence::rejection> known_stale(where, const claims_list&) override { return {}; }
  void count_overtaken(where, const claims_list&, std::chrono::nanoseconds) override {
    ADD_FAILURE() << "nothing is forwarded";
  }

  struct question {
    std::string what;
    where route;
    claims_list claims;
    std::function<void(const fence_answer&)> answer;
  };
  std::vector<question>* asked = nullptr;

 private:
  void ask(std::string what, std::weak_ptr<const void> session, where route, const claims_list& wanted,
           fence_callback done) {
    auto deliver = [session = std::move(session), done = std::move(done)](const fence_answer& answer) {
      if (session.lock()) done(answer);
    };
    asked->push_back({std::move(what), route, wanted, std::move(deliver)});
  }
};

class HttpMarksDesk : public testing::Test {
 protected:
  HttpMarksDesk() {
    auto stores = std::make_unique<fake_stores>();
    stores->asked = &asked;
    gate.stores.emplace_back().name = "ledger";
    for (const auto* resource : {"order:{id}", "orders", "payments"}) add_route(resource, "ledger");
    add_route("elsewhere:{id}", "other");
    desk = std::make_unique<http_marks_desk>(std::move(stores), gate, plan_routes(gate).value(), stats, rejections);
  }

  void add_route(const std::string& resource, const std::string& store) {
    auto& route = gate.routes.emplace_back();
    route.pattern = "/" + std::to_string(gate.routes.size()) + "/{id:int}";
    route.resource = resource;
    route.store = store;
  }

  void ask(std::string_view method, std::string_view target, std::vector<header_field> fields = {}) {
    desk->ask({method, target, "localhost", fields, "127.0.0.1:5"},
              [this](http_marks_desk::answer a) { answers.push_back(std::move(a)); });
  }

  // The one answer so far.
  http_marks_desk::answer answered() {
    EXPECT_EQ(answers.size(), 1u);
    return answers.empty() ? http_marks_desk::answer{0, {}, {}, {}} : answers[0];
  }

  std::uint64_t counted(metrics::check_outcome what) { return stats.checks(what).value(); }

  settings::http_gate gate;
  metrics::gate stats{"api"};
  rejection_log rejections;
  std::vector<fake_stores::question> asked;
  std::vector<http_marks_desk::answer> answers;
  std::unique_ptr<http_marks_desk> desk;
};

TEST_F(HttpMarksDesk, RaisesAMarkInTheStoreOfTheGate) {
  ask("PUT", "/.fencegate/marks/order:7", {{"Fencing-Token", "34"}});
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].what, "raise");
  EXPECT_FALSE(asked[0].route.has_value());
  EXPECT_EQ(asked[0].claims, claims_list{claim("order:7", "34")});
  EXPECT_TRUE(answers.empty());
  asked[0].answer({{}, asked[0].claims, true});
  EXPECT_EQ(answered().status, 200);
  EXPECT_EQ(answered().body, R"({"resource":"order:7","mark":34,"raised":true})");
  EXPECT_EQ(answered().mark, "34");
  EXPECT_EQ(counted(metrics::check_outcome::raised), 1u);
}

TEST_F(HttpMarksDesk, RaisesNoMarkThatNoRouteOfItsStoreCanBeAbout) {
  for (const auto* resource : {"other", "order:", "order:07", "order:x", "orders2", "elsewhere:7"}) {
    answers.clear();
    ask("PUT", std::string("/.fencegate/marks/") + resource, {{"Fencing-Token", "34"}});
    EXPECT_EQ(answered().status, 403) << resource;
  }
  answers.clear();
  ask("PUT", "/.fencegate/marks/orders", {{"Fencing-Token", "orders=34, secret=12"}});
  EXPECT_EQ(answered().status, 403);
  EXPECT_THAT(answered().body, HasSubstr(R"("resource":"secret","token":12)"));
  EXPECT_TRUE(asked.empty());
  ask("GET", "/.fencegate/marks/other");
  EXPECT_EQ(asked.size(), 1u) << "to look at one does no harm";
}

TEST_F(HttpMarksDesk, AMarkThatCannotBeReadHasNoToken) {
  ask("GET", "/.fencegate/marks/orders");
  asked.at(0).answer({fence::rejection{fence::reason::unavailable, {}, {}, {}, "store ledger: it is down"}, {}, false});
  EXPECT_EQ(answered().status, 503);
  EXPECT_THAT(answered().body, HasSubstr(R"("resource":"orders")"));
  EXPECT_THAT(answered().body, testing::Not(HasSubstr("\"token\"")));
}

TEST_F(HttpMarksDesk, ReadsAMarkWithoutAToken) {
  ask("GET", "/.fencegate/marks/a%2Db");
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].what, "look");
  EXPECT_EQ(asked[0].claims[0].resource, "a-b");
  asked[0].answer({{}, {claim("a-b", "9223372036854775807")}, false});
  EXPECT_EQ(answered().body, R"({"resource":"a-b","mark":9223372036854775807})");
}

TEST_F(HttpMarksDesk, SaysThatThereIsNoMark) {
  ask("GET", "/.fencegate/marks/orders");
  asked.at(0).answer({});
  EXPECT_EQ(answered().status, 404);
  EXPECT_EQ(answered().content_type, "application/problem+json");
}

TEST_F(HttpMarksDesk, TellsTheMarkOfTheResourceThatWasAskedFor) {
  ask("PUT", "/.fencegate/marks/payments", {{"Fencing-Token", "orders=34, payments=12"}});
  asked.at(0).answer({{}, asked[0].claims, true});
  EXPECT_THAT(answered().body, HasSubstr(R"("resource":"payments","mark":12)"));
  EXPECT_EQ(answered().mark, "orders=34, payments=12");
}

TEST_F(HttpMarksDesk, PassesOnWhatTheStoreRejects) {
  ask("PUT", "/.fencegate/marks/orders", {{"Fencing-Token", "33"}});
  const auto stale = claim("orders", "33");
  asked.at(0).answer(
      {fence::rejection{fence::reason::stale, "orders", stale.presented, claim("orders", "34").presented, {}},
       {},
       false});
  EXPECT_EQ(answered().status, 412);
  EXPECT_THAT(answered().body, HasSubstr(R"("mark":34,"applied":"no")"));
  EXPECT_EQ(answered().mark, "34");
  EXPECT_EQ(counted(metrics::check_outcome::stale), 1u);
  EXPECT_EQ(counted(metrics::check_outcome::raised) + counted(metrics::check_outcome::admitted), 0u);
}

TEST_F(HttpMarksDesk, AsksNoStoreWithoutAGoodToken) {
  struct {
    std::vector<header_field> fields;
    int status;
  } const cases[] = {{{}, 428},
                     {{{"Fencing-Token", "034"}}, 400},
                     {{{"Fencing-Token", "1"}, {"fencing_token", "1"}}, 400},
                     {{{"Fencing-Token", "1"}, {"X-Fencing-Token", "2"}}, 400},
                     {{{"Fencing-Token", "payments=12"}}, 428}};
  const auto* const needs = "a raise of a mark needs a fencing token for orders";
  for (const auto& one : cases) {
    answers.clear();
    ask("PUT", "/.fencegate/marks/orders", one.fields);
    EXPECT_EQ(answered().status, one.status) << (one.fields.empty() ? "" : one.fields[0].value);
    EXPECT_THAT(answered().body, HasSubstr(one.status == 428 ? needs : "no usable fencing token"));
  }
  EXPECT_TRUE(asked.empty());
}

TEST_F(HttpMarksDesk, AsksNoStoreForWhatIsNoMark) {
  const std::pair<const char*, int> cases[] = {{"/.fencegate/marks/", 400},      {"/.fencegate/marks/a%20b", 400},
                                               {"/.fencegate/marks/a%2Fb", 400}, {"/.fencegate/marks/../x", 400},
                                               {"/.fencegate/other", 404},       {"/", 404}};
  for (const auto& [target, status] : cases) {
    answers.clear();
    ask("GET", target);
    EXPECT_EQ(answered().status, status) << target;
  }
  answers.clear();
  ask("DELETE", "/.fencegate/marks/orders");
  EXPECT_EQ(answered().status, 405);
  EXPECT_TRUE(asked.empty());
}

TEST_F(HttpMarksDesk, IsSilentOnceItIsGone) {
  ask("GET", "/.fencegate/marks/orders");
  desk.reset();
  asked.at(0).answer({});
  EXPECT_TRUE(answers.empty());
}

}  // namespace
}  // namespace fencegate::gate
