// The configuration as a whole: places of errors, sections, variables, what is not YAML.
#include "config_fixture.hpp"

namespace fencegate::cli {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(ConfigTest, FillsInDefaults) {
  const auto config = settings_of(gate_with(""));
  EXPECT_EQ(config.threads, std::nullopt);
  EXPECT_EQ(config.busy_poll_us, std::nullopt);
  EXPECT_FALSE(config.admin_enabled);
  EXPECT_EQ(config.level, settings::log_level::info);
  EXPECT_EQ(config.format, settings::log_format::json);
  EXPECT_EQ(config.drain_timeout, 25s);
  EXPECT_THAT(config.stores, IsEmpty());
}

TEST_F(ConfigTest, ThreadsAndBusyPollAreNumbersOrAuto) {
  EXPECT_EQ(settings_of("threads: auto\n" + gate_with("")).threads, std::nullopt);
  EXPECT_EQ(settings_of("threads: 0\n" + gate_with("")).threads, 0);
  EXPECT_EQ(settings_of("busy_poll_us: auto\n" + gate_with("")).busy_poll_us, std::nullopt);
  EXPECT_EQ(settings_of("busy_poll_us: 0\n" + gate_with("")).busy_poll_us, 0);
  EXPECT_THAT(errors_of("busy_poll_us: 1001\n" + gate_with("")),
              ElementsAre("1:15: busy_poll_us must be a whole number from 0 to 1000, or auto"));
}

TEST_F(ConfigTest, ReadsTheSectionsOfTheProcess) {
  const auto config = settings_of(
      "threads: 3\nbusy_poll_us: 100\nadmin: { listen: \"[::1]:9999\" }\nlog: { level: warn, format: text "
      "}\ndrain_timeout: 500ms\n"
      "stores: { ledger: { url: \"postgres://u@h/app\" }, marks: { url: \"redis://h\" } }\n" +
      gate_with(""));
  EXPECT_EQ(config.threads, 3);
  EXPECT_EQ(config.busy_poll_us, 100);
  EXPECT_TRUE(config.admin_enabled);
  EXPECT_EQ(config.admin, (settings::address{"::1", 9999, ""}));
  EXPECT_EQ(config.level, settings::log_level::warn);
  EXPECT_EQ(config.format, settings::log_format::text);
  EXPECT_EQ(config.drain_timeout, 500ms);
  ASSERT_THAT(config.stores, SizeIs(2));
  EXPECT_EQ(config.stores[0].name, "ledger");
  EXPECT_EQ(config.stores[0].url, "postgres://u@h/app");
}

TEST_F(ConfigTest, NamesUnknownKeysAndTheirPlace) {
  EXPECT_THAT(errors_of("thread: 1\n" + gate_with("conections_max: 5")),
              ElementsAre("1:1: unknown key \"thread\" in the configuration (did you mean \"threads\"?)",
                          "7:5: unknown key \"conections_max\" in gate (did you mean \"connections_max\"?)"));
}

TEST_F(ConfigTest, ReportsEveryErrorInTheOrderOfTheFile) {
  EXPECT_THAT(
      errors_of("drain_timeout: 25\nthreads: many\nlog: { level: verbose, format: jsn }\nadmin: { listen: 9180 }\n" +
                gate_with("unmatched: tagg")),
      ElementsAre("1:16: drain_timeout: a duration needs a unit: ms, s, m or h, such as 25s",
                  "2:10: threads must be a whole number from 0 to 1024, or auto",
                  "3:15: level must be one of debug, info, warn, error",
                  "3:32: format must be one of json, text (did you mean \"json\"?)",
                  "4:18: listen: the port is missing: write host:port, :port or unix:/path",
                  "10:16: unmatched must be one of tag, pass, reject (did you mean \"tag\"?)"));
}

TEST_F(ConfigTest, RejectsAKeyGivenTwice) {
  EXPECT_THAT(errors_of("threads: 1\n\nthreads: 2\n" + gate_with("")),
              ElementsAre("3:1: the key \"threads\" was given on line 1 already"));
}

TEST_F(ConfigTest, RejectsKeysWithoutAValue) {
  EXPECT_THAT(errors_of("threads:\nlog: ~\n" + gate_with("")),
              ElementsAre("1:1: the key \"threads\" has no value", "2:1: the key \"log\" has no value"));
}

TEST_F(ConfigTest, RejectsWrongTypes) {
  EXPECT_THAT(errors_of("threads: [1]\nadmin: text\nlog: [a]\nstores: 5\n" + gate_with("timeouts: 5s")),
              ElementsAre("1:10: threads must be text or a number, not a list",
                          "2:8: admin must be a map of keys and values, not text",
                          "3:6: log must be a map of keys and values, not a list",
                          "4:9: stores must be a map of keys and values, not text",
                          "10:15: timeouts must be a map of keys and values, not text"));
  EXPECT_THAT(errors_of("gates: cache"), ElementsAre("1:8: gates must be a list"));
  EXPECT_THAT(errors_of("gates: [cache]"), ElementsAre("1:9: gate must be a map of keys and values, not text"));
  EXPECT_THAT(errors_of("- a"), ElementsAre("1:1: the configuration must be a map of keys and values, not a list"));
}

TEST_F(ConfigTest, RejectsTagsAndKeysThatAreNoText) {
  EXPECT_THAT(errors_of("threads: !!binary MQ==\n[a]: 1\n" + gate_with("")),
              ElementsAre("1:10: threads must be text or a number, not a tagged value",
                          "2:1: a key in the configuration must be text"));
}

TEST_F(ConfigTest, RejectsAConfigurationWithoutGates) {
  EXPECT_THAT(errors_of("threads: 1"), ElementsAre("1:1: the configuration needs the key \"gates\""));
  EXPECT_THAT(errors_of("gates: []"), ElementsAre("1:8: gates is empty: there is nothing to serve"));
  for (const auto* text : {"", "# nothing\n", "---\n", "~"})
    EXPECT_THAT(errors_of(text), ElementsAre(HasSubstr("the configuration is empty"))) << text;
}

TEST_F(ConfigTest, RejectsWhatIsNotYamlAtItsPlace) {
  EXPECT_THAT(errors_of("gates: [a\nb: 1\n"), ElementsAre(testing::MatchesRegex("2:2: not YAML: .+")));
  EXPECT_THAT(errors_of("a: *unknown\n"), ElementsAre(HasSubstr("1:4: not YAML: ")));
  EXPECT_THAT(errors_of(std::string(5000, '[')), ElementsAre(HasSubstr("not YAML: ")));
}

TEST_F(ConfigTest, RejectsBytesThatAreNoTextAtTheirPlace) {
  const std::string nul("threads: 1\nlog: \0", 17);
  EXPECT_THAT(errors_of(nul), ElementsAre(HasSubstr("2:6: a byte that is no text")));
  EXPECT_THAT(errors_of("\xff\xfeg"), ElementsAre(HasSubstr("1:1: a byte that is no text")));
  EXPECT_THAT(errors_of("a\x1b[0m: 1"), ElementsAre(HasSubstr("1:2: a byte that is no text")));
}

TEST_F(ConfigTest, RejectsSeveralDocumentsAndOversizedFiles) {
  EXPECT_THAT(errors_of(gate_with("") + "---\nthreads: 1\n"),
              ElementsAre(HasSubstr("7:1: a configuration is one YAML document")));
  // A stray comma looks to yaml-cpp like empty documents without end.
  EXPECT_THAT(errors_of(", a: 1\n"), ElementsAre(HasSubstr("one YAML document")));
  EXPECT_THAT(errors_of(gate_with("") + std::string(1024 * 1024, '#')), ElementsAre(HasSubstr("larger than 1 MiB")));
}

TEST_F(ConfigTest, ExpandsVariablesInValues) {
  variables = {{"THREADS", "7"}, {"HOST", "10.1.2.3"}, {"LEVEL", "debug"}};
  const auto config = settings_of(
      "threads: ${THREADS}\nadmin: { listen: \"${HOST}:1\" }\nlog: { level: \"${LEVEL}\" }\n" + gate_with(""));
  EXPECT_EQ(config.threads, 7u);
  EXPECT_EQ(config.admin.host, "10.1.2.3");
  EXPECT_EQ(config.level, settings::log_level::debug);
}

TEST_F(ConfigTest, NamesUndefinedVariablesAtTheirPlace) {
  EXPECT_THAT(errors_of("threads: ${NOPE}\n" + gate_with("")),
              ElementsAre("1:10: threads: the environment variable NOPE is not set"));
}

TEST_F(ConfigTest, AVariableCannotAddStructure) {
  variables = {{"X", "info\nthreads: 9\n# "}, {"LIST", "[a, b]"}, {"KEY", "threads"}};
  EXPECT_THAT(errors_of("log: { level: \"${X}\" }\n" + gate_with("")),
              ElementsAre(HasSubstr("1:15: level must be one of")));
  EXPECT_THAT(errors_of("log: ${LIST}\n" + gate_with("")), ElementsAre(HasSubstr("1:6: log must be a map")));
  EXPECT_THAT(errors_of("${KEY}: 1\n" + gate_with("")), ElementsAre(HasSubstr("1:1: unknown key \"${KEY}\"")));
}

TEST_F(ConfigTest, NoMessageContainsASecret) {
  variables = {{"SECRET", "hunter2"}};
  const auto rest_of = [](const std::string& text) { return text.substr(std::string_view("gates:\n").size()); };
  const auto errors = errors_of(
      "threads: ${SECRET}\ndrain_timeout: ${SECRET}\nlog: { level: \"${SECRET}\" }\nadmin: { listen: \"${SECRET}\" }\n"
      "stores: { a: { url: \"${SECRET}\" } }\n"
      "gates:\n  - { name: \"${SECRET} \", protocol: \"${SECRET}\", listen: \"${SECRET}\" }\n" +
      rest_of(gate_at("\"${SECRET}\"")) +
      "    allow_commands: [\"${SECRET}$$\", \"${SECRET}\"]\n    resources: \"${SECRET}\"\n" +
      rest_of(postgres_at("\"postgres://h/?${SECRET}\"")) +
      "    guard: \"${SECRET}\"\n    password_file: \"${SECRET}\"\n");
  EXPECT_THAT(errors, SizeIs(16));
  EXPECT_THAT(errors, testing::Each(testing::Not(HasSubstr("hunter2"))));
}

TEST_F(ConfigTest, ChecksTheShapeOfStores) {
  EXPECT_THAT(
      errors_of("stores:\n  a: { url: \"mysql://h\" }\n  b: {}\n  c:\n  \"d d\": { url: \"redis://h\" }\n"
                "  e: { url: \"rediss://h\" }\n  f: { urll: x }\n" +
                gate_with("")),
      ElementsAre("2:13: url: a store is redis://, rediss:// or postgres://", "3:3: store needs the key \"url\"",
                  "4:3: store needs the key \"url\"", "5:3: a store's name has 1 to 64 letters, digits, _ . and -",
                  HasSubstr("6:13: url: sslmode=verify-full needs cafile"), "7:3: store needs the key \"url\"",
                  HasSubstr("7:8: unknown key \"urll\" in store (did you mean \"url\"?)")));
}

TEST_F(ConfigTest, ChecksStoresThatNoGateUses) {
  EXPECT_THAT(errors_of("stores:\n  a: { url: \"redis://h:6379/0\" }\n  b: { url: \"redis://h?x=1\" }\n"
                        "  c: { url: \"postgres://h/app?sslmode=prefer\" }\n  d: { url: \"postgres://h/a/b\" }\n" +
                        gate_with("")),
              ElementsAre(HasSubstr("2:13: url: "), HasSubstr("3:13: url: "), HasSubstr("4:13: url: sslmode=prefer"),
                          HasSubstr("5:13: url: ")));
}

TEST_F(ConfigTest, ReportsAFileThatCannotBeRead) {
  const auto missing = load_config("/nowhere/fencegate.yaml", process_environment());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error()[0].to_string(), "/nowhere/fencegate.yaml: cannot read the file: No such file or directory");
  EXPECT_FALSE(load_config("/", process_environment()));
}

}  // namespace
}  // namespace fencegate::cli
