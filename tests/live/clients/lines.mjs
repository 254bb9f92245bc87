// A client as a small server on stdin and stdout: one JSON line {action, args} in, one {value} or {error} out, in order.
// What the clients give back is written so that it can be compared: errors with name and text, maps and sets as lists.
import { createInterface } from "node:readline";

export function errorText(error) {
  return `${error.name ?? error.constructor.name}: ${error.message}`;
}

function comparable(key, value) {
  if (value instanceof Map) return { map: [...value] };
  if (value instanceof Set) return { set: [...value].sort() };
  if (value instanceof Error) return { error: errorText(value) };
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "number" && !Number.isFinite(value)) return String(value);
  return value;
}

export async function serve(actions) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { action, args } = JSON.parse(line);
    let answer;
    try {
      answer = { value: (await actions[action](...args)) ?? null };
    } catch (error) {
      answer = { error: errorText(error) };
    }
    process.stdout.write(JSON.stringify(answer, comparable) + "\n");
  }
  process.exit(0);
}

// The error of a promise that must not be fulfilled.
export async function errorOf(promise) {
  try {
    return { unexpected: await promise };
  } catch (error) {
    return errorText(error);
  }
}

// Repeats `write` while it fails for any reason but the fence, as an application would during a restart.
export async function untilWritten(write) {
  const end = Date.now() + 20_000;
  for (;;) {
    try {
      return await write();
    } catch (error) {
      if (error.message.startsWith("FENCED ") || Date.now() > end) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}
