// Which writes a connection gives to a shared link, what it says that the link must be like, and what it makes of answers.
#include "unit/gate/redis/engine_rig.hpp"

namespace fencegate::gate {
namespace {

using test::bulks;
using test::command;
using test::engine_rig;
using test::marks;
using test::mget;
using test::readable;
using test::watch;
using test::with_policy;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct sharing_rig : engine_rig {
  explicit sharing_rig(settings::redis_gate settings = {}) : engine_rig(sharing(std::move(settings))) {}

  static settings::redis_gate sharing(settings::redis_gate settings) {
    settings.share_writes = settings::sharing::always;
    return settings;
  }

  // Bound and armed on its own link, which is what sharing needs.
  void arm_as(const std::string& tag) {
    bind(tag);
    found.clear();
    int values = 1;
    for (const auto& one : **fence::find_tag("fence:" + tag)) {
      found += "|" + test::bulk(one.presented.to_string());
      ++values;
    }
    found = "*" + std::to_string(values) + found + "|" + test::bulk("e1");
    host.shares = true;
    client("SET first 1");
    answer_arm(sent());
    const auto next = sent();
    if (has(next, "EXEC")) {  // as nothing is shared here
      backend("+QUEUED", "*1|+OK");
      answer_arm(next);
    }
    engine.on_shared("+OK\r\n");
    shared();
    answers();
  }
  void write_on_own_link() {
    host.shares = false;
    client("SET own 1");
    settle();
    host.shares = true;
    answers();
  }
  // Redis' answers to an arm, one own write, and the arm behind it; of a database other than 0 with its SELECTs.
  void settle() {
    const auto all = sent();
    if (has(all, "DISCARD")) backend("+OK");
    if (!has(all, "EXEC")) answer_arm(all);
    backend("+QUEUED", "*1|+OK");
    answer_arm(all);
  }
  void answer_arm(const std::vector<std::string>& arm) {
    if (has(arm, "INFO server")) backend_bytes(test::info_of_server("r1", version));
    if (has(arm, "SELECT 0")) backend("+OK");
    backend("+OK", found);
    if (has(arm, "SELECT 0")) backend("+OK");
    backend("+OK");
  }
  static bool has(const std::vector<std::string>& all, std::string_view one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  }
  std::string found;  // what MGET shows of the marks
  std::string version = "7.0.15";
  // What went to the shared link since last asked.
  std::vector<std::string> shared() {
    std::vector<std::string> out;
    for (const auto& one : std::exchange(host.shared, {})) out.push_back(readable(one));
    return out;
  }
  // Whether this goes to the shared link; it is answered then.
  bool shares(const std::string& words) {
    answers();
    client(words);
    if (shared().empty()) return false;
    engine.on_shared("+OK\r\n");
    EXPECT_EQ(answers(), "+OK|");
    return true;
  }
};

TEST(redis_engine_share, a_lone_write_is_shared_and_answered) {
  sharing_rig rig;
  rig.arm_as("orders=34");
  rig.client("SET k v");
  EXPECT_THAT(rig.shared(), ElementsAre(readable(command("SET k v"))));
  EXPECT_EQ(readable(rig.host.like), readable(command("CLIENT SETNAME fencegate-shared") + command("INFO server")));
  EXPECT_EQ(rig.host.like_tag, "orders=34");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_EQ(rig.answers(), "");
  rig.engine.on_shared(":7\r\n");
  EXPECT_EQ(rig.answers(), ":7|");
  EXPECT_TRUE(rig.engine.at_rest());
}

TEST(redis_engine_share, nothing_of_the_client_goes_on_before_the_answer) {
  sharing_rig rig;
  rig.arm_as("orders=34");
  rig.client("SET k v");
  rig.client("GET k", "CLIENT SETNAME fence:orders=35", "SET k w");
  EXPECT_THAT(rig.sent(), IsEmpty());
  EXPECT_TRUE(rig.engine.write_in_flight());
  EXPECT_FALSE(rig.engine.at_rest());
  EXPECT_TRUE(rig.engine.waits_on_purpose());
  EXPECT_FALSE(rig.engine.may_block());
  rig.engine.on_shared("+OK\r\n");
  EXPECT_THAT(rig.sent(), ElementsAre("GET k", "EXEC", watch, mget, "MULTI"));
  rig.engine.on_shared("+OK\r\n");  // an answer to nothing
  EXPECT_EQ(rig.answers(), "+OK|");
}

TEST(redis_engine_share, what_comes_back_goes_on_the_own_link_behind_its_own_proof) {
  sharing_rig rig;
  rig.arm_as("orders=34");
  rig.client("SET k v");
  EXPECT_THAT(rig.shared(), SizeIs(1));
  rig.engine.on_shared(std::nullopt);
  EXPECT_THAT(rig.shared(), IsEmpty());
  EXPECT_THAT(rig.sent(), ElementsAre("SET k v", "EXEC", watch, mget, "MULTI"));
  rig.backend("+QUEUED", "*-1", "+OK", marks("35"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("+OK");
  EXPECT_THAT(rig.answers(), HasSubstr("-FENCED token 34 of orders is below mark 35"));
  EXPECT_THAT(rig.host.reports, ElementsAre("stale set"));
}

TEST(redis_engine_share, what_comes_back_again_and_again_is_shared_ever_more_rarely) {
  sharing_rig rig;
  rig.arm_as("orders=34");
  std::vector<int> own;
  for (int n = 0, since = 0; n < 20; ++n) {
    rig.client("SET k v");
    if (!rig.shared().empty()) {
      own.push_back(since);
      since = 0;
      rig.engine.on_shared(std::nullopt);
    }
    ++since;
    rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
    EXPECT_EQ(rig.answers(), "+OK|");
  }
  EXPECT_THAT(own, ElementsAre(0, 1, 2, 4, 8));
}

TEST(redis_engine_share, who_errs_keeps_to_the_own_link_once) {
  sharing_rig rig;
  rig.arm_as("orders=34");
  rig.client("INCR k");
  rig.engine.on_shared("-WRONGTYPE no\r\n");
  EXPECT_EQ(rig.answers(), "-WRONGTYPE no|");
  rig.shared();
  rig.client("SET k v");
  EXPECT_THAT(rig.shared(), IsEmpty());
  rig.settle();
  EXPECT_TRUE(rig.shares("SET k v"));
}

TEST(redis_engine_share, only_small_writes_with_small_answers_are_shared) {
  sharing_rig rig;
  rig.arm_as("orders=34");
  EXPECT_TRUE(rig.shares("SET k v EX 10"));
  EXPECT_TRUE(rig.shares("RPUSH list a b"));
  for (const auto* words : {"SET k v GET", "SET k v ex 10 get", "GETSET k v", "EVAL x 0", "SPOP k 9", "LPOP k 9",
                            "RENAME a b", "SORT k STORE l", "BLPOP k 0", "UNKNOWN k"}) {
    sharing_rig own;
    own.arm_as("orders=34");
    EXPECT_FALSE(own.shares(words)) << words;
  }
  sharing_rig large;
  large.arm_as("orders=34");
  EXPECT_FALSE(large.shares("SET k " + std::string(limits::shared_command_bytes_max, 'x')));
  sharing_rig inlined;
  inlined.arm_as("orders=34");
  inlined.client_bytes("SET k v\r\n");
  EXPECT_THAT(inlined.shared(), IsEmpty());
}

TEST(redis_engine_share, pipelines_stay_whole_on_the_own_link) {
  sharing_rig rig;
  rig.arm_as("orders=34");
  rig.client("SET a 1", "SET b 2");
  EXPECT_THAT(rig.shared(), IsEmpty());
  EXPECT_THAT(rig.sent(), ElementsAre("SET a 1", "SET b 2", "EXEC", watch, mget, "MULTI"));
  rig.client("SET c 3");  // behind them
  EXPECT_THAT(rig.shared(), IsEmpty());
}

TEST(redis_engine_share, nothing_that_the_link_stands_for_is_shared_away) {
  // After these, each answered, and a write on the own link.
  const auto shares_after = [](const std::vector<std::pair<std::string, std::string>>& before) {
    sharing_rig rig;
    rig.arm_as("orders=34");
    rig.client("CLIENT ID");  // leaves MULTI
    rig.backend("+OK", ":3");
    for (const auto& [words, answer] : before) {
      rig.client(words);
      if (!answer.empty()) rig.backend(answer);
    }
    rig.sent();
    rig.write_on_own_link();
    return rig.shares("SET k v");
  };
  EXPECT_TRUE(shares_after({}));
  EXPECT_TRUE(shares_after({{"GET k", "$-1"}}));
  EXPECT_TRUE(shares_after({{"CLIENT LIST", "$1|x"}, {"CLIENT GETNAME", "$1|x"}}));
  EXPECT_FALSE(shares_after({{"GET k", ""}})) << "its answer is not there yet";
  EXPECT_FALSE(shares_after({{"WATCH k", "+OK"}}));
  EXPECT_FALSE(shares_after({{"CLIENT TRACKING ON", "+OK"}}));
  EXPECT_FALSE(shares_after({{"CLIENT TRACKING ON", "+OK"}, {"CLIENT TRACKING OFF", "+OK"}}));
  EXPECT_FALSE(shares_after({{"CLIENT NO-EVICT ON", "+OK"}}));
  EXPECT_FALSE(shares_after({{"WAIT 0 0", ":0"}}));
  EXPECT_FALSE(shares_after({{"CLIENT REPLY OFF", ""}}));
  EXPECT_FALSE(shares_after({{"SUBSCRIBE c", "*3|$9|subscribe|$1|c|:1"}}));
}

TEST(redis_engine_share, a_link_is_armed_itself_and_knows_its_server_first) {
  sharing_rig rig;
  rig.host.shares = true;
  rig.bind("orders=34");
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre("INFO server", watch, mget, "MULTI"));
  rig.backend_bytes(test::info_of_server("r1"));
  EXPECT_THAT(rig.shared(), IsEmpty());
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.shared(), SizeIs(1));
  EXPECT_EQ(rig.host.like_server, "r1");
}

TEST(redis_engine_share, a_link_that_may_not_be_shared_is_not_asked_where_it_leads) {
  engine_rig alone;
  alone.bind("orders=34");
  alone.client("SET k v");
  EXPECT_THAT(alone.sent(), ElementsAre(watch, mget, "MULTI"));
  sharing_rig tracked;
  tracked.bind("orders=34");
  tracked.client("CLIENT TRACKING ON");
  tracked.backend("+OK");
  tracked.sent();
  tracked.client("SET k v");
  EXPECT_THAT(tracked.sent(), ElementsAre(watch, mget, "MULTI"));
}

// Where nobody knows yet whether it pays, a link finds out where it leads when it does.
TEST(redis_engine_share, by_itself_a_link_is_asked_where_it_leads_when_sharing_pays) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("SET k v");
  EXPECT_THAT(rig.sent(), ElementsAre(watch, mget, "MULTI"));
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("SET k v", "EXEC", watch, mget, "MULTI"));
  EXPECT_EQ(rig.host.own_writes, 0);
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.host.own_writes, 1);
  rig.host.shares = true;
  rig.client("SET k w");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "INFO server", watch, mget, "MULTI"));
  rig.backend("+OK");
  rig.backend_bytes(test::info_of_server("r1"));
  EXPECT_THAT(rig.host.shared, IsEmpty());
  rig.backend("+OK", marks("34"), "+OK");
  EXPECT_THAT(rig.host.shared, SizeIs(1));
  EXPECT_EQ(rig.host.like_server, "r1");
  EXPECT_EQ(rig.host.own_writes, 1);
}

