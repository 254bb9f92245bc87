// fetch of Node.js against an HTTP gate: prints what it got, as one line of JSON.
const [port] = process.argv.slice(2);
const base = `http://127.0.0.1:${port}`;
const said = [];

async function ask(method, path, token, body, extra = {}) {
  const headers = token === null ? {} : { "Fencing-Token": String(token) };
  const answer = await fetch(base + path, { method, headers, body, ...extra });
  const text = await answer.text();
  said.push([answer.status, answer.headers.get("fencing-mark"), answer.headers.get("content-type"), text]);
}

// A body without a length: fetch sends it in chunks.
function stream(pieces) {
  return new ReadableStream({
    pull(to) {
      if (pieces-- > 0) to.enqueue(new Uint8Array(65536));
      else to.close();
    },
  });
}

await ask("PUT", "/orders/node%2D7", 34, "body");
await ask("PUT", "/orders/node%2D7", 33, "stale");
await ask("PUT", "/orders/node%2D7", null, "none");
await ask("PUT", "/orders/large", 35, stream(64), { duplex: "half" });
await Promise.all(Array.from({ length: 20 }, (_, at) => ask("GET", `/anything?${at}`, null)));
console.log(JSON.stringify(said));
