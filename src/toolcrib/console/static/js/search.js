// The search playground: results as you type, reasons, comparison of modes, saved tests.

import { ApiError, get, post, remove, runAction, toast } from "./api.js";
import { debounce, fill, find, findAll, formatPercent, h, plural, state } from "./dom.js";

const LIMIT = 10;
const TYPING_PAUSE_MS = 120;
const STARTING_PAUSE_MS = 1_000;
const FIELD_NAMES = {
  meaning: "meaning", name: "name", description: "description", parameter: "parameter name",
  parameter_text: "parameter", parameter_name: "parameter name", server: "server", title: "title", tags: "tag",
};

const form = find("[data-search-form]");
const results = find("[data-results]");
const field = find("[data-search-field]");
const hasFullAccess = document.body.dataset.fullAccess === "true";
let options;
let running;
let tests = [];

start();

async function start() {
  showStart();
  try {
    options = await get("/api/search/options");
  } catch (error) {
    fill(results, state("error", "The gateway did not answer", error.message));
    return;
  }
  addOptions(form.elements.mode, options.modes);
  addOptions(form.elements.compare, options.modes);
  addOptions(form.elements.server, options.servers);
  addOptions(form.elements.tag, options.tags);
  addOptions(form.elements.profile, options.profiles);
  find("[data-tag-field]").hidden = !options.tags.length;
  find("[data-profile-field]").hidden = !options.profiles.length;
  readAddress();
  form.addEventListener("input", debounce(search, TYPING_PAUSE_MS));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  search();
  if (hasFullAccess) loadTests();
}

function addOptions(select, values) {
  for (const value of values) select.append(h("option", { value }, value));
}

function readAddress() {
  for (const [name, value] of new URLSearchParams(location.search)) {
    const input = name === "q" ? field : form.elements[name];
    if (!input) continue;
    if (input.type === "checkbox") input.checked = value === "true";
    else input.value = value;
  }
}

function writeAddress(query) {
  const address = new URLSearchParams();
  if (query.query) address.set("q", query.query);
  for (const name of ["mode", "server", "tag", "profile", "read_only"]) if (query[name]) address.set(name, query[name]);
  if (form.elements.compare.value) address.set("compare", form.elements.compare.value);
  if (address.get("mode") === options.modes[0]) address.delete("mode");
  history.replaceState(null, "", `${location.pathname}${address.size ? `?${address}` : ""}`);
}

function readQuery() {
  const data = new FormData(form);
  return {
    query: field.value.trim(),
    mode: data.get("mode"),
    server: data.get("server"),
    tag: data.get("tag"),
    profile: data.get("profile"),
    read_only: data.get("read_only") ? "true" : "",
    limit: LIMIT,
    reasons: "true",
  };
}

async function search() {
  const query = readQuery();
  writeAddress(query);
  running?.abort();
  find("[data-explain]").hidden = !query.query;
  if (!query.query) {
    showStart();
    return;
  }
  running = new AbortController();
  const { signal } = running;
  results.classList.add("is-loading");
  const modes = [query.mode, form.elements.compare.value].filter(Boolean);
  try {
    const found = await Promise.all(modes.map((mode) => get("/api/search", { ...query, mode }, signal)));
    const others = found.map((_, index) => found[1 - index]);
    results.classList.toggle("is-split", found.length > 1);
    fill(results, found.map((each, index) => renderResult(each, others[index], found.length > 1)));
    if (!found.some((each) => each.hits.length)) searchAfterStart(signal).catch(() => {});
  } catch (error) {
    if (error.name === "AbortError") return;
    results.classList.remove("is-split");
    const isUser = error instanceof ApiError && error.status === 400;
    fill(results, state("error", isUser ? "This query cannot be read" : "The search failed", error.message));
  }
  if (!signal.aborted) results.classList.remove("is-loading");
}

