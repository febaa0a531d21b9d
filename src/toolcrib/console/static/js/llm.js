// LLM traffic: upstreams, tokens, and conversations turn by turn.

import { get } from "./api.js";
import { createChart } from "./chart.js";
import { codeBlock } from "./copy.js";
import { openDialog } from "./dialog.js";
import { fill, find, formatCompact, formatNumber, formatPercent, formatSeconds, h, plural, startPage, state, timeAgo } from "./dom.js";
import { poll } from "./events.js";
import { formatClock, outcomeBadge } from "./rows.js";

const REFRESH_MS = 5_000;
const EXAMPLE = `"models": {\n  "anthropic": {"key": "\${ANTHROPIC_API_KEY}"},\n  "openai": {"key": "\${OPENAI_API_KEY}"}\n}`;
const parts = { figures: h("section.figures", { "aria-label": "Figures" }), upstreams: h("div"), usage: h("div.content"), conversations: h("div") };
const chart = createChart({
  series: [
    { name: "input_tokens", label: "Tokens in", kind: "bar", color: 1 },
    { name: "output_tokens", label: "Tokens out", kind: "bar", color: 2 },
    { name: "saved_tokens", label: "Tokens saved", kind: "bar", color: 5 },
  ],
  formatValue: formatCompact,
  formatTime: (point) => point.day.slice(5),
  label: "Tokens by day",
});

function figure(label, value, note = "") {
  return h("div.card", h("div.figure-label", label), h("div.figure-value", value), note ? h("div.figure-note", note) : null);
}

/** Return a table; a head that begins with # is of a column of numbers. */
function table(label, heads, rows) {
  return h(
    "div.table-scroll",
    { tabindex: "0", role: "region", "aria-label": label },
    h("table", h("thead", h("tr", heads.map((head) => (head.startsWith("#") ? h("th.number", head.slice(1)) : h("th", head))))), h("tbody", rows)),
  );
}

const usageRow = (name, usage) =>
  h(
    "tr",
    h("td.mono", name || "none"),
    [usage.requests, usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.saved_tokens].map((value) => h("td.number", formatCompact(value))),
  );

const card = (title, ...content) => h("section.card.flush", { "aria-label": title }, h("div.card-head", h("h2", title)), content);

function draw(llm, conversations) {
  const total = llm.total;
  fill(
    parts.figures,
    figure("Requests", formatCompact(total.requests), "in 30 days"),
    figure("Tokens in", formatCompact(total.input_tokens), total.input_tokens ? `${formatPercent(total.cached_tokens / total.input_tokens)} read from the prompt cache` : ""),
    figure("Prefix kept", llm.prefix.turns ? formatPercent(llm.prefix.kept / llm.prefix.turns) : "–", llm.prefix.turns ? `${formatNumber(llm.prefix.kept)} of ${plural(llm.prefix.turns, "later turn")} began with the same tools` : "no conversation has a second turn yet"),
    figure("Tokens out", formatCompact(total.output_tokens)),
    figure("Tokens saved", formatCompact(total.saved_tokens), "in definitions that were not sent"),
    figure("Errors", formatNumber(llm.errors), "in the newest requests"),
  );
  fill(
    parts.upstreams,
    card(
      "Upstreams",
      table(
        "Upstreams",
        ["Name", "API", "Models", "Tool search", "#Requests", "#Errors"],
        llm.upstreams.map((upstream) =>
          h(
            "tr",
            h("td", h("strong", upstream.name), h("div.muted", upstream.host)),
            h("td", upstream.api),
            h("td.mono", upstream.models.join(", ")),
            h("td", upstream.tool_search),
            h("td.number", formatNumber(upstream.requests)),
            h("td.number", formatNumber(upstream.errors)),
          ),
        ),
      ),
    ),
  );
  chart.update(llm.days);
  const heads = ["#Requests", "#In", "#Cached", "#Out", "#Saved"];
  fill(
    parts.usage,
    llm.days.length
      ? [
          h("section.card", { "aria-label": "Tokens by day" }, h("div.card-head", h("h2", "Tokens by day")), chart.element),
          h("div.grid.halves", card("By model", table("Usage by model", ["Model", ...heads], llm.models.map((each) => usageRow(each.model, each)))), card("By key", table("Usage by key", ["Key", ...heads], llm.keys.map((each) => usageRow(each.key, each))))),
        ]
      : null,
  );
  fill(
    parts.conversations,
    card(
      "Conversations",
      conversations.length
        ? table(
            "Conversations",
            ["Model", "Upstream", "Client", "#Turns", "#Prefix kept", "#Tokens saved", "Last turn"],
            conversations.map((each) =>
              h(
                "tr.is-clickable",
                { onclick: () => openConversation(each) },
                h("td", h("button.text-button.mono", { type: "button" }, each.model)),
                h("td", each.upstream),
                h("td", each.client || each.key || "–"),
                h("td.number", formatNumber(each.turns), each.errors ? ` (${plural(each.errors, "error")})` : ""),
                h("td.number.nowrap", each.prefix.turns ? `${formatNumber(each.prefix.kept)} of ${formatNumber(each.prefix.turns)}` : "–"),
                h("td.number", formatCompact(each.tokens_held_back)),
                h("td", timeAgo(each.last)),
              ),
            ),
          )
        : state("empty", "No conversations yet", "Requests of your clients appear here, with the tools that went to the model in each turn."),
    ),
  );
}