TEST(redis_engine_share, a_server_that_does_not_say_where_a_link_leads_is_asked_once_for_a_write) {
  engine_rig rig;
  rig.bind("orders=34");
  rig.client("SET k v");
  rig.backend("+OK", marks("34"), "+OK");
  rig.backend("+QUEUED", "*1|+OK", "+OK", marks("34"), "+OK");
  rig.host.shares = true;
  rig.client("SET k w");
  rig.sent();
  rig.backend("+OK", "-LOADING it is", "+OK", marks("34"), "+OK");  // which ended in between
  EXPECT_THAT(rig.sent(), ElementsAre("SET k w", "EXEC", watch, mget, "MULTI"));
  EXPECT_THAT(rig.host.shared, IsEmpty());
}

struct asking_rig : sharing_rig {
  asking_rig() {
    host.shares = true;
    bind("orders=34");
    client("SET k v");
  }
  bool shares_with(const std::string& answer) {
    backend_bytes(answer);
    backend("+OK", marks("34"), "+OK");
    return !host.shared.empty();
  }
};

TEST(redis_engine_share, servers_that_are_not_asked_in_vain_and_are_known_are_shared) {
  for (const auto* known : {"6.2.14", "7.0.15", "7.2.4", "7.4.1", "8.0.2", "8.6.3", "7.2.4\r\nvalkey_version:7.2.11",
                            "7.2.4\r\nvalkey_version:8.1.1", "7.2.4\r\nvalkey_version:9.1.2"})
    EXPECT_TRUE(asking_rig().shares_with(test::info_of_server("r1", known))) << known;
  for (const auto* unknown :
       {"6.0.16", "7.2", "7.2.4\r\nvalkey_version:10.0.0", "7.2.4\r\nvalkey_version:7.4.0", "9.0.0", "80.0.0", "8", ""})
    EXPECT_FALSE(asking_rig().shares_with(test::info_of_server("r1", unknown))) << unknown;
  EXPECT_FALSE(asking_rig().shares_with("$-1\r\n"));
  EXPECT_FALSE(asking_rig().shares_with("-NOPERM no\r\n"));
}

