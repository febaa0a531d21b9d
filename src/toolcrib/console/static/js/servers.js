// The servers: their state, one in detail with its log, and the actions on them.

import { get, post, runAction, toast } from "./api.js";
import { addServer, changeServer } from "./add-server.js";
import { fill, find, formatCompact, formatNumber, formatSeconds, h, longText, plural, state, timeAgo } from "./dom.js";
import { poll } from "./events.js";

const LIST_INTERVAL_MS = 2_000;
const KINDS = { started: "ok", "in use": "ok", known: "off", configured: "off", stopped: "off", disabled: "off" };
const TRANSPORTS = { stdio: "MCP server, a program", http: "MCP server on HTTP", sse: "MCP server on HTTP (SSE)", openapi: "HTTP API (OpenAPI)" };
const STATES = { started: "running", "in use": "in use", known: "starts on demand", configured: "starting", stopped: "stopped", disabled: "disabled" };

const list = find("[data-server-list]");
const detail = find("[data-server-detail]");
const root = find("[data-servers]");
const hasFullAccess = document.body.dataset.fullAccess === "true";
let openName = new URLSearchParams(location.search).get("server") ?? "";
let shown = "";
let log;
// The last reply with what the database has about each server.
const known = new Map();
// The problems of each server's tools, which only the list has.
let problems = new Map();
const MAX_LINKS = 20;
const STORED_FIELDS = ["info", "instructions", "seenAt", "calls", "failures", "seconds"];

const openAdd = (way) => addServer(way).then((isSaved) => isSaved && refresh());
find("[data-add]")?.addEventListener("click", () => openAdd());
const wantedWay = new URLSearchParams(location.search).get("add");
if (wantedWay && hasFullAccess) {
  history.replaceState(null, "", "/servers");
  openAdd(wantedWay);
}
const stop = poll(refresh, LIST_INTERVAL_MS);
addEventListener("pagehide", stop);

async function refresh() {
  let servers, disabled;
  try {
    ({ servers, disabled } = await get("/api/servers"));
  } catch (error) {
    if (!shown) fill(list, state("error", "The servers could not be loaded", error.message));
    throw error;
  }
  const rows = [...servers, ...disabled.map((name) => ({ name, state: "disabled", tools: 0, tokens: 0, calls: 0, trouble: "", waiting: [], flagged: [], faults: [] }))];
  rows.sort((left, right) => rank(left) - rank(right));
  problems = new Map(rows.map(({ name, faults, flagged }) => [name, { faults, flagged }]));
  const signature = JSON.stringify([rows, openName]);
  if (signature !== shown) showList(rows);
  shown = signature;
  if (openName) await loadDetail(openName);
}

/** Return the sort key of a server: those that need attention come first. */
function rank(server) {
  if (server.state === "disabled") return 3;
  if (server.trouble && server.state !== "stopped") return 0;
  return server.waiting.length || server.faults.length ? 1 : 2;
}

function showList(servers) {
  const tools = servers.reduce((sum, server) => sum + server.tools, 0);
  const tokens = servers.reduce((sum, server) => sum + server.tokens, 0);
  find("[data-server-total]").textContent = `${plural(servers.length, "server")} with ${plural(tools, "tool")}, ${formatCompact(tokens)} tokens.`;
  if (!servers.length) {
    fill(list, state("empty", "No servers yet", "Add one here, or run toolcrib import to import the servers of your clients."));
    return;
  }
  const focused = document.activeElement?.dataset?.server;
  fill(list, h("ul.server-rows", servers.map(renderRow)));
  if (focused) find(`[data-server="${CSS.escape(focused)}"]`)?.focus();
}

function renderRow(server) {
  return h(
    "li",
    h(
      "button.server-row",
      { type: "button", "aria-pressed": String(server.name === openName), dataset: { server: server.name }, onclick: () => openServer(server.name) },
      h("span.server-name", h("span.dot", { dataset: { kind: kindOf(server) } }), server.name, server.transport === "openapi" ? h("span.badge", "OpenAPI") : null),
      stateBadge(server),
      h("span.server-figures.muted", server.state === "disabled" ? "" : `${plural(server.tools, "tool")} · ${formatCompact(server.tokens)} tok · ${plural(server.calls, "call")}`),
      server.trouble && server.state !== "stopped" ? h("span.server-trouble", server.trouble.slice(0, 160)) : null,
    ),
  );
}

