// The overview: what is behind the gateway, what it saved, and what needs attention.

import { get } from "./api.js";
import { createChart } from "./chart.js";
import { codeBlock } from "./copy.js";
import { openDialog } from "./dialog.js";
import { fill, find, formatCompact, formatNumber, formatPercent, formatSeconds, h, plural, startPage, state } from "./dom.js";
import { listen, poll } from "./events.js";
import { clientSetup } from "./setup.js";

const RANGES = [["hour", "Hour"], ["day", "Day"], ["month", "30 days"]];
const REFRESH_MS = 5_000;
// After new rows, the figures are loaded again at most this often.
const LIVE_MS = 1_000;
const MAX_SERVERS = 12;
const hasFullAccess = document.body.dataset.fullAccess === "true";

let range = "hour";
const parts = {
  notices: h("div.stack"),
  start: h("div"),
  figures: h("section.figures.eight", { "aria-label": "Figures" }),
  attention: h("div"),
  servers: h("div"),
  savings: h("div"),
};
const traffic = createChart({
  series: [
    { name: "calls", label: "Calls", kind: "area", color: 1 },
    { name: "searches", label: "Searches", kind: "line", color: 2 },
    { name: "errors", label: "Errors", kind: "line", color: "bad" },
  ],
  formatValue: formatCompact,
  formatTime,
  label: "Calls, searches and errors over time",
});
const latency = createChart({
  series: [
    { name: "p95", label: "95 % of calls within", kind: "line", color: 4 },
    { name: "p50", label: "50 % of calls within", kind: "line", color: 1 },
  ],
  formatValue: formatSeconds,
  formatTime,
  label: "Duration of calls over time",
});
const savedChart = createChart({
  series: [
    { name: "tokens_full", label: "Full lists", kind: "bar", color: 5 },
    { name: "tokens_sent", label: "Sent", kind: "bar", color: 1 },
  ],
  formatValue: formatCompact,
  formatTime: (point) => point.day.slice(5),
  label: "Tokens of full tool lists and tokens sent, by day",
});

const charts = h("div.grid.charts", { hidden: true }, traffic.element, latency.element);
const noTraffic = state("empty", "No calls and searches in this time", "They appear here as they happen.");
const noHistory = state("error", "The history is unavailable", "It is in the database, which the gateway cannot reach.");
noHistory.hidden = true;

