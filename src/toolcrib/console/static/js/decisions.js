// Decisions: changed or suspicious definitions side by side, with the scanner's findings.

import { get, post, runAction, toast } from "./api.js";
import { confirm } from "./dialog.js";
import { sideBySide } from "./diff.js";
import { deleteOverride, editOverride } from "./override-editor.js";
import { fill, find, formatNumber, h, plural, state, timeAgo } from "./dom.js";
import { poll } from "./events.js";

const INTERVAL_MS = 5_000;
const content = find("[data-decisions]");
const hasFullAccess = document.body.dataset.fullAccess === "true";
let shown = "";

if (hasFullAccess) addEventListener("pagehide", poll(refresh, INTERVAL_MS));
else fill(content, state("empty", "You cannot decide here", "Decisions need a key with full access."));

async function refresh() {
  let reply;
  try {
    reply = { ...(await get("/api/decisions")), ...(await get("/api/overrides")) };
  } catch (error) {
    if (!shown) fill(content, state("error", "The decisions could not be loaded", error.message));
    throw error;
  }
  const signature = JSON.stringify(reply);
  if (signature === shown) return;
  shown = signature;
  show(reply);
}

function show({ decisions, total, overrides }) {
  const waiting = decisions.filter((decision) => !decision.rejected);
  const rejected = decisions.filter((decision) => decision.rejected);
  const servers = Map.groupBy ? Map.groupBy(waiting, (each) => each.server) : group(waiting);
  fill(
    content,
    waiting.length ? null : state("empty", "Nothing to decide", "A tool appears here when its server changes the definition, or when a new definition is quarantined."),
    [...servers].map(([server, items]) => renderServer(server, items)),
    rejected.length ? h("details.rejected", h("summary", plural(rejected.length, "rejected definition")), rejected.map(renderDecision)) : null,
    overrides.length ? renderOverrides(overrides) : null,
    total > decisions.length ? h("p.muted", `${formatNumber(total - decisions.length)} more follow when these are decided.`) : null,
  );
}

function renderOverrides(overrides) {
  const act = (label, pattern, action) => {
    const button = h("button.text-button", { type: "button", "aria-label": `${label} the override of ${pattern}` }, label);
    button.addEventListener("click", () => runAction(button, async () => (await action(pattern)) && setTimeout(refresh, 1_500)));
    return button;
  };
  return h(
    "section.card.flush",
    { "aria-label": "Overrides" },
    h("div.card-head", h("h2", "Overrides"), h("span.muted", "Your own texts and parameters for models. Pins and the scanner use the definitions of the server.")),
    h(
      "div.table-scroll",
      { tabindex: "0", role: "region", "aria-label": "List of overrides" },
      h(
        "table",
        h("thead", h("tr", h("th", "Tool or pattern"), h("th", "Changes"), h("th", "Tools"), h("th", h("span.visually-hidden", "Actions")))),
        h("tbody", overrides.map(({ pattern, changes, tools }) => h("tr", h("td.mono", pattern), h("td", changes.join(", ")), h("td.mono", tools.join(", ") || "none"), h("td.number", h("span.row", act("Edit", pattern, editOverride), act("Delete", pattern, deleteOverride)))))),
      ),
    ),
  );
}

function group(decisions) {
  const groups = new Map();
  for (const each of decisions) groups.set(each.server, [...(groups.get(each.server) ?? []), each]);
  return groups;
}

function renderServer(server, items) {
  const button = h("button.button.small", { type: "button" }, `Approve all ${formatNumber(items.length)}`);
  button.addEventListener("click", async () => {
    const findings = items.reduce((sum, item) => sum + item.findings.length, 0);
    const detail = findings ? `The scanner found ${plural(findings, "suspicious text")} in them.` : "The scanner found nothing suspicious in them.";
    if (!(await confirm(`Approve ${plural(items.length, "definition")} of ${server}?`, detail, { action: "Approve all", isDangerous: findings > 0 }))) return;
    // One by one with its fingerprint, so that a definition that has changed meanwhile is not approved unseen.
    runAction(button, async () => {
      for (const { tool, fingerprint } of items) await post("/api/decisions/approve", { server, tool, fingerprint });
      toast(`${server}: ${plural(items.length, "definition")} approved.`);
      shown = "";
      await refresh();
    });
  });
  return h(
    "section.decision-group",
    { "aria-label": server },
    h("header.row.spread", h("h2", server), items.length > 1 ? button : null),
    items.map(renderDecision),
  );
}

function renderDecision(decision) {
  const { server, tool, fingerprint } = decision;
  const candidate = { server, tool, fingerprint };
  const act = (label, action, kind, message) => {
    const button = h("button.button", { type: "button", class: kind, "aria-label": `${label} ${tool}` }, label);
    button.addEventListener("click", () => runAction(button, () => send(action, candidate, message)));
    return button;
  };
  const isHigh = decision.findings.some((finding) => finding.severity === "high");
  return h(
    "article.card.flush.decision",
    { "aria-label": tool },
    h(
      "header.card-head",
      h("h3.mono", tool),
      h("span.badge", { dataset: { kind: "warn" } }, decision.kind === "new" ? "new definition" : "changed definition"),
      isHigh ? h("span.badge", { dataset: { kind: "bad" } }, "looks hostile") : null,
      decision.inUse ? h("span.badge", { dataset: { kind: "warn" } }, "in use") : null,
      h("span.muted", "first seen ", timeAgo(decision.firstSeen)),
      h(
        "span.actions",
        decision.rejected ? null : act("Reject", "reject", "", `${tool} stays ${decision.inUse ? "in use: your configuration only warns" : "quarantined"}.`),
        act("Approve", "approve", isHigh ? "danger" : "primary", `${tool} is approved.`),
      ),
    ),
    decision.findings.length ? h("ul.findings", decision.findings.map(renderFinding)) : null,
    sideBySide(decision.before, decision.after, listQuotes(decision.findings)),
  );
}

function renderFinding(finding) {
  return h("li", h("span.badge", { dataset: { kind: finding.severity === "high" ? "bad" : "warn" } }, finding.category), h("span", h("span.mono.muted", finding.location), " ", finding.message));
}

/** Return the texts that the scanner quotes in its findings. */
function listQuotes(findings) {
  return findings.flatMap((finding) => [...finding.message.matchAll(/“([^”]{3,})”/g)].map((match) => match[1]));
}

async function send(action, candidate, message) {
  await post(`/api/decisions/${action}`, candidate);
  toast(message);
  shown = "";
  await refresh();
}