async function openConversation(conversation) {
  const box = h("div.stack", state("loading", "Loading"));
  openDialog(`Conversation with ${conversation.model}`, () => box, { size: "large" });
  try {
    const { turns } = await get(`/api/llm/conversations/${encodeURIComponent(conversation.id)}`);
    fill(box, h("ol.turns", turns.map(turnElement)));
  } catch (error) {
    fill(box, state("error", "The conversation could not be loaded", error.message));
  }
}

function turnElement(turn, index) {
  const details = turn.details;
  // Found tools may be sent as definitions in the list, or in the results of searches.
  const sent = [...new Set([...(details.tools_sent ?? []), ...(details.tools_found ?? [])])];
  const added = new Set(details.tools_added ?? []);
  return h(
    "li.turn",
    h("div.row", h("strong", `Turn ${index + 1}`), outcomeBadge(turn), h("span.muted", formatClock(turn)), turn.seconds ? h("span.muted", formatSeconds(turn.seconds)) : null, details.treatment ? h("span.badge", details.treatment) : null),
    h(
      "p.muted",
      [
        details.tools_total === undefined ? "" : `${formatNumber(details.tools_count ?? sent.length)} of ${formatNumber(details.tools_total)} tools sent`,
        details.tokens_held_back ? `about ${formatCompact(details.tokens_held_back)} tokens saved` : "",
        details.tokens_in ? `${formatCompact(details.tokens_in)} in, ${formatCompact(details.tokens_out ?? 0)} out` : "",
        index && details.tools_sent ? (details.tools_kept ? "same tools as before, so the prefix is kept" : "other tools than before, so the prefix is new") : "",
        details.searches ? plural(details.searches, "search", "searches") : "",
      ].filter(Boolean).join(" · "),
    ),
    details.reason ? h("p.muted", details.reason) : null,
    details.error ? h("div.notice", { dataset: { kind: "bad" } }, details.error) : null,
    sent.length ? h("p.names", sent.map((name) => h("span.badge.mono", { dataset: { kind: added.has(name) ? "accent" : "" } }, name))) : null,
  );
}

async function load() {
  const [llm, { conversations }] = await Promise.all([get("/api/llm"), get("/api/llm/conversations")]);
  const content = find("[data-content]");
  if (!llm.upstreams.length) {
    fill(content, state("empty", "The LLM gateway is not configured", "Add an upstream to toolcrib.json, then use the gateway's address as the base URL of your client.", h("div.start-code", codeBlock(EXAMPLE, "Configuration"))));
    return;
  }
  if (!content.contains(parts.figures)) fill(content, parts.figures, parts.upstreams, parts.usage, parts.conversations);
  draw(llm, conversations);
}

startPage(async () => {
  await load();
  poll(load, REFRESH_MS);
}, "The LLM traffic could not be loaded");