// What the server says for a while only is asked again with the next arm; what it will always say is not.
TEST(redis_engine_share, a_passing_error_is_no_answer_to_where_a_link_leads) {
  const auto arms_anew_with = [](const std::string& error) {
    asking_rig rig;
    rig.backend_bytes(error);
    rig.backend("-BUSY a script", "-BUSY a script", "-BUSY a script");
    EXPECT_EQ(rig.answers(), "-BUSY a script|");
    rig.sent();
    rig.client("SET k v");
    return rig.sent().front();
  };
  EXPECT_EQ(arms_anew_with("-BUSY a script\r\n"), "INFO server");
  EXPECT_NE(arms_anew_with("-NOPERM no\r\n"), "INFO server");
}

// The server notes at each command of a link how far the data are, and WAIT counts the replicas that have that.
TEST(redis_engine_share, wait_stands_behind_a_command_of_its_own_link) {
  sharing_rig rig;
  rig.arm_as("orders=34");
  EXPECT_TRUE(rig.shares("SET k v"));
  rig.client("WAIT 1 100");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", "WAIT 1 100"));
  sharing_rig inside;
  inside.arm_as("orders=34");
  EXPECT_TRUE(inside.shares("SET k v"));
  inside.client("MULTI");
  EXPECT_THAT(inside.sent(), ElementsAre("DISCARD", watch, mget, "MULTI"));
  inside.backend("+OK", "+OK", marks("34"), "+OK");
  EXPECT_EQ(inside.answers(), "+OK|");
}

