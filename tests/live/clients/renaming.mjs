// ioredis as job queues use it: each connection gets a name of the queue's own, whatever the application wanted. Argument:
// port.
import { Redis } from "ioredis";
import { serve } from "./lines.mjs";

const [port] = process.argv.slice(2);
const client = new Redis({ host: "127.0.0.1", port: Number(port), connectionName: "bull:jobs" });

await serve({
  work: async () => {
    const waiting = client.duplicate({ connectionName: "bull:jobs:w:1" });
    await waiting.client("SETNAME", "bull:jobs:w:2");
    const popped = waiting.brpop("jobs:wait", 0);
    popped.catch(() => {}); // it is awaited below, unless the transaction fails first
    await client.multi().lpush("jobs:wait", "first").incr("jobs:count").exec();
    const tell = [await popped, await client.eval("return redis.call('SET', KEYS[1], ARGV[1])", 1, "jobs:done", "first")];
    await waiting.quit();
    return tell;
  },
});
