// Activity: every search and call as it happens, with filters.

import { get, runAction } from "./api.js";
import { debounce, fill, find, formatNumber, formatSeconds, h, startPage, state } from "./dom.js";
import { listen } from "./events.js";
import { ACTIONS, OUTCOMES, actionBadge, formatBytes, formatClock, openRow, outcomeBadge, what, who } from "./rows.js";

const PAGE_ROWS = 50;
// Older rows leave the table, so that a page that is open for hours stays small.
const MAX_ROWS = 300;
const DRAW_MS = 250;
const RETRY_MS = 3_000;
const FIELDS = ["action", "outcome", "client", "server", "tool"];

const query = new URLSearchParams(location.search);
const filters = Object.fromEntries(FIELDS.map((name) => [name, query.get(name) ?? ""]));
let lastId = 0;
let pending = [];
let skipped = 0;
let isPaused = false;
let stop = () => {};
let timer = 0;
let retry = 0;

const body = h("tbody");
const empty = h("div");
const live = h("button.button", { type: "button", "aria-pressed": "true", onclick: togglePause }, h("span.dot"), h("span", "Live"));
const older = h("button.button", { type: "button", onclick: (event) => runAction(event.currentTarget, loadOlder) }, "Load older");
const table = h(
  "div.table-scroll",
  { tabindex: "0", role: "region", "aria-label": "Activity" },
  h(
    "table.activity",
    h("thead", h("tr", h("th", "Time"), h("th", "Action"), h("th", "What"), h("th", "Who"), h("th", "Outcome"), h("th.number", "Duration"), h("th.number", "Returned"))),
    body,
  ),
);

function rowElement(row, isNew = false) {
  const element = h(
    "tr.is-clickable",
    { dataset: { id: row.id }, class: isNew ? "is-new" : "", onclick: () => openRow(row.id) },
    h("td.nowrap.muted", h("time", { datetime: new Date(row.at * 1000).toISOString() }, formatClock(row))),
    h("td", actionBadge(row)),
    h("td", h("button.text-button.what", { type: "button", title: what(row) }, what(row) || "–")),
    h("td.muted", who(row)),
    h("td", outcomeBadge(row)),
    h("td.number.nowrap", row.seconds ? formatSeconds(row.seconds) : "–"),
    h("td.number.nowrap", formatBytes(row.result_bytes)),
  );
  return element;
}

function showEmpty() {
  const isFiltered = FIELDS.some((name) => filters[name]);
  fill(
    empty,
    body.childElementCount
      ? null
      : state("empty", isFiltered ? "Nothing matches these filters" : "Nothing yet", isFiltered ? "New matching entries appear here." : "Searches and calls of your clients appear here as they happen."),
  );
  table.hidden = !body.childElementCount;
}

/** Add the rows that have arrived since the last time. Many rows a second are added together. */
function drawPending() {
  timer = 0;
  if (isPaused) return updateLive();
  const rows = pending.splice(0).reverse();
  if (skipped) {
    body.prepend(h("tr", h("td.muted", { colspan: "7" }, `${formatNumber(skipped)} entries were skipped, because too many came at once.`)));
    skipped = 0;
  }
  body.prepend(...rows.filter((row) => !find(`tr[data-id="${row.id}"]`, body)).map((row) => rowElement(row, true)));
  while (body.childElementCount > MAX_ROWS) body.lastElementChild.remove();
  showEmpty();
  return undefined;
}

function togglePause() {
  isPaused = !isPaused;
  updateLive();
  if (!isPaused) drawPending();
}

function updateLive() {
  live.setAttribute("aria-pressed", String(!isPaused));
  find(".dot", live).dataset.kind = isPaused ? "off" : "";
  find("span:last-child", live).textContent = isPaused ? (pending.length ? `Paused, ${formatNumber(pending.length)} new` : "Paused") : "Live";
}

function connect() {
  stop();
  // A reconnect continues after the last row, so that nothing is missed.
  const path = () => `/api/activity/stream?${new URLSearchParams({ ...activeFilters(), ...(lastId ? { last_event_id: lastId } : {}) })}`;
  stop = listen(path, {
    row: (row) => {
      lastId = Math.max(lastId, row.id);
      pending.push(row);
      if (pending.length > MAX_ROWS) pending = pending.slice(-MAX_ROWS);
      timer ||= setTimeout(drawPending, DRAW_MS);
    },
    skipped: (event) => {
      skipped += event.rows;
    },
    ping: (_, event) => {
      lastId = Math.max(lastId, Number(event.lastEventId));
    },
  });
}

const activeFilters = () => Object.fromEntries(FIELDS.filter((name) => filters[name]).map((name) => [name, filters[name]]));

async function load() {
  stop();
  clearTimeout(retry);
  let page;
  try {
    page = await get("/api/activity", { ...activeFilters(), limit: PAGE_ROWS });
  } catch (error) {
    if (error.status !== 503) throw error;
    // The database is unavailable. Loaded rows stay, and the others follow when it is available again.
    table.hidden = !body.childElementCount;
    fill(empty, state("stale", "The history is unavailable", "The gateway cannot reach its database. It records what happens, and shows it here when the database is available again."));
    older.hidden = true;
    retry = setTimeout(() => load().catch(() => {}), RETRY_MS);
    return;
  }
  pending = [];
  fill(body, page.rows.map((row) => rowElement(row)));
  older.hidden = page.next === null;
  // Without a row, the stream begins with what comes next.
  lastId = page.rows[0]?.id ?? 0;
  showEmpty();
  connect();
}

async function loadOlder() {
  const last = find("tr[data-id]:last-child", body)?.dataset.id;
  const page = await get("/api/activity", { ...activeFilters(), limit: PAGE_ROWS, before: last });
  body.append(...page.rows.map((row) => rowElement(row)));
  older.hidden = page.next === null;
}

function select(name, label, values) {
  const field = h("select", { name, "aria-label": label, onchange: () => changeFilter(name, field.value) }, h("option", { value: "" }, label), values.map((value) => h("option", { value }, value)));
  field.value = filters[name];
  return field;
}

function input(name, label) {
  const change = debounce(() => changeFilter(name, field.value.trim()), 250);
  const field = h("input", { type: "search", name, placeholder: label, "aria-label": label, value: filters[name], oninput: change, dataset: name === "tool" ? { searchField: "" } : {} });
  return field;
}

function changeFilter(name, value) {
  filters[name] = value;
  history.replaceState(null, "", `?${new URLSearchParams(activeFilters())}`);
  runAction(null, load);
}

async function showPage() {
  const { servers } = await get("/api/servers");
  find("[data-actions]").replaceChildren(live);
  await load();
  fill(
    find("[data-content]"),
    h(
      "div.filters",
      { role: "search", "aria-label": "Filters" },
      select("action", "All actions", ACTIONS),
      select("outcome", "All outcomes", OUTCOMES),
      select("server", "All servers", servers.map((server) => server.name)),
      input("client", "Client"),
      input("tool", "Tool"),
    ),
    h("div.card.flush", table, empty),
    h("div.row", older),
  );
}

startPage(showPage, "The activity could not be loaded");
