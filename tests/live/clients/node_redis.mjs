// node-redis. Its URL has no place for a client name, so the fence tag is in the option `name`. With RESP 3 it is sent as
// HELLO … SETNAME, whose error makes this client reconnect for ever: a strategy that gives up on FENCED is advisable.
// Arguments: port, tag, RESP version.
import { createClient, defineScript, RESP_TYPES } from "redis";
import { errorOf, serve, untilWritten } from "./lines.mjs";

const [port, tag, protocol] = process.argv.slice(2);
const seen = []; // errors that no command got

const bump = defineScript({
  NUMBER_OF_KEYS: 1,
  SCRIPT: "return redis.call('INCRBY', KEYS[1], ARGV[1])",
  parseCommand: (parser, key, by) => (parser.pushKey(key), parser.push(String(by))),
  transformReply: (reply) => reply,
});

const client = createClient({
  url: `redis://127.0.0.1:${port}/0`,
  name: tag,
  RESP: Number(protocol),
  scripts: { bump },
  socket: { reconnectStrategy: (retries, cause) => (cause.message.startsWith("FENCED ") ? cause : Math.min(retries * 50, 500)) },
});
client.on("error", (error) => seen.push(error.message));

async function second() {
  const other = client.duplicate();
  other.on("error", (error) => seen.push(error.message));
  return other.connect();
}

const got = []; // messages of `subscribe`

await serve({
  connect: async () => {
    await client.connect();
    return client.clientGetName();
  },

  strings: async () => [
    await client.set("s:a", "1"), await client.get("s:a"), await client.incr("s:a"), await client.append("s:a", "0"),
    await client.set("s:a", "no", { condition: "NX" }), await client.set("s:a", "x", { GET: true }),
    await client.mSet([["s:b", "é"], ["s:c", ""]]), await client.mGet(["s:a", "s:b", "s:c", "s:none"]),
    await client.setEx("s:d", 1000, "v"), await client.ttl("s:d"), await client.getDel("s:d"), await client.del(["s:a", "s:none"]),
    await errorOf(client.incr("s:b")), await client.set("s:e", Buffer.from([0, 13, 10, 255])),
    [...(await client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer }).get("s:e"))],
  ],

  types: async () => [
    await client.hSet("t:h", { a: 1, b: "two" }), await client.hGetAll("t:h"), await client.hGetAll("t:none"),
    await client.sAdd("t:s", ["x", "y"]), (await client.sMembers("t:s")).sort(), await client.smIsMember("t:s", ["x", "q"]),
    await client.zAdd("t:z", [{ score: 1.5, value: "m" }, { score: Infinity, value: "n" }]), await client.zScore("t:z", "m"),
    await client.zRangeWithScores("t:z", 0, -1), await client.rPush("t:l", ["a", "b"]), await client.lRange("t:l", 0, -1),
    await client.lPopCount("t:l", 5), await client.lPop("t:l"), await client.xAdd("t:x", "1-1", { f: "v" }),
    await client.xGroupCreate("t:x", "g", "0"), await client.xReadGroup("g", "c", { key: "t:x", id: ">" }, { COUNT: 5 }),
    await client.xAck("t:x", "g", "1-1"), await client.setBit("t:b", 7, 1), await client.pfAdd("t:p", "a"),
    await client.geoAdd("t:g", { longitude: 13.4, latitude: 52.5, member: "berlin" }), await client.geoPos("t:g", ["berlin", "nowhere"]),
  ],

  // node-redis pipelines whatever is asked for in one tick.
  pipeline: async () => {
    const mixed = await Promise.allSettled([
      client.set("p:a", "text"), client.get("p:a"), client.incr("p:a"), client.hSet("p:h", "f", "1"), client.hGetAll("p:h")]);
    const long = [];
    for (let i = 0; i < 5000; i++) long.push(client.incr("p:count"), client.get("p:count"));
    const replies = await Promise.all(long);
    return [mixed, replies.every((value, i) => Number(value) === Math.floor(i / 2) + 1)];
  },

  transaction: async () => [
    await client.multi().set("m:a", "1").incr("m:a").get("m:a").exec(),
    await errorOf(client.multi().set("m:b", "text").incr("m:b").get("m:b").exec()), await client.get("m:b"),
    await errorOf(client.multi().set("m:c", "1").addCommand(["SET", "only"]).exec()), await client.get("m:c"),
    await client.multi().set("m:d", "1").get("m:d").execAsPipeline(), await errorOf(client.sendCommand(["EXEC"])),
  ],

  watch: async () => {
    const other = await second();
    const tell = [await client.set("w:a", "1"), await client.watch("w:a"), await other.set("w:a", "2")];
    tell.push(await errorOf(client.multi().set("w:a", "3").exec()), await client.get("w:a"));
    tell.push(await client.watch("w:a"), await client.multi().set("w:a", "4").exec(), await client.get("w:a"));
    tell.push(await client.watch("w:a"), await other.set("w:a", "5"), await client.unwatch());
    tell.push(await client.multi().incr("w:a").exec());
    await other.close();
    return tell;
  },

  scripts: async () => [
    await client.bump("l:a", 5), await client.bump("l:a", 5),
    await client.eval("return {KEYS[1], ARGV[1], 7, false}", { keys: ["l:a"], arguments: ["x"] }),
    await errorOf(client.evalSha("0".repeat(40))), await errorOf(client.eval("return redis.error_reply('MINE own')")),
  ],

  pubsub: async () => {
    const subscriber = await second();
    const heard = [];
    await subscriber.subscribe(["ps:a", "ps:b"], (...all) => heard.push(all));
    await subscriber.pSubscribe("ps:*", (...all) => heard.push(all));
    const tell = [await client.publish("ps:a", "hello"), await client.publish("ps:b", "you")];
    while (heard.length < 4) await new Promise((resolve) => setTimeout(resolve, 5));
    await subscriber.unsubscribe();
    await subscriber.pUnsubscribe("ps:*");
    tell.push(heard, await subscriber.set("ps:after", "1"));
    await subscriber.close();
    return tell;
  },

  blockingPop: async (key) => {
    const other = await second();
    const popped = await other.blPop(key, 0);
    await other.close();
    return popped;
  },
  blockingTimeout: () => client.blPop("b:none", 0.1),

  write: (key, value) => client.set(key, value),
  read: (key) => client.get(key),
  writeMany: async (key, count) => {
    const writes = Array.from({ length: count }, (_, i) => client.set(`${key}:${i}`, "stale"));
    return (await Promise.allSettled(writes)).map((end) => end.reason?.message ?? end.value);
  },
  writeInTransaction: (key, value) => client.multi().set(key, value).incr("count").exec(),
  untilWritten: (key, value) => untilWritten(() => client.set(key, value)),
  subscribe: async (channel) => {
    const subscriber = await second();
    return subscriber.subscribe(channel, (message) => got.push(message));
  },
  received: () => got,
});