// Since 7.2 the server notes it only at what it has propagated for the link itself.
struct own_writes_rig : sharing_rig {
  explicit own_writes_rig(const std::string& of = "8.0.2") {
    version = of;
    host.snapshot_now.commands = test::commands_in(test::command_reply(8));
    arm_as("orders=34");
    EXPECT_TRUE(shares("SET k v"));
  }
};
constexpr const char* renewal = "SPUBLISH fencegate:offset ''";

TEST(redis_engine_share, since_7_2_wait_stands_behind_a_message_of_its_own_link) {
  own_writes_rig rig;
  rig.client("WAIT 1 100");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", renewal, "WAIT 1 100"));
  rig.backend("+OK", ":0", ":1");
  EXPECT_EQ(rig.answers(), ":1|");
  rig.client("WAIT 1 100");
  EXPECT_THAT(rig.sent(), ElementsAre("WAIT 1 100")) << "nothing was shared since";
}

TEST(redis_engine_share, since_7_2_no_command_of_the_own_link_makes_up_for_a_message) {
  own_writes_rig rig;
  rig.write_on_own_link();  // which may have changed nothing
  rig.client("CLIENT ID");
  rig.backend("+OK", ":3");
  rig.sent();
  rig.client("WAIT 1 100");
  EXPECT_THAT(rig.sent(), ElementsAre(renewal, "WAIT 1 100"));
}

