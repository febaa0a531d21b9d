// How to connect a client: one text per client, with a copy button.

import { fill, h } from "./dom.js";
import { codeBlock } from "./copy.js";

/** Return an element with a tab per client and what to enter there; `setup` is the reply of `/api/setup`. */
export function clientSetup(setup) {
  const panel = h("div.stack", { role: "tabpanel", id: "setup-panel", "aria-live": "polite" });
  const tabs = setup.clients.map((client) =>
    h("button", { type: "button", role: "tab", "aria-controls": "setup-panel", onclick: () => select(client) }, client.name),
  );

  function select(client) {
    tabs.forEach((tab, index) => {
      const isSelected = setup.clients[index] === client;
      tab.setAttribute("aria-selected", String(isSelected));
      tab.tabIndex = isSelected ? 0 : -1;
    });
    fill(
      panel,
      h("p.help", client.where === "a terminal" ? "Run this in a terminal:" : `Add this to ${client.where}:`),
      codeBlock(client.text, `Configuration for ${client.name}`),
      setup.needs_key ? h("p.help", "Replace YOUR_KEY with an API key. Create one under ", h("a", { href: "/access" }, "Access"), ".") : null,
    );
  }

  function move(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const tab = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
    tab.click();
    tab.focus();
  }

  select(setup.clients[0]);
  return h("div.stack", h("div.segmented.wrap", { role: "tablist", "aria-label": "Clients", onkeydown: move }, tabs), panel);
}
