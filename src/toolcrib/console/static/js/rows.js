// How audit rows are shown: badges, who, what and the dialog of one row.

import { get } from "./api.js";
import { codeBlock } from "./copy.js";
import { openDialog } from "./dialog.js";
import { formatNumber, formatSeconds, h, longText, state } from "./dom.js";

export const ACTIONS = ["search", "call", "describe", "list", "llm", "approval", "login", "key", "config"];
export const OUTCOMES = ["ok", "error", "refused"];
const OUTCOME_KINDS = { ok: "ok", error: "bad", refused: "warn" };
const ACTION_KINDS = { search: "accent", call: "", approval: "warn", login: "warn", key: "warn", config: "warn" };
// Details with their own place in the dialog.
const KNOWN_DETAILS = new Set(["query", "hits", "error", "arguments", "result", "change"]);

export const actionBadge = (row) => h("span.badge", { dataset: { kind: ACTION_KINDS[row.action] ?? "" } }, row.action);
export const outcomeBadge = (row) => h("span.badge", { dataset: { kind: OUTCOME_KINDS[row.outcome] ?? "" } }, row.outcome);

/** Return who did it: the client, and the key or the user. */
export function who(row) {
  const name = row.key || row.user;
  return [row.client || "unknown client", name ? ` · ${name}` : ""].join("");
}

/** Return what was done, in one line. */
export function what(row) {
  const details = row.details;
  if (row.action === "search") return details.query ?? "";
  if (row.action === "describe") return (details.hits ?? []).join(", ");
  if (row.action === "list") return `${formatNumber(details.tools)} tools listed (${details.mode})`;
  if (row.action === "llm") return `${row.tool} at ${row.server}`;
  const object = row.tool || row.server || details.name || "";
  return [details.change ? `${details.change} ` : "", object].join("") || details.error || "";
}

export const formatClock = (row) =>
  new Date(row.at * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export function formatBytes(bytes) {
  if (!bytes) return "–";
  if (bytes < 1_000) return `${bytes} B`;
  return bytes < 1_000_000 ? `${(bytes / 1_000).toFixed(1)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/** Open the dialog of one row. */
export async function openRow(id) {
  const box = h("div.stack", state("loading", "Loading"));
  openDialog("Entry", () => box, { size: "large" });
  try {
    const entry = await get(`/api/activity/${id}`);
    box.replaceChildren(...renderEntry(entry));
  } catch (error) {
    box.replaceChildren(state("error", "The entry could not be loaded", error.message));
  }
}

function renderEntry({ row, following, search }) {
  const details = row.details;
  const others = Object.entries(details).filter(([name]) => !KNOWN_DETAILS.has(name));
  return [
    h("div.row", actionBadge(row), outcomeBadge(row), h("strong.anywhere", what(row))),
    details.error ? h("div.notice", { dataset: { kind: "bad" } }, longText(details.error)) : null,
    h("dl.facts", facts(row).filter(([, value]) => value).map(([name, value]) => [h("dt", name), h("dd", value)])),
    details.hits?.length ? section("Found", h("ol.found", details.hits.map((hit) => h("li.mono.anywhere", hit)))) : null,
    row.action === "search" ? section("Calls after this search", following.length ? callList(following) : h("p.muted", "No call followed this search.")) : null,
    search ? section("Search before this call", callList([search])) : null,
    "arguments" in details ? section("Arguments", codeBlock(JSON.stringify(details.arguments, null, 2), "Arguments")) : null,
    "result" in details ? section("Result", h("pre.result", { tabindex: "0" }, longText(details.result))) : null,
    row.action === "call" && !("arguments" in details)
      ? h("p.help", "Arguments and results are not recorded. Set ", h("code", "recordContent"), " for an access profile to record them.")
      : null,
    others.length ? section("Details", h("dl.facts", others.map(([name, value]) => [h("dt", name.replaceAll("_", " ")), h("dd", typeof value === "object" ? JSON.stringify(value) : String(value))]))) : null,
  ].filter(Boolean);
}

function facts(row) {
  return [
    ["Time", new Date(row.at * 1000).toLocaleString("en-GB")],
    ["Client", row.client],
    ["Key", row.key],
    ["User", row.user],
    ["Access profile", row.profile],
    ["Server", row.server],
    ["Tool", row.tool],
    ["Duration", row.seconds ? formatSeconds(row.seconds) : ""],
    ["Sizes", row.request_bytes || row.result_bytes ? `${formatBytes(row.request_bytes)} sent, ${formatBytes(row.result_bytes)} returned` : ""],
    ["Session", row.session],
    ["Request id", row.request_id],
  ];
}

function callList(rows) {
  return h("ul.stack", rows.map((row) => h("li.row", h("span.muted.nowrap", formatClock(row)), outcomeBadge(row), h("span.mono.anywhere", what(row)), h("span.muted", row.seconds ? formatSeconds(row.seconds) : ""))));
}

const section = (title, ...content) => h("section.stack", h("h3", title), content);
