// The catalog: a list of all tools with facets, and one tool in detail.

import { get } from "./api.js";
import { debounce, fill, find, formatCompact, formatNumber, h, plural, state } from "./dom.js";
import { toolBadges, toolView } from "./tool-view.js";
import { VirtualList } from "./virtual-list.js";

const PAGE_SIZE = 1_000;
const ROW_HEIGHT = 58;
const PROPERTIES = [["readOnly", "read-only"], ["destructive", "may destroy"], ["flagged", "suspicious"]];

const root = find("[data-catalog]");
const detail = find("[data-detail]");
const filter = find("#filter");
const nothing = h("div");
const selected = { server: new Set(), tag: new Set(), property: new Set() };
let tools = [];
let isComplete = false;
let openName = new URLSearchParams(location.search).get("tool") ?? "";

const list = new VirtualList(find("[data-rows]"), {
  rowHeight: ROW_HEIGHT,
  label: "Tools",
  render: renderRow,
  onselect: (tool) => openTool(tool.name),
});

list.element.after(nothing);
start();

async function start() {
  const server = new URLSearchParams(location.search).get("server");
  if (server) selected.server.add(server);
  filter.addEventListener("input", debounce(show, 60));
  filter.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") {
      event.preventDefault();
      list.element.focus();
      list.select(Math.max(list.selected, 0));
    } else if (event.key === "Enter" && list.items.length) {
      list.select(Math.max(list.selected, 0), true);
    } else if (event.key === "Escape" && filter.value) {
      filter.value = "";
      show();
    }
  });
  if (openName) openTool(openName);
  else showNothing();
  try {
    for (let offset = 0; !isComplete; offset += PAGE_SIZE) {
      const page = await get("/api/tools", { summary: "true", limit: PAGE_SIZE, offset });
      tools.push(...page.tools);
      isComplete = tools.length >= page.total || !page.tools.length;
      show();
    }
  } catch (error) {
    fill(list.element, state("error", "The tools could not be loaded", error.message));
    return;
  }
  renderFacets();
  const tokens = tools.reduce((sum, tool) => sum + tool.tokens, 0);
  const servers = new Set(tools.map((tool) => tool.server)).size;
  find("[data-catalog-total]").textContent = `${plural(tools.length, "tool")} of ${plural(servers, "server")}. All definitions together have ${formatCompact(tokens)} tokens.`;
}

function matches(tool) {
  if (selected.server.size && !selected.server.has(tool.server)) return false;
  if ([...selected.tag].some((tag) => !tool.tags.includes(tag))) return false;
  if ([...selected.property].some((property) => !tool[property])) return false;
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const text = `${tool.name} ${tool.title} ${tool.description}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

function show() {
  const shown = tools.filter(matches);
  list.setItems(shown, (tool) => tool.name === openName);
  const count = shown.length === tools.length ? plural(tools.length, "tool") : `${formatNumber(shown.length)} of ${plural(tools.length, "tool")}`;
  find("[data-tool-count]").textContent = isComplete ? count : `${count}, loading …`;
  const chosen = selected.server.size + selected.tag.size + selected.property.size;
  find("[data-facet-summary]").textContent = chosen ? `${chosen} chosen` : "";
  const isEmpty = isComplete && !shown.length;
  root.classList.toggle("is-empty", isEmpty);
  const [title, advice] = tools.length ? ["No tool matches", "Try other words, or fewer filters."] : ["No tools yet", "The tools of your servers appear here."];
  fill(nothing, isEmpty ? state("empty", title, advice) : null);
}

function renderRow(tool) {
  return h(
    "div.tool-row",
    h("div.tool-row-head", h("span.tool-name.mono", tool.name), h("span.muted.nowrap", `${formatNumber(tool.tokens)} tok`)),
    h("div.tool-row-text", tool.description || "no description", toolBadges({ ...tool, readOnly: false, destructive: false, tags: [] })),
  );
}

function renderFacets() {
  const groups = [
    ["server", "Server", countBy(tools.map((tool) => tool.server))],
    ["property", "Kind", PROPERTIES.map(([key, label]) => [key, tools.filter((tool) => tool[key]).length, label]).filter(([, count]) => count)],
    ["tag", "Tag", countBy(tools.flatMap((tool) => tool.tags)).slice(0, 40)],
  ];
  fill(
    find("[data-facet-groups]"),
    groups.filter(([, , values]) => values.length).map(([group, title, values]) =>
      h(
        "fieldset.facet",
        h("legend", title),
        values.slice(0, 60).map(([value, count, label]) =>
          h(
            "label.check",
            h("input", { type: "checkbox", checked: selected[group].has(value), onchange: (event) => choose(group, value, event.target.checked) }),
            h("span.facet-label", label ?? value),
            h("span.muted", formatNumber(count)),
          ),
        ),
      ),
    ),
  );
}

function countBy(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((left, right) => right[1] - left[1] || left[0].localeCompare(right[0]));
}

function choose(group, value, isChosen) {
  if (isChosen) selected[group].add(value);
  else selected[group].delete(value);
  show();
}

async function openTool(name) {
  openName = name;
  history.replaceState(null, "", `/catalog?tool=${encodeURIComponent(name)}`);
  root.classList.add("has-detail");
  detail.classList.add("is-loading");
  let content;
  try {
    content = toolView(await get(`/api/tools/${encodeURIComponent(name)}`), () => setTimeout(() => openTool(name), 1_500));
  } catch (error) {
    content = [state("error", error.status === 404 ? "This tool is not in the catalog" : "The tool could not be loaded", error.message)];
  }
  if (openName !== name) return;
  detail.classList.remove("is-loading");
  fill(detail, h("button.button.small.back", { type: "button", onclick: closeDetail }, "← All tools"), content);
  detail.scrollTop = 0;
}

function closeDetail() {
  openName = "";
  root.classList.remove("has-detail");
  history.replaceState(null, "", "/catalog");
  showNothing();
  list.element.focus();
}

function showNothing() {
  fill(detail, state("empty", "Choose a tool", "Its definition, parameters, history and a form to call it appear here."));
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && openName && !find("dialog[open]") && !event.target.closest("input, textarea, select")) closeDetail();
});