const warningsOf = ({ waiting = [], flagged = [], faults = [] }) =>
  [waiting.length ? `${waiting.length} to decide` : "", flagged.length ? `${flagged.length} suspicious` : "", faults.length ? plural(faults.length, "problem") : ""].filter(Boolean);
const kindOf = (server) => (server.trouble && server.state !== "stopped" ? "bad" : warningsOf(server).length ? "warn" : KINDS[server.state] ?? "off");

function stateBadge(server) {
  if (server.trouble && server.state !== "stopped") return h("span.badge", { dataset: { kind: "bad" } }, "not reachable");
  const kind = KINDS[server.state] === "ok" ? "ok" : "";
  return h("span.row", h("span.badge", { dataset: { kind } }, STATES[server.state] ?? server.state), warningsOf(server).map((text) => h("span.badge", { dataset: { kind: "warn" } }, text)));
}

function openServer(name) {
  openName = name;
  history.replaceState(null, "", `/servers?server=${encodeURIComponent(name)}`);
  shown = "";
  detail.hidden = false;
  fill(detail, state("loading", "Loading"));
  refresh().catch(() => {});
}

function closeServer() {
  openName = shown = "";
  history.replaceState(null, "", "/servers");
  detail.hidden = true;
  root.classList.remove("has-detail");
  refresh().catch(() => {});
}

async function loadDetail(name) {
  let server;
  let lines = [];
  try {
    server = await get(`/api/servers/${encodeURIComponent(name)}`);
    if (hasFullAccess) ({ lines } = await get(`/api/servers/${encodeURIComponent(name)}/log`));
  } catch (error) {
    const back = h("button.button", { type: "button", onclick: closeServer }, "All servers");
    if (openName !== name) return;
    if (error.status === 404) showInstead(state("empty", "There is no such server", "It may have been removed.", back));
    else if (!detail.contains(log)) showInstead(state("error", "The server could not be loaded", error.message, back));
    return;
  }
  if (openName !== name) return;
  if (!server.storeTrouble) known.set(name, server);
  else if (known.has(name)) for (const field of STORED_FIELDS) server[field] = known.get(name)[field];
  detail.hidden = false;
  root.classList.add("has-detail");
  const signature = JSON.stringify({ ...server, ...problems.get(name), seenAt: 0 });
  if (detail.dataset.signature !== signature || !detail.contains(log)) {
    detail.dataset.signature = signature;
    showDetail(server);
  }
  const text = lines.join("\n");
  if (log && log.dataset.text !== text) {
    const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
    log.dataset.text = text;
    fill(log, text || "Nothing was written to standard error.");
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }
}

/** Show a message in place of a server. */
function showInstead(message) {
  detail.hidden = false;
  root.classList.add("has-detail");
  delete detail.dataset.signature;
  fill(detail, message);
}

