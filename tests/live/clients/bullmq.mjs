// BullMQ as an application uses it: a queue and a worker, which name their connections themselves. Arguments: port, the
// worker's name.
import { Queue, Worker } from "bullmq";
import { errorText, serve } from "./lines.mjs";

const [port, name] = process.argv.slice(2);
const connection = { host: "127.0.0.1", port: Number(port) };
const queue = new Queue("jobs", { connection });
const errors = [];
const done = [];
let worker;

async function until(check) {
  const end = Date.now() + 25_000;
  for (;;) {
    const found = await check();
    if (found) return found;
    if (Date.now() > end) throw new Error(`too late; done ${JSON.stringify(done)}, errors ${JSON.stringify(errors)}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

queue.on("error", () => {});

await serve({
  start: async () => {
    worker = new Worker(
      "jobs",
      async (job) => {
        if (job.data === "fails once" && job.attemptsMade === 0) throw new Error("again");
        await job.updateProgress(50);
        await job.log("half");
        return `${name}: ${job.data}`;
      },
      { connection, concurrency: 4 },
    );
    worker.on("completed", (job, result) => done.push(result));
    worker.on("error", (error) => errors.push(errorText(error)));
    await worker.waitUntilReady();
  },
  add: async (...data) => {
    const jobs = await queue.addBulk(data.map((one) => ({ name: "job", data: one, opts: { attempts: 2 } })));
    return jobs.length;
  },
  addLater: async (data) => void (await queue.add("job", data, { delay: 100 })),
  done: async (count) => {
    await until(() => done.length >= count);
    return done.sort();
  },
  counts: () => queue.getJobCounts("completed", "failed", "wait", "active", "delayed"),
  // The first error of the worker whose text begins so.
  failed: (text) => until(() => errors.find((one) => one.includes(text))),
  names: async () => (await queue.getWorkers()).length,
  stop: async () => {
    await worker.close();
    await queue.close();
  },
});
