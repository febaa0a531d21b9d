// What every page has: theme, logout, keyboard shortcuts and the counts in the navigation.

import { get, post, runAction, setLimited } from "./api.js";
import { find, formatNumber, h } from "./dom.js";
import { openDialog } from "./dialog.js";
import { poll } from "./events.js";

const THEMES = ["system", "light", "dark"];
const COUNTS_INTERVAL_MS = 10_000;
const SHORTCUTS = [
  ["/", "Search on this page"],
  ["↑ ↓", "Move in a list"],
  ["Enter", "Open"],
  ["Esc", "Close or clear"],
  ["g then o s c v a d", "Overview, Search, Catalog, Servers, Activity, Decisions"],
  ["?", "This list"],
];
const GO_TO = { o: "/", s: "/search", c: "/catalog", v: "/servers", a: "/activity", d: "/decisions" };

find("[data-theme-button]")?.addEventListener("click", () => {
  const current = document.documentElement.dataset.theme ?? "system";
  const next = THEMES[(THEMES.indexOf(current) + 1) % THEMES.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("toolcrib-theme", next);
  } catch {
    // Storage is disabled; the choice holds for this page.
  }
});

find("[data-log-out]")?.addEventListener("click", (event) =>
  runAction(event.currentTarget, async () => {
    await post("/api/logout");
    location.assign("/login");
  }),
);

let lastKey = "";
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.ctrlKey || event.metaKey || event.altKey || find("dialog[open]")) return;
  if (isTyping) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "/") {
    event.preventDefault();
    const field = find("[data-search-field]");
    if (field) field.select(), field.focus();
    else location.assign("/search");
  } else if (event.key === "?") {
    showShortcuts();
  } else if (lastKey === "g" && event.key in GO_TO) {
    location.assign(GO_TO[event.key]);
  }
  lastKey = event.key;
});

function showShortcuts() {
  openDialog(
    "Keyboard",
    () => h("dl.shortcuts", SHORTCUTS.map(([key, text]) => [h("dt", h("kbd", key)), h("dd", text)])),
    { size: "small" },
  );
}

poll(async () => {
  const { servers } = await get("/api/servers");
  setCount("servers", servers.filter((server) => server.trouble).length, "not reachable");
  setCount("decisions", servers.reduce((sum, server) => sum + server.waiting.length, 0), "waiting");
  await showReadiness();
}, COUNTS_INTERVAL_MS);

/** Show whether the gateway shuts down, or works without its database. */
async function showReadiness() {
  // A gateway that is not ready replies with an error status and the same content.
  const { status, store } = (await get("/ready").catch((error) => error.content)) ?? {};
  if (status === "draining") setLimited("Shutting down", "The gateway is shutting down. It finishes running calls and accepts no new ones.");
  else if (store === "unavailable") setLimited("Database unavailable", "The gateway cannot reach its database. Searches and calls work. The history, changes of keys, and approvals are unavailable.");
  else if (status) setLimited("");
}

function setCount(page, count, label) {
  const badge = find(`[data-count="${page}"]`);
  if (!badge) return;
  badge.hidden = !count;
  badge.textContent = count ? formatNumber(count) : "";
  badge.setAttribute("title", `${count} ${label}`);
}