/** Search again while servers start, because their tools are not known yet. */
async function searchAfterStart(signal) {
  const { servers } = await get("/api/servers", {}, signal);
  if (!servers.some((server) => server.state === "configured" && !server.trouble)) return;
  fill(results, state("loading", "The servers are starting", "The search is repeated until their tools are known."));
  setTimeout(() => signal.aborted || search(), STARTING_PAUSE_MS);
}

function showStart() {
  results.classList.remove("is-split", "is-loading");
  const buttons = (options?.examples ?? []).map((text) =>
    h("button.button.example", { type: "button", onclick: () => useQuery(text) }, text),
  );
  fill(results, state("empty", "Type what the tool should do", buttons.length ? "Or start with one of these:" : "The results appear as you type.", ...buttons));
}

function useQuery(text) {
  field.value = text;
  field.focus();
  search();
}

function renderResult(found, other, isSplit) {
  const hits = groupDuplicates(found.hits);
  return h(
    "section.result",
    { "aria-label": `Results of mode ${found.mode}` },
    h("header.result-head", isSplit ? h("h2", found.mode) : null, renderConfidence(found)),
    found.segments.length > 1 ? renderSegments(found.segments) : null,
    found.notes.map((note) => h("p.notice", note)),
    hits.length
      ? h("ol.hits", hits.map(({ hit, others }, index) => renderHit(found, hit, others, index, other)))
      : state("empty", "No tool matches", "Try other words, another mode, or fewer filters."),
    found.more ? h("p.muted", `More tools match; these are the best ${found.hits.length}.`) : null,
  );
}

function renderConfidence(found) {
  const label = !found.hits.length ? "Nothing found" : found.confident ? "Confident" : "Not confident";
  const kind = found.confident ? "ok" : "warn";
  // Rounded down, so that a value below the threshold never looks equal to it.
  const confidence = (Math.floor(found.confidence * 100 + 1e-9) / 100).toFixed(2);
  const text = `${label}: ${confidence}, threshold ${found.threshold.toFixed(2)}`;
  return h(
    "div.confidence",
    { title: found.confident ? "A model gets these tools." : "The model gets a note that these are only the nearest tools." },
    h("span.badge", { dataset: { kind } }, label),
    h(
      "span.meter",
      { role: "img", "aria-label": text, dataset: { kind }, style: { "--value": found.confidence, "--mark": found.threshold } },
      h("span.meter-fill"),
      h("span.meter-mark"),
    ),
    h("span.muted.nowrap", `${confidence}, needs ${found.threshold.toFixed(2)}`),
  );
}

function renderSegments(segments) {
  return h(
    "ul.segments",
    { "aria-label": "Steps of the query" },
    segments.map((segment, index) =>
      h(
        "li.segment",
        { dataset: { series: (index % 5) + 1 }, title: segment.covered ? "A tool fits this step." : "No tool fits this step." },
        segment.text,
        segment.covered ? null : h("span.badge", { dataset: { kind: "warn" } }, "not covered"),
      ),
    ),
  );
}

function groupDuplicates(hits) {
  const groups = new Map();
  for (const hit of hits) {
    const leader = hit.duplicateOf && groups.get(hit.duplicateOf);
    if (leader) leader.others.push(hit);
    else groups.set(hit.tool.name, { hit, others: [] });
  }
  return [...groups.values()];
}

