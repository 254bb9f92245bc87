// node-postgres: one client whose tag comes in its URL, and a Pool. Arguments: port, tag, "options" or "application_name".
import pg from "pg";
import { serve } from "./lines.mjs";

const [port, tag, way] = process.argv.slice(2);
const query = new URLSearchParams(
  way === "options" ? { options: `-c fencing.tokens=${tag}` } : { application_name: `fence:${tag}` });
const connectionString = `postgres://alice@127.0.0.1:${port}/postgres?${query}`;
const client = new pg.Client({ connectionString });
const pool = new pg.Pool({ connectionString, max: 3 });
const seen = []; // errors that no statement got
client.on("error", (error) => seen.push(`${error.code ?? ""} ${error.message}`));
pool.on("error", (error) => seen.push(`${error.code ?? ""} ${error.message}`));

const failure = async (promise) => {
  try {
    return { unexpected: await promise };
  } catch (error) {
    return `${error.code ?? ""} ${error.message}`;
  }
};
const rows = async (...all) => (await client.query(...all)).rows;

await serve({
  connect: async () => { await client.connect(); return "connected"; },
  refused: () => failure(client.connect()),
  statements: async () => [
    await rows("SELECT 1 AS a"), await rows("SELECT $1::int + 1 AS a", [41]),
    await rows({ name: "twice", text: "SELECT $1::text AS a", values: ["x"] }),
    await rows({ name: "twice", text: "SELECT $1::text AS a", values: ["y"] }),
    await failure(rows("SELECT 1/0")), await failure(rows("SELECT $1::int", ["x"])),
    (await Promise.all(Array.from({ length: 200 }, (_, n) => rows("SELECT $1::int AS n", [n])))).flat().map((row) => row.n).length,
  ],
  transaction: async () => {
    await rows("BEGIN");
    await rows("INSERT INTO writes (who) VALUES ($1)", ["rolled back"]);
    await rows("ROLLBACK");
    await rows("BEGIN");
    await rows("INSERT INTO writes (who) VALUES ($1)", ["kept"]);
    await rows("COMMIT");
    return (await rows("SELECT who FROM writes")).map((row) => row.who);
  },
  listen: async () => {
    const message = new Promise((resolve) => client.on("notification", (one) => resolve(one.payload)));
    await rows("LISTEN c");
    await rows("NOTIFY c, 'hello'");
    return message;
  },
  pooled: async () => {
    const all = await Promise.all(Array.from({ length: 30 }, (_, n) => pool.query("SELECT $1::int AS n", [n])));
    return all.map((one) => one.rows[0].n).reduce((a, b) => a + b);
  },
  poolFails: () => failure(pool.query("INSERT INTO writes (who) VALUES ('stale')")),
  begin: async () => { await rows("BEGIN"); await rows("INSERT INTO writes (who) VALUES ('stale')"); },
  commit: () => failure(rows("COMMIT")),
  write: () => failure(rows("INSERT INTO writes (who) VALUES ($1)", ["stale"])),
  sleep: () => failure(rows("INSERT INTO writes (who) SELECT 'stale' FROM pg_sleep(60)")),
  seen: () => seen,
});