TEST(redis_engine_share, since_7_2_a_message_stands_in_front_of_multi) {
  own_writes_rig adopted;
  adopted.client("MULTI");
  EXPECT_THAT(adopted.sent(), ElementsAre("DISCARD", renewal, watch, mget, "MULTI"));
  adopted.backend("+OK", ":0", "+OK", marks("34"), "+OK");
  EXPECT_EQ(adopted.answers(), "+OK|");
}

TEST(redis_engine_share, since_7_2_a_passing_error_makes_multi_ask_again) {
  own_writes_rig rig;
  rig.client("MULTI");
  rig.sent();
  rig.backend("+OK", "-BUSY a script", "+OK", marks("34"), "+OK");  // which ended in between
  EXPECT_EQ(rig.answers(), "");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD", renewal, watch, mget, "MULTI"));
  rig.backend("+OK", ":0", "+OK", marks("34"), "+OK");
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_FALSE(rig.engine.closing());
}

// A connection that is subscribed with RESP2 may say no SPUBLISH; and another user is still the same client.
TEST(redis_engine_share, since_7_2_a_message_is_owed_behind_reset) {
  own_writes_rig rig;
  rig.client("SUBSCRIBE c");
  rig.backend("+OK");
  rig.backend("*3|$9|subscribe|$1|c|:1");
  rig.sent();
  rig.client("RESET");
  EXPECT_THAT(rig.sent(), ElementsAre("RESET"));
  rig.backend("+RESET");
  rig.client("WAIT 1 100");
  EXPECT_THAT(rig.sent(), ElementsAre(renewal, "WAIT 1 100"));
}

TEST(redis_engine_share, since_7_2_nothing_stands_between_caching_and_multi) {
  own_writes_rig rig;
  rig.client("CLIENT TRACKING ON OPTIN");
  rig.backend("+OK", "+OK");
  rig.sent();
  rig.client("CLIENT CACHING YES");
  EXPECT_THAT(rig.sent(), ElementsAre(renewal, "CLIENT CACHING YES"));
  rig.backend(":0", "+OK");
  rig.client("MULTI");
  EXPECT_THAT(rig.sent(), ElementsAre("MULTI"));
}

// Messages are in no AOF, and without a replica the server does not propagate them at all.
constexpr const char *set_offset = "SET fencegate:offset '' PX 1", *del_offset = "DEL fencegate:offset";

TEST(redis_engine_share, waitaof_stands_behind_a_write_of_its_own_link) {
  own_writes_rig rig;
  rig.client("WAITAOF 1 1 0", "GET k");
  EXPECT_THAT(rig.sent(), ElementsAre("DISCARD"));
  rig.backend("+OK");
  EXPECT_THAT(rig.sent(), ElementsAre(set_offset, del_offset));
  rig.backend("+OK");
  EXPECT_THAT(rig.sent(), ElementsAre("WAITAOF 1 1 0", "GET k"));
  rig.backend(":1", "*2|:1|:1", "$-1");
  EXPECT_EQ(rig.answers(), "*2|:1|:1|$-1|");
  rig.client("WAITAOF 1 1 0", "WAIT 1 0");
  EXPECT_THAT(rig.sent(), ElementsAre("WAITAOF 1 1 0", "WAIT 1 0")) << "nothing was shared since";
}

TEST(redis_engine_share, no_message_makes_up_for_the_write_for_waitaof) {
  const auto writes_behind = [](own_writes_rig& rig) {
    rig.sent();
    rig.client("WAITAOF 1 0 0");
    auto sent = rig.sent();
    if (sent == std::vector<std::string>{"DISCARD"}) {
      rig.backend("+OK");
      sent = rig.sent();
    }
    EXPECT_THAT(sent, ElementsAre(set_offset, del_offset));
  };
  own_writes_rig behind_wait;
  behind_wait.client("WAIT 1 0");
  behind_wait.backend("+OK", ":0", ":1");
  writes_behind(behind_wait);
  own_writes_rig behind_multi;
  behind_multi.client("MULTI");
  behind_multi.backend("+OK", ":0", "+OK", marks("34"), "+OK");
  behind_multi.client("EXEC");
  behind_multi.backend("*0", "+OK", marks("34"), "+OK");
  writes_behind(behind_multi);
}