function renderHit(found, hit, others, index, other) {
  const { tool } = hit;
  const words = hit.reasons.filter((reason) => reason.field !== "meaning").map((reason) => reason.term);
  const rank = found.hits.indexOf(hit) + 1;
  const otherRank = other ? other.hits.findIndex((each) => each.tool.name === tool.name) + 1 : 0;
  const series = hit.segment !== null && found.segments.length > 1 ? { series: (hit.segment % 5) + 1 } : {};
  return h(
    "li.hit",
    { dataset: series },
    h(
      "div.hit-head",
      h("span.hit-rank", { "aria-hidden": "true" }, rank),
      h("a.hit-name.mono", { href: `/catalog?tool=${encodeURIComponent(tool.name)}`, dataset: { hit: "" } }, tool.name),
      h("span.badge", tool.server),
      tool.annotations?.readOnlyHint ? h("span.badge", { dataset: { kind: "ok" } }, "read-only") : null,
      other ? renderMove(rank, otherRank, other.mode) : null,
      h(
        "span.score",
        { title: `Score ${hit.score.toFixed(3)}, confidence ${hit.confidence.toFixed(2)}` },
        h("span.score-bar", { style: { "--value": hit.score } }),
        h("span.score-value", hit.score.toFixed(2)),
      ),
    ),
    h("p.hit-text", highlight(shorten(tool.description ?? ""), words)),
    h(
      "div.hit-foot",
      renderReasons(hit.reasons),
      hasFullAccess
        ? h("button.text-button", { type: "button", onclick: (event) => saveTest(event.currentTarget, found.query, tool.name) }, "Save as test")
        : null,
    ),
    others.length
      ? h(
          "details.duplicates",
          h("summary", plural(others.length, "near-duplicate")),
          h("ul", others.map((each) => h("li.row", h("a.mono", { href: `/catalog?tool=${encodeURIComponent(each.tool.name)}` }, each.tool.name), h("span.badge", each.tool.server), h("span.muted", each.score.toFixed(2))))),
        )
      : null,
  );
}

function renderMove(rank, otherRank, mode) {
  if (!otherRank) return h("span.badge", { dataset: { kind: "accent" } }, `not in ${mode}`);
  const difference = otherRank - rank;
  if (!difference) return null;
  return h("span.badge", { title: `Number ${otherRank} in ${mode}` }, difference > 0 ? `↑ ${difference}` : `↓ ${-difference}`);
}

function renderReasons(reasons) {
  const meaning = reasons.filter((reason) => reason.field === "meaning").reduce((sum, reason) => sum + reason.share, 0);
  const words = reasons.filter((reason) => reason.field !== "meaning");
  const parts = [];
  if (meaning) parts.push(h("span.reason", { dataset: { kind: "meaning" }, title: "Share of the score that comes from similar meaning" }, h("span.reason-field", "meaning"), " ", formatPercent(meaning)));
  for (const reason of words.slice(0, 6)) {
    const name = FIELD_NAMES[reason.field] ?? reason.field.replaceAll("_", " ");
    parts.push(h("span.reason", { title: `“${reason.term}” in the ${name}` }, h("span.reason-field", name), " ", h("span.reason-term", reason.term), " ", formatPercent(reason.share)));
  }
  return h("div.reasons", parts);
}

function shorten(text) {
  const flat = text.replace(/\s+/g, " ").trim();
  return flat.length > 320 ? `${flat.slice(0, 319)}…` : flat;
}

function highlight(text, words) {
  // Matches are by word stem, so a highlighted word starts like the word of the query.
  const stems = words.flatMap((word) => word.split(/\s+/)).filter((word) => word.length > 1);
  const starts = stems.map((word) => word.slice(0, Math.max(3, word.length - 2)).toLowerCase());
  if (!starts.length) return text;
  return text.split(/([\p{L}\p{N}_]+)/u).map((part) =>
    starts.some((start) => part.toLowerCase().startsWith(start)) ? h("mark", part) : part,
  );
}

// Arrow keys move between the query and the hits.
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && document.activeElement === field && field.value) {
    field.value = "";
    search();
    return;
  }
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const stops = [field, ...findAll("[data-hit]")];
  const at = stops.indexOf(document.activeElement);
  if (at < 0) return;
  event.preventDefault();
  stops[Math.min(Math.max(at + (event.key === "ArrowDown" ? 1 : -1), 0), stops.length - 1)].focus();
});

const explainForm = find("[data-explain-form]");
const explanation = find("[data-explanation]");

