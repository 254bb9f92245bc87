// The http client of Node.js against an HTTP gate: trailers of answers and of requests, as one line of JSON.
import http from "node:http";

const [port] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });

function ask(headers, trailers) {
  return new Promise((done, failed) => {
    const request = http.request({ port, agent, host: "127.0.0.1", method: "PUT", path: "/orders/node", headers });
    request.on("error", failed);
    request.on("response", (answer) => {
      let text = "";
      answer.on("data", (part) => (text += part));
      answer.on("error", failed);
      answer.on("end", () => {
        const { trailer = null, "fencing-mark": mark = null } = answer.headers;
        done([answer.statusCode, trailer, mark, text, answer.rawTrailers]);
      });
    });
    request.write("body");
    if (trailers) request.addTrailers(trailers);
    request.end();
  });
}

const token = { "Fencing-Token": "34" };
const wish = { TE: "trailers", Connection: "TE, keep-alive" };
const announced = { Trailer: "Fencing-Token, X-Sum" };
const late = { "Fencing-Token": "99", "X-Sum": "1" };
const said = [];
said.push(await ask({ ...token, ...wish }));
said.push(await ask(token));
said.push(await ask({ ...token, ...wish, ...announced }, late));
said.push(await ask({ ...announced }, late));
agent.destroy();
console.log(JSON.stringify(said));