function showDetail(server) {
  log = h("pre.log", { tabindex: "0", "aria-label": "Log" });
  const isKnown = !server.storeTrouble || known.has(server.name);
  fill(
    detail,
    h("button.button.small.back", { type: "button", onclick: closeServer }, "← All servers"),
    h("header.detail-head", h("h2", server.name), h("div.row", stateBadge(server), server.info.version ? h("span.muted", `${server.info.title ?? server.info.name ?? ""} ${server.info.version}`) : null)),
    server.trouble ? h("p.notice", { dataset: { kind: server.state === "stopped" ? "" : "bad" } }, server.trouble) : null,
    server.storeTrouble ? h("p.notice", { dataset: { kind: "warn" }, role: "status" }, `${known.has(server.name) ? "Calls, errors and version are from before the database became unavailable" : "Calls, errors and version are unknown at the moment"}: ${server.storeTrouble}`) : null,
    server.login?.state === "waiting" ? h("p.notice", "Waiting for the login in the other tab.") : null,
    server.login?.state === "failed" ? h("p.notice", { dataset: { kind: "bad" } }, server.login.message) : null,
    problemNotices(problems.get(server.name)),
    hasFullAccess ? renderActions(server) : null,
    h(
      "div.figures",
      figure("Tools", formatNumber(server.tools), h("a", { href: `/catalog?server=${encodeURIComponent(server.name)}` }, "in the catalog")),
      figure("Tokens", formatCompact(server.tokens), "in all definitions"),
      figure("Calls", isKnown ? formatNumber(server.calls) : "–", !isKnown ? "unknown at the moment" : server.calls ? `${formatSeconds(server.seconds / server.calls)} on average` : "none yet"),
      figure("Errors", isKnown ? formatNumber(server.failures) : "–", !isKnown ? "unknown at the moment" : server.calls ? `${((100 * server.failures) / server.calls).toFixed(1)} % of calls` : "none"),
    ),
    h(
      "section.detail-section",
      h("h3", "Connection"),
      h(
        "dl.facts",
        fact("Kind", TRANSPORTS[server.transport] ?? server.transport),
        fact("Protocol revision", server.protocol),
        fact("Started", server.startedAt ? timeAgo(server.startedAt) : null),
        fact("Restarts", server.starts > 1 ? formatNumber(server.starts - 1) : "none"),
        fact("Start", server.start === "lazy" ? "on demand" : "with the gateway"),
        fact(server.transport === "openapi" ? "Document" : server.canLogIn ? "Address" : "Command", server.target ? h("code", server.target.slice(0, 400)) : null),
      ),
    ),
    server.instructions ? h("section.detail-section", h("h3", "Instructions"), longText(server.instructions, 800)) : null,
    server.heaviest.length
      ? h(
          "section.detail-section",
          h("h3", "Largest tools"),
          h("ul.heaviest", server.heaviest.map((tool) => h("li", h("a.mono", { href: `/catalog?tool=${encodeURIComponent(tool.name)}` }, tool.name), h("span.score-bar", { style: { "--value": tool.tokens / server.heaviest[0].tokens } }), h("span.number.muted", `${formatNumber(tool.tokens)} tok`)))),
        )
      : null,
    hasFullAccess ? h("section.detail-section", h("h3", "Log"), log) : null,
  );
}

/** Return the problems of a server's tools and overrides, and links to the tools that look suspicious. */
function problemNotices({ faults = [], flagged = [] } = {}) {
  const notice = (...content) => h("p.notice", { dataset: { kind: "warn" } }, content);
  const links = flagged.slice(0, MAX_LINKS).map((name) => [" ", h("a.mono", { href: `/catalog?tool=${encodeURIComponent(name)}` }, name)]);
  return [faults.slice(0, MAX_LINKS).map((text) => notice(text)), flagged.length ? notice(`${plural(flagged.length, "tool")} with a suspicious definition:`, links) : null];
}

const figure = (label, value, note) => h("div", h("div.figure-label", label), h("div.figure-value", value), h("div.figure-note", note));
const fact = (name, value) => (value === null || value === "" ? null : [h("dt", name), h("dd", value)]);

function renderActions(server) {
  const act = (label, action, options = {}) =>
    h("button.button.small", { type: "button", class: options.class ?? "", onclick: (event) => runAction(event.currentTarget, action) }, label);
  const send = (action, message) => async () => {
    await post(`/api/servers/${encodeURIComponent(server.name)}/${action}`);
    toast(message);
    await refresh();
  };
  const edit = (action) => async () => {
    if (await changeServer(action, server.name)) await refresh();
  };
  if (server.state === "disabled") return h("div.row", act("Enable", edit("enable"), { class: "primary" }), act("Remove", edit("remove"), { class: "danger" }));
  const isUp = server.state === "started" || server.state === "in use";
  return h(
    "div.row",
    isUp ? act("Restart", send("restart", `${server.name} restarts.`)) : act("Start", send("start", `${server.name} starts.`), { class: "primary" }),
    server.state === "stopped" ? null : act("Stop", send("stop", `${server.name} is stopped.`)),
    server.canLogIn ? act("Log in", () => logIn(server)) : null,
    act("Disable", edit("disable")),
    act("Remove", edit("remove"), { class: "danger" }),
  );
}

async function logIn(server) {
  const { url, needed } = await post(`/api/servers/${encodeURIComponent(server.name)}/login`);
  if (!needed) toast(`${server.name} needs no login.`);
  else if (/^https?:/.test(url)) open(url, "_blank", "noopener");
  await refresh();
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && openName && !find("dialog[open]") && !event.target.closest("input, textarea, select")) closeServer();
  if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target.closest("[data-server]")) {
    event.preventDefault();
    const rows = [...list.querySelectorAll("[data-server]")];
    const at = rows.indexOf(event.target.closest("[data-server]")) + (event.key === "ArrowDown" ? 1 : -1);
    rows[Math.min(Math.max(at, 0), rows.length - 1)]?.focus();
  }
});
