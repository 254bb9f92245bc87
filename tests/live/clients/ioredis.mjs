// ioredis, with the fence tag in its URL. Arguments: port, tag, RESP version.
import { Redis } from "ioredis";
import { errorOf, serve, untilWritten } from "./lines.mjs";

const [port, tag, protocol] = process.argv.slice(2);
const url = `redis://127.0.0.1:${port}/0?connectionName=${encodeURIComponent(tag)}`;
const client = new Redis(url, { protocol: Number(protocol), lazyConnect: true, retryStrategy: (n) => Math.min(n * 50, 500) });
const seen = []; // errors that no command got
client.on("error", (error) => seen.push(error.message));

async function second() {
  const other = client.duplicate();
  other.on("error", (error) => seen.push(error.message));
  await other.connect();
  return other;
}

const got = []; // messages of `subscribe`

await serve({
  connect: async () => {
    await client.connect();
    return client.client("GETNAME");
  },

  strings: async () => [
    await client.set("s:a", "1"), await client.get("s:a"), await client.incr("s:a"), await client.append("s:a", "0"),
    await client.set("s:a", "no", "NX"), await client.getset("s:a", "x"), await client.mset("s:b", "é", "s:c", ""),
    await client.mget("s:a", "s:b", "s:c", "s:none"), await client.setex("s:d", 1000, "v"), await client.ttl("s:d"),
    await client.getdel("s:d"), await client.del("s:a", "s:none"), await errorOf(client.incr("s:b")),
    await client.set("s:e", Buffer.from([0, 13, 10, 255])), [...(await client.getBuffer("s:e"))],
  ],

  types: async () => [
    await client.hset("t:h", { a: 1, b: "two" }), await client.hgetall("t:h"), await client.hgetall("t:none"),
    await client.sadd("t:s", "x", "y"), (await client.smembers("t:s")).sort(), await client.smismember("t:s", "x", "q"),
    await client.zadd("t:z", 1.5, "m", "inf", "n"), await client.zscore("t:z", "m"), await client.zrange("t:z", 0, -1, "WITHSCORES"),
    await client.rpush("t:l", "a", "b"), await client.lrange("t:l", 0, -1), await client.lpop("t:l", 5), await client.lpop("t:l"),
    await client.xadd("t:x", "1-1", "f", "v"), await client.xgroup("CREATE", "t:x", "g", "0"),
    await client.xreadgroup("GROUP", "g", "c", "COUNT", 5, "STREAMS", "t:x", ">"), await client.xack("t:x", "g", "1-1"),
    await client.setbit("t:b", 7, 1), await client.pfadd("t:p", "a"), await client.geoadd("t:g", 13.4, 52.5, "berlin"),
    await client.geopos("t:g", "berlin", "nowhere"),
  ],

  pipeline: async () => {
    const mixed = await client.pipeline().set("p:a", "text").get("p:a").incr("p:a").hset("p:h", "f", "1").hgetall("p:h").exec();
    const long = client.pipeline();
    for (let i = 0; i < 5000; i++) long.incr("p:count").get("p:count");
    const replies = await long.exec();
    return [mixed, replies.every(([error, value], i) => !error && Number(value) === Math.floor(i / 2) + 1)];
  },

  transaction: async () => [
    await client.multi().set("m:a", "1").incr("m:a").get("m:a").exec(),
    await client.multi().set("m:b", "text").incr("m:b").get("m:b").exec(),
    await errorOf(client.multi().set("m:c", "1").call("SET", "only").exec()),
    await client.get("m:c"), await client.multi({ pipeline: false }), await client.set("m:d", "1"), await client.discard(),
    await client.get("m:d"), await errorOf(client.exec()),
  ],

  watch: async () => {
    const other = await second();
    const tell = [await client.set("w:a", "1"), await client.watch("w:a"), await other.set("w:a", "2")];
    tell.push(await client.multi().set("w:a", "3").exec(), await client.get("w:a"));
    tell.push(await client.watch("w:a"), await client.multi().set("w:a", "4").exec(), await client.get("w:a"));
    tell.push(await client.watch("w:a"), await other.set("w:a", "5"), await client.unwatch());
    tell.push(await client.multi().incr("w:a").exec());
    await other.quit();
    return tell;
  },

  // `bump` is sent as EVALSHA, and as EVAL when the server answers NOSCRIPT.
  scripts: async () => {
    client.defineCommand("bump", { numberOfKeys: 1, lua: "return redis.call('INCRBY', KEYS[1], ARGV[1])" });
    return [
      await client.bump("l:a", 5), await client.bump("l:a", 5), await client.eval("return {KEYS[1], ARGV[1], 7, false}", 1, "l:a", "x"),
      await errorOf(client.evalsha("0".repeat(40), 0)), await errorOf(client.eval("return redis.error_reply('MINE own')", 0)),
    ];
  },

  pubsub: async () => {
    const subscriber = await second();
    const message = new Promise((resolve) => subscriber.on("message", (...all) => resolve(all)));
    const pattern = new Promise((resolve) => subscriber.on("pmessage", (...all) => resolve(all)));
    const tell = [await subscriber.subscribe("ps:a", "ps:b"), await subscriber.psubscribe("ps:*")];
    tell.push(await client.publish("ps:a", "hello"), await message, await pattern);
    tell.push(await subscriber.unsubscribe("ps:a", "ps:b"), await subscriber.punsubscribe("ps:*"), await subscriber.set("ps:after", "1"));
    await subscriber.quit();
    return tell;
  },

  blockingPop: async (key) => {
    const other = await second();
    const popped = await other.blpop(key, 0);
    await other.quit();
    return popped;
  },
  blockingTimeout: () => client.blpop("b:none", 0.1),

  write: (key, value) => client.set(key, value),
  read: (key) => client.get(key),
  writeMany: async (key, count) => {
    const pipeline = client.pipeline();
    for (let i = 0; i < count; i++) pipeline.set(`${key}:${i}`, "stale");
    return (await pipeline.exec()).map(([error, value]) => error?.message ?? value);
  },
  writeInTransaction: (key, value) => client.multi().set(key, value).incr("count").exec(),
  untilWritten: (key, value) => untilWritten(() => client.set(key, value)),
  subscribe: async (channel) => {
    const subscriber = await second();
    subscriber.on("message", (_, message) => got.push(message));
    return subscriber.subscribe(channel);
  },
  received: () => got,
});
