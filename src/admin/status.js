"use strict";
// Shows what /api/v1/status/events tells. Whatever clients have chosen (names, addresses, details) goes into the page as text
// nodes and attributes of data, never as markup.

const kept = { resources: 1000, rejections: 100 };
const silent_after_ms = 5000;  // an event comes each second
const retry_ms = 2000;

const known = { resources: new Map(), rejections: new Map() };  // by id
let status = null;
let clock_ahead_ms = 0;  // of the sidecar's clock, before this one's
let heard_at = performance.now();
let link = "connecting";
let lost_at = null;
let spoken_of = 0;  // the id and count of the last stale rejection that was read out
const rows = new Map();

const at = (id) => document.getElementById(id);

function element(name, options = {}, ...children) {
  const out = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === "class") out.className = value;
    else if (key === "data") Object.assign(out.dataset, value);
    else out.setAttribute(key, value);
  }
  out.append(...children);
  return out;
}

// What is the same is not touched, and so is not read aloud again.
function set_text(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// ── words ───────────────────────────────────────────────────────────────────────────────────────────────────────────

const number_words = new Intl.NumberFormat();
const count = (n) => number_words.format(n);

function duration(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

const sidecar_now = () => (link === "lost" ? lost_at : Date.now()) + clock_ahead_ms;
const ago = (text) => `${duration(sidecar_now() - Date.parse(text))} ago`;
const clock_words = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day_words = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function time(text) {
  const at_all = day_words.format(new Date(text));
  const today = sidecar_now() - Date.parse(text) < 20 * 3600 * 1000;
  return element("time", { datetime: text, title: at_all }, today ? clock_words.format(new Date(text)) : at_all);
}
const passed = (text) => element("small", { class: "ago", data: { since: text } }, ago(text));

const reasons = {
  stale: "stale token", missing: "no token", malformed: "malformed tag", equal: "token was used", jump: "token too high",
  unavailable: "mark not checked", refused: "refused command",
};
const reason = (name) => reasons[name] || name;

// ── gates ───────────────────────────────────────────────────────────────────────────────────────────────────────────

function tag_of_mode(mode) {
  const words = { enforce: "✓ enforce", monitor: "◌ monitor: rejects nothing", mixed: "◐ enforce, some monitor" };
  return element("span", { class: `tag ${mode === "enforce" ? "enforce" : "monitor"}` }, words[mode] || mode);
}

function state_of_backend(one) {
  const words = { up: "✓ up", down: "✕ down", unknown: "– not watched" };
  const looks = { up: "good", down: "bad", unknown: "soft" };
  return element("span", { class: looks[one.state] || "soft" }, words[one.state] || one.state);
}

const svg = (name, attributes) => {
  const out = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) out.setAttribute(key, value);
  return out;
};

// Admitted as bars from below; rejected as triangles on top of the scale, so that one among thousands is seen.
function chart(gate) {
  const seconds = gate.admitted_each_second.length;
  const most = Math.max(1, ...gate.admitted_each_second);
  const out = svg("svg", { class: "chart", viewBox: `0 0 ${seconds} 32`, preserveAspectRatio: "none", role: "img",
                           "aria-label": chart_words(gate) });
  gate.admitted_each_second.forEach((n, i) => {
    if (n > 0) out.append(svg("rect", { class: "admitted", x: i + 0.1, width: 0.8, y: 32 - (22 * n) / most, height: (22 * n) / most }));
  });
  gate.rejected_each_second.forEach((n, i) => {
    if (n > 0) out.append(svg("path", { class: "rejected", d: `M${i} 8 L${i + 0.5} 0 L${i + 1} 8 Z` }));
  });
  return out;
}

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
function chart_words(gate) {
  const seconds = gate.admitted_each_second.length;
  return `In the last ${seconds} seconds: ${count(sum(gate.admitted_each_second))} writes admitted, ` +
         `${count(sum(gate.rejected_each_second))} rejected.`;
}

const lately = 10;
const rate = (each_second) => {
  const per_second = sum(each_second.slice(-lately)) / lately;
  return per_second === 0 || per_second >= 10 ? count(Math.round(per_second)) : per_second.toFixed(1);
};

function figure(name, value, look = "") {
  return element("div", {}, element("dd", { class: look }, value), element("dt", {}, name));
}

function card(gate) {
  const way = element("dl", { class: "way" }, element("dt", {}, "Listens"), element("dd", {}, element("code", {}, gate.listen)));
  const name_of = (one) => one.name || (gate.protocol === "http" ? "Service" : "Server");
  for (const one of gate.backends) {
    way.append(element("dt", {}, name_of(one)),
               element("dd", {}, state_of_backend(one), " ", element("code", {}, one.address)));
  }
  way.append(element("dt", {}, "Guarantee"), element("dd", {}, gate.guarantee));
  const problems = gate.backends.filter((one) => one.problem).map((one) => `${name_of(one)}: ${one.problem}`);
  const rejected_lately = sum(gate.rejected_each_second.slice(-lately)) > 0;
  return element("li", { class: "gate", data: { gate: gate.name } },
    element("div", { class: "top" }, element("h3", {}, gate.name), element("span", { class: "tag plain" }, gate.protocol),
            tag_of_mode(gate.mode)),
    way,
    element("p", { class: problems.length > 0 ? "problem bad" : "problem soft" },
            problems.join("; ") || "No backend has a problem."),
    element("dl", { class: "figures" },
      figure("admitted/s", rate(gate.admitted_each_second)),
      figure(gate.mode === "monitor" ? "would reject/s" : "rejected/s", rate(gate.rejected_each_second), rejected_lately ? "bad" : ""),
      figure("stale, in all", count(gate.stale), gate.stale > 0 ? "bad" : ""),
      figure("marks raised", count(gate.marks_raised)),
      figure("connections", count(gate.connections)),
      gate.regressions > 0 ? figure("marks went back", count(gate.regressions), "bad") : figure("sessions cut", count(gate.sessions_cut))),
    chart(gate),
    element("p", { class: "legend" }, element("span", { class: "a" }, `admitted, last ${gate.admitted_each_second.length} s`),
            element("span", { class: "r" }, "rejected")));
}

// ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────────

function cell(label, options, ...children) {
  return element("td", { role: "cell", ...options, data: { label } }, ...children);
}
const token = (value) => element("code", {}, value ?? "–");

function rejection_row(one) {
  const looks = one.let_through ? "warn" : "bad";
  const why = [element("span", { class: looks }, reason(one.reason)),
               element("small", {}, one.let_through ? "monitor: let through" : `not applied; client got ${one.code}`)];
  const about = [element("code", {}, one.resource || "–")];
  const detail = [one.command, one.detail].filter((text) => text).join(": ");
  if (detail) about.push(element("small", {}, detail));
  if (one.traceparent) about.push(element("small", {}, `traceparent ${one.traceparent}`));
  return [cell("Last seen", {}, time(one.at), passed(one.at)), cell("Reason", {}, ...why), cell("Resource", { class: "wide" }, ...about),
          cell("Token", { class: "number" }, token(one.token)), cell("Mark", { class: "number" }, token(one.mark)),
          cell("Gate", {}, one.gate), cell("Client", {}, element("code", {}, one.client)),
          cell("Times", { class: "number" }, count(one.count))];
}

function resource_row(one) {
  const rose = one.rose_at === undefined ? ["–"]
    : [time(one.rose_at), element("small", {}, one.first_seen ? "first seen here" : "rose"), passed(one.rose_at)];
  const rejected = one.rejected_at === undefined ? ["none"]
    : [element("span", { class: "bad" }, `${reason(one.rejected_for)} `), token(one.rejected_token),
       element("small", {}, `${count(one.rejections)} in all`), passed(one.rejected_at)];
  return [cell("Resource", { class: "wide" }, element("code", {}, one.resource)), cell("Mark", { class: "number" }, token(one.mark)),
          cell("Mark rose", {}, ...rose), cell("Last rejection", {}, ...rejected), cell("Gate", {}, one.gate)];
}

// Rows of a table in that order; those that are the same as before are left as they are.
function fill(body, all, make, id_of) {
  const before = rows.get(body.id) || new Map();
  const after = new Map();
  let place = body.firstElementChild;
  for (const one of all) {
    const id = id_of(one);
    const as_text = JSON.stringify(one);
    const old = before.get(id);
    const row = old && old.as_text === as_text ? old.row : element("tr", { role: "row" }, ...make(one));
    if (old && row !== old.row) {
      if (place === old.row) place = place.nextElementSibling;
      old.row.remove();
    }
    if (before.size > 0 && row !== old?.row) row.className = "new";
    if (row === place) place = place.nextElementSibling;
    else body.insertBefore(row, place);
    after.set(id, { row, as_text });
  }
  for (const [id, old] of before) if (!after.has(id)) old.row.remove();
  rows.set(body.id, after);
}

const filtered = (one, words) =>
  words === "" || [one.resource, one.gate, one.reason, reason(one.reason), one.client, one.command, one.detail, one.traceparent]
    .some((text) => (text || "").toLowerCase().includes(words));

function show_rejections() {
  const words = at("filter").value.trim().toLowerCase();
  const all = [...known.rejections.values()];
  const shown = all.filter((one) => filtered(one, words));
  fill(at("rejections"), shown, rejection_row, (one) => one.id);
  set_text(at("rejections-count"), words ? `${shown.length} of ${all.length}` : all.length > 0 ? `the last ${all.length}` : "");
  at("no-rejections").hidden = shown.length > 0;
  set_text(at("no-rejections"), words ? "No rejection matches the filter." : "Nothing was rejected since this process started.");
}

function show_resources() {
  const all = [...known.resources.values()];
  fill(at("resources"), all, resource_row, (one) => one.id);
  set_text(at("resources-count"), all.length > 0 ? `the last ${count(all.length)} seen` : "");
  at("no-resources").hidden = all.length > 0;
  set_text(at("no-resources"), "No mark rose, and no write was rejected, since this process started.");
}

const list_of_tokens = (one) => one.resources.map((name) =>
  element("div", {}, element("code", {}, name), " ", element("span", { class: "soft" }, "token "), token(one.tokens[name])));

function lease_row(one) {
  const looks = { holding: "good", held: "good", lost: "bad" };
  const words = { holding: "✓ holding", held: "✓ held", lost: "✕ lost", waiting: "… waiting", standby: "… standby", unknown: "? unknown" };
  const state = one.phase || one.state;
  const named = element("span", { class: looks[state] || "warn" }, words[state] || state);
  if (one.phase === undefined)
    return [cell("Resources and tokens", { class: "wide" }, ...list_of_tokens(one)), cell("State", {}, named), cell("Holder", {}, one.holder),
            cell("Valid", {}, state === "held" ? `${(one.act_for_ms / 1000).toFixed(1)} s` : "–")];
  const about = element("small", {}, one.detail);
  return [cell("Resources and tokens", { class: "wide" }, ...list_of_tokens(one)), cell("State", {}, named, about),
          cell("Holder", {}, `gates, for ${one.writer}`, one.held_by ? element("small", {}, `held by ${one.held_by}`) : ""),
          cell("Since", {}, time(one.since), passed(one.since))];
}

function show_leases() {
  const all = [...status.writers, ...status.leases];
  at("leases").replaceChildren(...all.map((one) => element("tr", { role: "row" }, ...lease_row(one))));
  set_text(at("leases-count"), all.length > 0 ? count(all.length) : "");
  at("no-leases").hidden = all.length > 0;
}

// ── the verdict ─────────────────────────────────────────────────────────────────────────────────────────────────────

function show_verdict() {
  const last = [...known.rejections.values()].find((one) => one.reason === "stale");
  const box = at("verdict");
  const as_text = JSON.stringify(last ?? null);
  if (box.dataset.shows === as_text) return;
  box.dataset.shows = as_text;
  if (last === undefined) {
    box.className = "verdict";
    box.replaceChildren(element("strong", {}, "✓ No stale writer since this process started"),
                        element("p", {}, "No token below its mark has come to these gates."));
    return;
  }
  box.className = last.let_through ? "verdict passed" : "verdict stopped";
  const head = last.let_through ? "⚠ A stale writer was let through (monitor)" : "■ A stale writer was stopped";
  const times = last.count > 1 ? `, ${count(last.count)} times` : "";
  box.replaceChildren(
    element("strong", {}, head, " ", element("span", { class: "ago", data: { since: last.at } }, ago(last.at))),
    element("p", {}, "Token ", token(last.token), " of ", element("code", {}, last.resource), " is below mark ", token(last.mark),
            `. It came from ${last.client} to gate ${last.gate}${times}; `,
            last.let_through ? "monitor mode lets it pass." : "nothing of it was applied."));
  const key = `${last.id} ${last.count}`;
  if (spoken_of !== 0 && spoken_of !== key && last.count === 1)
    set_text(at("spoken"), `${head.slice(2)}: token ${last.token} of ${last.resource}, below mark ${last.mark}.`);
  spoken_of = key;
}

// ── all of it ───────────────────────────────────────────────────────────────────────────────────────────────────────

function show_times() {
  for (const one of document.querySelectorAll(".ago")) set_text(one, ago(one.dataset.since));
  set_text(at("uptime"), duration(sidecar_now() - Date.parse(status.started_at)));
}

function show_gates() {
  const list = at("gates");
  const by_name = new Map([...list.children].map((one) => [one.dataset.gate, one]));
  for (const gate of status.gates) {
    const old = by_name.get(gate.name);
    const made = card(gate);
    if (old === undefined) list.append(made);
    else if (!old.isEqualNode(made)) old.replaceWith(made);
  }
}

function remember(what, news, complete) {
  const all = known[what];
  if (complete) all.clear();
  const merged = new Map(news.map((one) => [one.id, one]));  // the last changed first
  for (const [id, one] of all) if (!merged.has(id)) merged.set(id, one);
  known[what] = new Map([...merged].slice(0, kept[what]));
}

function show(told) {
  status = told;
  clock_ahead_ms = Date.parse(told.now) - Date.now();
  remember("resources", told.resources, told.complete);
  remember("rejections", told.rejections, told.complete);
  set_text(at("version"), told.version);
  const state = at("state");
  set_text(state, told.state === "ready" ? "✓ ready" : `⚠ ${told.state}`);
  state.className = told.state === "ready" ? "good" : "warn";
  show_gates();
  show_rejections();
  show_resources();
  show_leases();
  show_verdict();
  show_times();
}

function show_link(now, words) {
  if (now === "lost" && link !== "lost") lost_at = Date.now();
  link = now;
  document.body.dataset.link = now;
  at("link").dataset.link = now;
  set_text(at("link-words"), words);
}

function lost() {
  show_link("lost", `Connection to the sidecar lost at ${clock_words.format(new Date(lost_at ?? Date.now()))}; what you see is from then`);
  set_text(at("state"), `? was ${status.state}`);
  at("state").className = "warn";
}

function watch() {
  const source = new EventSource("/api/v1/status/events");
  source.addEventListener("status", (event) => {
    heard_at = performance.now();
    lost_at = null;
    show_link("live", "Live");
    show(JSON.parse(event.data));
  });
  source.addEventListener("error", () => {
    lost();
    source.close();  // the first event behind a new connection has all of it
    setTimeout(watch, retry_ms);
  });
}

// A connection can also fall silent.
setInterval(() => {
  if (link === "live" && performance.now() - heard_at > silent_after_ms) lost();
  if (link !== "lost") show_times();
}, 1000);

at("filter").addEventListener("input", show_rejections);
show(JSON.parse(at("status").textContent));
watch();
