#include "cli/reload.hpp"

#include "config_fixture.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace fencegate::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::string_view stores_text =
    "stores:\n  ledger: { url: postgres://fencegate:secret@127.0.0.1/app }\n"
    "leases:\n  issuers: { main: { store: ledger } }\n";

std::string gate_text(const std::string& keys, const std::string& upstream = "redis://127.0.0.1") {
  return "gates:\n  - { name: cache, protocol: redis, listen: \"127.0.0.1:6380\", upstream: \"" + upstream + "\"" +
         keys + " }\n";
}

class Reload : public ConfigTest {
 protected:
  [[nodiscard]] std::vector<std::string> restarts(const std::string& now, const std::string& next) const {
    return needs_restart(settings_of(now), settings_of(next));
  }
};

TEST_F(Reload, GatesStoresAndWhatIsAskedForOnlyWhenItIsNeededNeedNone) {
  const auto before = gate_text("");
  EXPECT_THAT(restarts(before, gate_text(", connections_max: 5", "redis://127.0.0.1:7000") +
                                   "drain_timeout: 3s\nstrict: true\nlog: { level: warn, format: text }\n"
                                   "stores:\n  cache: { url: redis://127.0.0.1 }\n"),
              IsEmpty());
  EXPECT_THAT(restarts(before, before), IsEmpty());
}

TEST_F(Reload, EachKeyThatNeedsOneIsNamed) {
  EXPECT_THAT(
      restarts(gate_text(""), gate_text("") + "threads: 3\nbusy_poll_us: 5\nadmin: { listen: \"127.0.0.1:9\" }\n"),
      ElementsAre("threads has changed: that needs a restart", "busy_poll_us has changed: that needs a restart",
                  "admin has changed: that needs a restart"));
}

TEST_F(Reload, TlsOfTheAdminListenerNeedsOne) {
  files = {{"/crt", "-"}, {"/key", "-"}};
  const std::string before = "admin: { listen: \"127.0.0.1:9\" }\n";
  EXPECT_THAT(restarts(before + gate_text(""),
                       "admin: { listen: \"127.0.0.1:9\", tls: { cert: /crt, key: /key } }\n" + gate_text("")),
              ElementsAre("admin has changed: that needs a restart"));
}

TEST_F(Reload, WhereThereAreLeasesTheServersThatAreSealedStay) {
  const auto before = gate_text("") + std::string(stores_text);
  EXPECT_THAT(restarts(before, gate_text(", connections_max: 5") + std::string(stores_text)), IsEmpty());
  EXPECT_THAT(restarts(before, gate_text("", "redis://127.0.0.1:7000") + std::string(stores_text)),
              ElementsAre("gates: cache: its server (upstream, timeouts.connect, cut_timeout) has changed, and with "
                          "leases in the configuration that needs a restart"));
  auto rotated = std::string(stores_text);
  rotated.replace(rotated.find("secret"), 6, "other");
  EXPECT_THAT(restarts(before, gate_text("") + rotated),
              ElementsAre("stores: ledger has changed, and with leases in the configuration that needs a restart"));
}

TEST_F(Reload, APasswordInAFileNeedsNoneWhereThereAreLeases) {
  const auto text = gate_text(", lease: orders, on_loss: rebind, password_file: /pw") +
                    "stores:\n  ledger: { url: postgres://fencegate@127.0.0.1/app, password_file: /pw }\n"
                    "leases:\n  issuers: { main: { store: ledger } }\n";
  files = {{"/pw", "one"}};
  const auto now = settings_of(text);
  files["/pw"] = "two";
  EXPECT_THAT(needs_restart(now, settings_of(text)), IsEmpty());
  // One that moves into a file is another, though it be the same text: what has begun with the other is not renewed.
  auto before = text;
  before.replace(before.find("fencegate@"), 9, "fencegate:one");
  before.replace(before.find("app, password_file: /pw"), 23, "app");
  EXPECT_THAT(needs_restart(settings_of(before), settings_of(text)),
              ElementsAre("stores: ledger has changed, and with leases in the configuration that needs a restart"));
}

TEST_F(Reload, AGateThatHoldsALeaseStays) {
  const auto held = [](const std::string& keys) {
    return gate_text(", lease: orders, on_loss: rebind" + keys) + std::string(stores_text);
  };
  EXPECT_THAT(restarts(held(""), held("")), IsEmpty());
  EXPECT_THAT(restarts(held(""), held(", connections_max: 5")),
              ElementsAre("gates: cache: a gate with the key lease has changed: that needs a restart"));
}

// A configuration without gates is exchanged, by steps.
class Reloading : public Reload {
 protected:
  void begin(std::chrono::milliseconds drain_timeout) {
    text_ = std::to_string(drain_timeout.count());
    one_.reload([this](const admin::page_answer& answer) { status_ = answer.status; });
  }

  boost::asio::io_context io_{1};
  gate::workers workers_{1};
  metrics::process stats_;
  gate::rejection_log rejections_;
  running_gates gates_{io_, workers_, stats_, rejections_, [](metrics::gate&) {}};
  settings::process taken_;
  unsigned status_ = 0;
  std::string text_;
  configuration_file file_{"f",
                           {[](const std::string&) { return std::nullopt; },
                            [this](const std::string&) -> result<std::string> {
                              return {boost::system::in_place_value, text_};
                            }},
                           [](const std::string& path, const environment& from) -> config_result {
                             settings::process read;
                             read.drain_timeout = std::chrono::milliseconds{std::stoi(*from.file(path))};
                             return read;
                           }};
  reloader one_{io_,    file_,  settings::process{},
                gates_, stats_, [this](const settings::process& next) { taken_ = next; }};
};

TEST_F(Reloading, TheTimeOfADrainIsTakenOver) {
  begin(std::chrono::milliseconds{7});
  io_.poll();
  workers_.context(0).poll();
  io_.restart();
  io_.poll();
  EXPECT_EQ(status_, 200U);
  EXPECT_EQ(taken_.drain_timeout, std::chrono::milliseconds{7});
}

TEST_F(Reloading, ADrainThatHasBegunKeepsItsTime) {
  const auto before = settings::process{}.drain_timeout;
  begin(std::chrono::milliseconds{7});
  io_.poll();  // its gates are exchanged
  workers_.context(0).poll();
  stats_.draining.set(1);
  gates_.drain();
  io_.restart();
  io_.poll();
  EXPECT_EQ(status_, 200U);
  EXPECT_EQ(taken_.drain_timeout, before);
}

TEST_F(Reloading, ADrainEndsOneThatHasNotSettled) {
  begin(std::chrono::milliseconds{7});
  stats_.draining.set(1);
  gates_.drain();
  EXPECT_EQ(status_, 422U);
  io_.poll();
  workers_.context(0).poll();
  EXPECT_EQ(taken_.drain_timeout, settings::process{}.drain_timeout);
}

}  // namespace
}  // namespace fencegate::cli