explainForm.addEventListener("submit", (event) => {
  event.preventDefault();
  runAction(find("button", explainForm), async () => {
    const { reasons: _, limit: __, ...query } = readQuery();
    let found;
    try {
      found = await get("/api/search/explain", { ...query, tool: explainForm.elements.tool.value.trim(), limit: LIMIT });
    } catch (error) {
      fill(explanation, h("p.notice", { dataset: { kind: "warn" } }, error.message));
      return;
    }
    const kind = found.returned ? "ok" : "warn";
    const place = found.rank ? [h("span.badge", { dataset: { kind } }, `Number ${found.rank}`), h("span.muted", `score ${found.score.toFixed(3)}`)] : h("span.badge", { dataset: { kind } }, "No match");
    fill(explanation, h("div.row", h("span.mono", found.tool), place), h("p", `${found.verdict[0].toUpperCase()}${found.verdict.slice(1)}.`), renderReasons(found.reasons));
  });
});

explainForm.elements.tool.addEventListener(
  "input",
  debounce(async () => {
    const text = explainForm.elements.tool.value.trim();
    if (!text) return;
    const found = await get("/api/search", { query: text, limit: 8 }).catch(() => ({ hits: [] }));
    fill(find("#explain-tools"), found.hits.map((hit) => h("option", { value: hit.tool.name })));
  }, 200),
);

async function loadTests() {
  ({ tests } = await get("/api/tests").catch(() => ({ tests: [] })));
  showTests();
}

function showTests(evaluation) {
  find("[data-tests]").hidden = !tests.length;
  find("[data-test-count]").textContent = plural(tests.length, "query", "queries");
  const modes = evaluation?.modes ?? [];
  const rankOf = (mode, query) => mode.results.find((result) => result.query === query);
  fill(
    find("[data-test-list]"),
    modes.length ? h("div.evaluation", modes.map(renderMetrics)) : null,
    h(
      "div.table-scroll",
      { tabindex: "0", role: "region", "aria-label": "Saved tests" },
      h(
        "table",
        h("thead", h("tr", h("th", "Query"), h("th", "Right tool"), modes.map((mode) => h("th", mode.mode)), h("th", h("span.visually-hidden", "Actions")))),
        h(
          "tbody",
          tests.map((test) =>
            h(
              "tr",
              h("td", h("button.text-button", { type: "button", onclick: () => useQuery(test.query) }, test.query)),
              h("td.mono", test.tools.length ? test.tools.join(", ") : "no tool"),
              modes.map((mode) => h("td", renderOutcome(rankOf(mode, test.query)))),
              h("td.number", h("button.text-button", { type: "button", "aria-label": `Delete the test “${test.query}”`, onclick: (event) => deleteTest(event.currentTarget, test.query) }, "Delete")),
            ),
          ),
        ),
      ),
    ),
  );
}

function renderMetrics(mode) {
  return h(
    "div.metric-group",
    h("h3", mode.mode),
    Object.entries(mode.metrics).map(([name, value]) =>
      h("div.metric", h("span.metric-name", name), h("span.score-bar", { style: { "--value": value ?? 0 } }), h("span.score-value", value === null ? "–" : value.toFixed(2))),
    ),
  );
}

function renderOutcome(result) {
  if (!result) return "–";
  const kind = result.right ? "ok" : result.rank && result.rank <= 5 ? "warn" : "bad";
  const text = result.error ? "error" : result.rank ? `number ${result.rank}` : result.right ? "nothing, as expected" : "not found";
  return h("span.badge", { dataset: { kind }, title: result.found.join(", ") }, text);
}

function saveTest(button, query, tool) {
  runAction(button, async () => {
    const before = tests.find((test) => test.query === query)?.tools ?? [];
    ({ tests } = await post("/api/tests", { query, tools: [...new Set([...before, tool])] }));
    showTests();
    toast(`Saved: “${query}” should find ${tool}.`);
  });
}

function deleteTest(button, query) {
  runAction(button, async () => {
    ({ tests } = await remove("/api/tests", { query }));
    showTests();
  });
}

find("[data-evaluate]").addEventListener("click", (event) =>
  runAction(event.currentTarget, async () => {
    const modes = [...new Set([form.elements.mode.value, form.elements.compare.value].filter(Boolean))];
    showTests(await post("/api/tests/evaluate", { modes }));
  }),
);
