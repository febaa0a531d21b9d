// Sessions: clients that are connected, what each was shown, and why.

import { get } from "./api.js";
import { fill, find, formatCompact, formatNumber, formatPercent, h, plural, startPage, state, timeAgo } from "./dom.js";
import { poll } from "./events.js";

const REFRESH_MS = 3_000;
const MODES = {
  direct: "All tools are listed.",
  search: "A search tool and a few others are listed.",
  dynamic: "The list changes with every search.",
};
const opened = new Set();

function card(client) {
  const id = client.session || `${client.key}/${client.profile}/${client.client}`;
  const saved = client.tokens_full - client.tokens_sent;
  const more = client.shown_tools - client.shown.length;
  return h(
    "article.card.session",
    { "aria-label": client.client || "unknown client" },
    h(
      "div.card-head",
      h("h2", client.client || "unknown client"),
      client.version ? h("span.muted", client.version) : null,
      client.mode ? h("span.badge", { dataset: { kind: client.mode === "direct" ? "" : "accent" } }, client.mode) : null,
      h("div.actions.muted", "active ", timeAgo(client.last_seen)),
    ),
    client.mode ? h("p.session-reason", `${MODES[client.mode] ?? ""} Reason: ${client.mode_reason}.`) : h("p.session-reason.muted", "It has not listed any tools yet."),
    h(
      "dl.facts",
      fact("Tokens sent", client.tokens_full ? `${formatCompact(client.tokens_sent)} instead of ${formatCompact(client.tokens_full)} (${formatPercent(saved / client.tokens_full)} saved)` : formatCompact(client.tokens_sent)),
      fact("Requests", `${plural(client.calls, "call")}, ${plural(client.searches, "search", "searches")}, ${plural(client.errors, "error")}`),
      fact("Key", client.key || "none"),
      client.profile ? fact("Access profile", client.profile) : null,
      fact("Protocol", `${client.protocol || "unknown"}${client.session ? "" : ", without a session"}`),
      fact("Connected", timeAgo(client.first_seen)),
    ),
    client.lists
      ? h(
          "details",
          { open: opened.has(id), ontoggle: (event) => (event.target.open ? opened.add(id) : opened.delete(id)) },
          h("summary", `${plural(client.shown_tools, "tool")} shown`),
          h("p.mono.names", client.shown.join(", "), more > 0 ? ` and ${formatNumber(more)} more` : ""),
        )
      : null,
    h("p", h("a", { href: `/activity?client=${encodeURIComponent(client.client)}` }, "Show its activity")),
  );
}

const fact = (name, value) => [h("dt", name), h("dd", value)];

async function load() {
  const { sessions } = await get("/api/sessions");
  const content = find("[data-content]");
  if (content.contains(document.activeElement) && sessions.length && content.querySelector(".session")) {
    // The focus would be lost, so the cards are drawn again later.
    if (document.activeElement.closest("summary")) return;
  }
  fill(
    content,
    sessions.length
      ? h("div.grid.session-grid", sessions.map(card))
      : state("empty", "No client is connected", "Connect a client. It appears here with the tools that it was shown.", h("a.button", { href: "/" }, "How to connect")),
  );
}

startPage(async () => {
  await load();
  poll(load, REFRESH_MS);
}, "The sessions could not be loaded");