function formatTime(point) {
  const date = new Date(point.at * 1000);
  return range === "month"
    ? date.toLocaleDateString("en", { month: "short", day: "numeric", timeZone: "UTC" })
    : date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

function figure(label, value, note = "", kind = "") {
  return h("div.card", h("div.figure-label", label), h("div.figure-value", { dataset: { kind } }, value), note ? h("div.figure-note", note) : null);
}

function drawFigures(overview, series, savings) {
  const reachable = overview.servers.filter((server) => !server.trouble).length;
  const total = series?.total;
  const during = { hour: "in the last hour", day: "in the last day", month: "in 30 days" }[range];
  fill(
    parts.figures,
    figure("Servers", formatNumber(overview.servers.length), !overview.servers.length ? "none yet" : reachable === overview.servers.length ? "all reachable" : `${overview.servers.length - reachable} not reachable`),
    figure("Tools", formatNumber(overview.tools), `about ${formatCompact(overview.tokens)} tokens`),
    total ? figure("Calls", formatCompact(total.calls), during) : null,
    total ? figure("Searches", formatCompact(total.searches), during) : null,
    total ? figure("Errors", formatCompact(total.errors), total.calls ? `${formatPercent(total.errors / (total.calls + total.searches || 1))} of requests` : during, total.errors ? "bad" : "") : null,
    total ? figure("Median call", formatSeconds(total.p50 ?? NaN), total.p95 == null ? "none yet" : `95 % within ${formatSeconds(total.p95)}`) : null,
    savings ? figure("Tokens saved", formatCompact(Math.max(savings.total.tokens_saved, 0)), "in 30 days", savings.total.tokens_saved > 0 ? "ok" : "") : null,
    figure("Clients", formatNumber(overview.sessions), "with an open session"),
  );
}

function serverLink(name) {
  return `/servers?server=${encodeURIComponent(name)}`;
}

function drawNotices(notices) {
  fill(parts.notices, notices.map((notice) => h("div.notice", { dataset: { kind: "warn" } }, notice)));
}

const DECISION_LINKS = {
  definition: [() => "/decisions", "Review"],
  login: [serverLink, "Log in"],
  server: [serverLink, "Open"],
};

function drawAttention(decisions) {
  if (!decisions.length) return fill(parts.attention);
  return fill(
    parts.attention,
    h(
      "section.card.flush",
      { "aria-label": "Needs attention" },
      h("div.card-head", h("h2", "Needs attention"), h("span.badge", { dataset: { kind: "warn" } }, formatNumber(decisions.length))),
      h(
        "ul.rows",
        decisions.map((each) => {
          const [link, action] = DECISION_LINKS[each.kind];
          return h(
            "li.rows-item",
            h("span.dot", { dataset: { kind: each.kind === "server" ? "bad" : "warn" } }),
            h("div.rows-text", h("strong", each.server), h("div.muted", each.text)),
            h("a.button.small", { href: link(each.server), "aria-label": `${action}: ${each.server}` }, action),
          );
        }),
      ),
    ),
  );
}

function serverKind(server) {
  if (server.trouble && server.state !== "stopped") return "bad";
  return server.waiting.length || server.flagged.length ? "warn" : server.state === "started" || server.state === "in use" ? "ok" : "off";
}

function drawServers(servers) {
  fill(
    parts.servers,
    h(
      "section.card.flush",
      { "aria-label": "Servers" },
      h("div.card-head", h("h2", "Servers"), h("div.actions", h("a.button.small", { href: "/servers" }, servers.length > MAX_SERVERS ? `All ${formatNumber(servers.length)} servers` : "All servers"))),
      servers.length
        ? h(
            "ul.rows",
            servers.slice(0, MAX_SERVERS).map((server) =>
              h(
                "li.rows-item",
                h("span.dot", { dataset: { kind: serverKind(server) } }),
                h("div.rows-text", h("a.row-link", { href: serverLink(server.name) }, server.name), h("div.muted", server.trouble || `${server.state}, ${plural(server.tools, "tool")}, about ${formatCompact(server.tokens)} tokens${server.flagged.length ? `, ${formatNumber(server.flagged.length)} suspicious` : ""}`)),
                h("span.muted.nowrap", plural(server.calls, "call")),
              ),
            ),
          )
        : state("empty", "No servers yet", "Add a server, or import those of your clients.", h("a.button", { href: "/servers" }, "Add a server")),
    ),
  );
}

function drawSavings(savings) {
  const rows = savings.clients.filter((client) => client.tokens_full || client.tokens_sent);
  savedChart.update(savings.days);
  fill(
    parts.savings,
    h(
      "section.card",
      { "aria-label": "Tokens saved" },
      h("div.card-head", h("h2", "Tokens saved"), h("span.muted", "full tool lists compared with what clients were sent, 30 days")),
      rows.length
        ? [
            savedChart.element,
            h(
              "div.table-scroll",
              { tabindex: "0", role: "region", "aria-label": "Tokens saved by client" },
              h(
                "table",
                h("thead", h("tr", h("th", "Client"), h("th.number", "Full lists"), h("th.number", "Sent"), h("th.number", "Saved"))),
                h(
                  "tbody",
                  rows.slice(0, 10).map((client) =>
                    h(
                      "tr",
                      h("td", client.client),
                      h("td.number", formatCompact(client.tokens_full)),
                      h("td.number", formatCompact(client.tokens_sent)),
                      h("td.number", `${formatCompact(client.tokens_saved)} (${formatPercent(client.tokens_full ? client.tokens_saved / client.tokens_full : NaN)})`),
                    ),
                  ),
                ),
              ),
            ),
          ]
        : state("empty", "Nothing sent yet", "When a client lists or searches tools, the saved tokens appear here."),
    ),
  );
}

async function drawStart(overview) {
  if (!overview.is_demo && !overview.is_unused) return fill(parts.start);
  const count = `Describe a task. The search looks through ${plural(overview.tools, "tool")}.`;
  if (parts.start.childElementCount) {
    find("[data-start-count]", parts.start).textContent = count;
    return parts.start;
  }
  const setup = await get("/api/setup");
  const query = h("input", { type: "search", name: "q", value: overview.is_demo ? "convert miles to kilometres" : "", placeholder: "What should a tool do?", "aria-label": "A query" });
  const form = h("form.row.nowrap-form", { action: "/search", method: "get" }, query, h("button.button.primary", { type: "submit" }, "Search"));
  return fill(
    parts.start,
    h(
      "section.card.start",
      { "aria-label": "First steps" },
      h("div.card-head", h("h2", "Three steps to the first result")),
      h(
        "ol.steps",
        step("Import your servers", [
          h("p", overview.is_demo ? "The demo server is running, so you can start with step 2 or 3. Later, import the servers of your clients:" : "Import the servers of your clients:"),
          h("div.row", h("a.button", { href: "/servers?add=clients" }, "Import servers"), h("a.button", { href: "/servers?add=paste" }, "Add a server")),
          h("p.help", "Or run this in a terminal:"),
          codeBlock(`${setup.command} import`, "Command"),
        ]),
        step("Connect your client", [clientSetup(setup)]),
        step("Try a search", [
          h("p", { dataset: { startCount: "" } }, count),
          form,
        ]),
      ),
    ),
  );
}

function step(title, content) {
  return h("li.step", h("h3", title), content);
}

function chartCard() {
  const buttons = RANGES.map(([name, label]) =>
    h("button", {
      type: "button",
      "aria-pressed": String(name === range),
      onclick: (event) => {
        range = name;
        buttons.forEach((button) => button.setAttribute("aria-pressed", String(button === event.currentTarget)));
        load();
      },
    }, label),
  );
  return h(
    "section.card",
    { "aria-label": "Traffic" },
    h("div.card-head", h("h2", "Traffic"), h("div.actions", h("div.segmented", { role: "group", "aria-label": "Time" }, buttons))),
    noTraffic,
    noHistory,
    charts,
  );
}

async function load() {
  const wanted = range;
  const [overview, series, savings] = await Promise.all([
    get("/api/overview"),
    hasFullAccess ? unlessAway(get("/api/timeseries", { range: wanted })) : null,
    hasFullAccess ? unlessAway(get("/api/savings")) : null,
  ]);
  if (wanted !== range) return;
  drawNotices(overview.notices);
  drawFigures(overview, series, savings);
  drawAttention(overview.decisions);
  drawServers(overview.servers);
  if (series) {
    charts.hidden = !(series.total.calls || series.total.searches);
    noTraffic.hidden = !charts.hidden;
    noHistory.hidden = true;
    traffic.update(series.points);
    latency.update(series.points);
  }
  else if (charts.hidden) {
    noTraffic.hidden = true;
    noHistory.hidden = false;
  }
  if (savings) drawSavings(savings);
  await drawStart(overview);
}

/** Return the result of a request, or null if the database of the gateway cannot be reached. */
function unlessAway(reply) {
  return reply.catch((error) => {
    if (error.status === 503) return null;
    throw error;
  });
}

async function showSetup() {
  const content = clientSetup(await get("/api/setup"));
  openDialog("Connect a client", () => content);
}

async function showPage() {
  await load();
  fill(find("[data-content]"), parts.notices, parts.start, parts.figures, parts.attention, hasFullAccess ? chartCard() : null, h("div.grid.halves", hasFullAccess ? parts.savings : null, parts.servers));
  poll(load, REFRESH_MS);
  if (!hasFullAccess) return;
  let timer = 0;
  listen("/api/activity/stream", {
    row: () => {
      timer ||= setTimeout(() => {
        timer = 0;
        if (!document.hidden) load().catch(() => {});
      }, LIVE_MS);
    },
  });
}

find("[data-connect]")?.addEventListener("click", showSetup);
startPage(showPage, "The overview could not be loaded");