TEST(redis_engine_share, who_may_not_write_for_waitaof_is_told_so_and_no_number) {
  const auto answer_with = [](const std::string& to_set, const std::string& to_del) {
    own_writes_rig rig;
    rig.client("WAITAOF 1 0 0");
    rig.backend("+OK");
    rig.backend(to_set, to_del);
    rig.sent();
    rig.client("WAITAOF 1 0 0");
    EXPECT_THAT(rig.sent(), ElementsAre(set_offset, del_offset)) << "it is tried again";
    return rig.answers();
  };
  EXPECT_EQ(answer_with("-OOM no memory", ":0"), "-OOM no memory|");
  EXPECT_EQ(answer_with("-NOPERM no key", "-NOPERM no key"),
            "-NOPERM no key (fencegate writes fencegate:offset first, with the rights of this user)|");
  own_writes_rig without_del;  // then the key goes by itself
  without_del.client("WAITAOF 1 0 0");
  without_del.backend("+OK");
  without_del.backend("+OK", "-NOPERM no del");
  without_del.backend("*2|:1|:0");
  EXPECT_EQ(without_del.answers(), "*2|:1|:0|");
}

TEST(redis_engine_share, waitaof_inside_multi_cannot_count_what_was_shared) {
  own_writes_rig rig;
  rig.client("MULTI");
  rig.backend("+OK", ":0", "+OK", marks("34"), "+OK");
  rig.answers();
  rig.client("SET a 1", "WAITAOF 1 0 0", "EXEC");
  EXPECT_THAT(rig.sent(), testing::Not(testing::Contains("EXEC")));
  rig.backend("+QUEUED", "+OK");
  EXPECT_THAT(rig.answers(), testing::MatchesRegex("\\+QUEUED\\|-ERR WAITAOF inside MULTI .*\\|-EXECABORT .*"));
  own_writes_rig behind_write;
  behind_write.client("WAITAOF 1 0 0");
  behind_write.backend("+OK");
  behind_write.backend("+OK", ":1");
  behind_write.backend("*2|:1|:0");
  behind_write.client("MULTI");
  behind_write.backend("+OK", marks("34"), "+OK");
  behind_write.sent();
  behind_write.client("WAITAOF 1 0 0");
  EXPECT_THAT(behind_write.sent(), ElementsAre("WAITAOF 1 0 0"));
}

TEST(redis_engine_share, since_7_2_who_may_not_send_the_message_any_more_is_told_no_number) {
  own_writes_rig rig;
  rig.client("WAIT 1 100");
  rig.backend("+OK", "-NOPERM no", ":1");
  EXPECT_EQ(rig.answers(), "");
  EXPECT_TRUE(rig.engine.closing());
}

TEST(redis_engine_share, since_7_2_a_link_is_alike_only_where_the_message_may_be_sent) {
  own_writes_rig rig;
  EXPECT_EQ(rig.host.like, command("CLIENT SETNAME fencegate-shared") +
                               "*3\r\n$8\r\nSPUBLISH\r\n$16\r\nfencegate:offset\r\n$0\r\n\r\n" +
                               command("INFO server"));
}

TEST(redis_engine_share, a_hello_that_fails_may_have_signed_in_all_the_same) {
  sharing_rig rig;
  rig.arm_as("orders=34");
  rig.client("HELLO 3 AUTH bob pw SETNAME a,b");
  rig.backend("+OK");
  rig.backend("-ERR bad name");
  rig.sent();
  rig.write_on_own_link();
  EXPECT_FALSE(rig.shares("SET k v"));
}

TEST(redis_engine_share, a_write_is_counted_once_where_it_goes) {
  sharing_rig rig;
  rig.arm_as("orders=34");
  auto& writes = rig.stats.requests(metrics::request_class::write);
  const auto before = writes.value();
  rig.client("SET k v");
  EXPECT_EQ(writes.value() - before, 1u);
  rig.engine.on_shared(std::nullopt);
  rig.settle();
  EXPECT_EQ(rig.answers(), "+OK|");
  EXPECT_EQ(writes.value() - before, 1u);
  EXPECT_EQ(rig.stats.shared_writes_total.value(), 1u) << "of before";
  EXPECT_TRUE(rig.shares("SET k v"));
}

