// postgres.js, with the fence tag as start-up option. Arguments: port, tag, "options" or "application_name".
import postgres from "postgres";
import { serve } from "./lines.mjs";

const [port, tag, way] = process.argv.slice(2);
const connection = way === "options" ? { options: `-c fencing.tokens=${tag}` } : { application_name: `fence:${tag}` };
const sql = postgres({ host: "127.0.0.1", port: Number(port), user: "alice", database: "postgres", max: 1, connection,
                       onnotice: () => {} });
const seen = [];
let transaction, goOn; // its outcome; lets it commit

const failure = async (promise) => {
  try {
    return { unexpected: await promise };
  } catch (error) {
    return `${error.code ?? ""} ${error.message}`;
  }
};

await serve({
  connect: async () => { await sql`SELECT 1`; return "connected"; },
  refused: () => failure(sql`SELECT 1`),
  statements: async () => [
    await sql`SELECT 1 AS a`, await sql`SELECT ${41}::int + 1 AS a`, await sql`SELECT ${"x"}::text AS a`,
    await sql`SELECT ${"y"}::text AS a`, await failure(sql`SELECT 1/0`), await failure(sql.unsafe("SELECT 'x'::int")),
    (await Promise.all(Array.from({ length: 200 }, (_, n) => sql`SELECT ${n}::int AS n`))).flat().length,
  ],
  transaction: async () => {
    await failure(sql.begin(async (tx) => {
      await tx`INSERT INTO writes (who) VALUES (${"rolled back"})`;
      throw new Error("no");
    }));
    await sql.begin((tx) => tx`INSERT INTO writes (who) VALUES (${"kept"})`);
    return (await sql`SELECT who FROM writes`).map((row) => row.who);
  },
  // postgres.js listens on a connection of its own.
  listen: async () => {
    let got;
    const message = new Promise((resolve) => (got = resolve));
    const listening = await sql.listen("c", got);
    await sql.notify("c", "hello");
    const text = await message;
    await listening.unlisten();
    return text;
  },
  pooled: async () => {
    const all = await sql.begin((tx) => Array.from({ length: 30 }, (_, n) => tx`SELECT ${n}::int AS n`));
    return all.flat().map((row) => row.n).reduce((a, b) => a + b);
  },
  // Not with sql.reserve(): version 3.4.9 ends the process when a reserved connection is used after it was closed.
  begin: () => new Promise((inserted) => {
    transaction = failure(sql.begin(async (tx) => {
      await tx`INSERT INTO writes (who) VALUES ('stale')`;
      inserted();
      await new Promise((resolve) => (goOn = resolve));
    }));
    transaction.then(() => (goOn = null));
  }),
  commit: () => { goOn?.(); return transaction; },
  poolFails: () => failure(sql`INSERT INTO writes (who) VALUES ('stale')`),
  write: () => failure(sql`INSERT INTO writes (who) VALUES ('stale')`),
  sleep: () => failure(sql`INSERT INTO writes (who) SELECT 'stale' FROM pg_sleep(60)`),
  seen: () => seen,
});
