// How to connect a client: one text per client, with a copy button.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { codeBlock } from "./copy.js";

/** Return an element with a tab per client and what to enter there. */
export async function clientSetup() {
  const setup = await get("/api/setup");
  const panel = h("div.stack", { role: "tabpanel", id: "setup-panel", "aria-live": "polite" });
  const tabs = setup.clients.map((client) =>
    h("button", { type: "button", role: "tab", "aria-controls": "setup-panel", onclick: () => select(client) }, client.name),
  );

  function select(client) {
    tabs.forEach((tab, index) => tab.setAttribute("aria-selected", String(setup.clients[index] === client)));
    fill(
      panel,
      h("p.help", client.where === "a terminal" ? "Run this in a terminal:" : `Add this to ${client.where}:`),
      codeBlock(client.text, `Configuration for ${client.name}`),
      setup.needs_key ? h("p.help", "Replace YOUR_KEY with an API key. Create one under ", h("a", { href: "/access" }, "Access"), ".") : null,
    );
  }

  select(setup.clients[0]);
  return h("div.stack", h("div.segmented.wrap", { role: "tablist", "aria-label": "Clients" }, tabs), panel);
}