TEST(redis_engine_share, fenced_reads_with_short_answers_are_shared) {
  sharing_rig fenced(with_policy([](auto& p) { p.read = fence::reads::fence; }));
  fenced.arm_as("orders=34");
  EXPECT_TRUE(fenced.shares("EXISTS k"));
  EXPECT_TRUE(fenced.shares("ZSCORE k m"));
  EXPECT_FALSE(fenced.shares("GET k"));
  sharing_rig passing;
  passing.arm_as("orders=34");
  EXPECT_FALSE(passing.shares("EXISTS k"));
}

TEST(redis_engine_share, policies_that_look_at_each_use_keep_to_the_own_link) {
  sharing_rig once(with_policy([](auto& p) { p.equal = fence::equal_token::reject; }));
  once.arm_as("orders=34");
  EXPECT_FALSE(once.shares("SET k v"));
  settings::redis_gate never;
  never.share_writes = settings::sharing::off;
  engine_rig off(std::move(never));
  off.host.shares = true;
  off.arm();
  off.client("SET k v");
  EXPECT_THAT(off.host.shared, IsEmpty());
  EXPECT_THAT(off.sent(), ElementsAre("SET k v", "EXEC", watch, mget, "MULTI"));
  sharing_rig monitor(with_policy([](auto& p) { p.mode = fence::enforcement::monitor; }));
  monitor.arm_as("orders=34");
  EXPECT_FALSE(monitor.shares("SET k v"));
  sharing_rig stale;
  stale.arm_as("orders=34");
  stale.mark_memory.cell("orders")->saw(fence::token(35));
  stale.client("SET k v");
  EXPECT_THAT(stale.shared(), IsEmpty());
  EXPECT_THAT(stale.answers(), HasSubstr("-FENCED"));
}

TEST(redis_engine_share, a_link_is_alike_in_user_protocol_and_database_and_is_told_the_tag) {
  sharing_rig rig;
  rig.client("AUTH ann secret");
  rig.backend("+OK");
  rig.client("HELLO 3");
  rig.backend("%1|+proto|:3");
  rig.client("SELECT 2");
  rig.backend("+OK");
  rig.arm_as("orders=34,stock=7");
  EXPECT_TRUE(rig.shares("SET k v"));
  EXPECT_EQ(rig.host.like, command("AUTH ann secret") + command("HELLO 3") + command("SELECT 2") +
                               command("CLIENT SETNAME fencegate-shared") + command("INFO server"));
  EXPECT_EQ(rig.host.like_tag, "orders=34,stock=7");
  const auto change = [&](const std::string& words, const std::string& answer) {
    rig.client(words);
    rig.backend("+OK");  // to our DISCARD
    rig.backend(answer);
    rig.answers();
    rig.sent();
  };
  change("AUTH bob wrong", "-WRONGPASS no");
  rig.write_on_own_link();
  EXPECT_TRUE(rig.shares("SET k v"));
  EXPECT_THAT(rig.host.like, HasSubstr("secret"));
  change("HELLO 2 AUTH bob right", "*2|+proto|:2");
  rig.client("FENCE SET stock 8");
  rig.backend("+PONG");
  EXPECT_EQ(rig.answers(), "+OK|");
  rig.sent();
  rig.found = bulks("34", "8", "e1");
  rig.write_on_own_link();
  EXPECT_TRUE(rig.shares("SET k v"));
  EXPECT_EQ(rig.host.like, command("AUTH bob right") + command("SELECT 2") +
                               command("CLIENT SETNAME fencegate-shared") + command("INFO server"));
  EXPECT_EQ(rig.host.like_tag, "orders=34,stock=8");
  change("RESET", "+RESET");
  rig.arm_as("orders=34");
  EXPECT_TRUE(rig.shares("SET k v"));
  EXPECT_EQ(rig.host.like, command("CLIENT SETNAME fencegate-shared") + command("INFO server"));
  EXPECT_EQ(rig.host.like_tag, "orders=34");
}

}  // namespace
}  // namespace fencegate::gate
