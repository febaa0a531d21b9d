// Add a server by pasted configuration or by a form: test it, look at the change of toolcrib.json, save it.

import { get, post, runAction, toast } from "./api.js";
import { openDialog } from "./dialog.js";
import { renderDiff } from "./diff.js";
import { fill, find, h, plural } from "./dom.js";

const EXAMPLE = `{
  "mcpServers": {
    "files": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me"] }
  }
}`;

const WAYS = [["paste", "Paste"], ["program", "Program"], ["address", "Address"], ["openapi", "OpenAPI"], ["clients", "From your clients"]];

/** Open the dialog to add a server, at one of its ways. Resolves to true if one was saved. */
export async function addServer(way = "paste") {
  const saved = new Set();
  await openDialog("Add a server", (close) => buildSteps(close, way, saved), { size: "large" });
  return saved.size > 0;
}

/** Show what enabling, disabling or removing a server changes, and do it. Resolves to true if it was done. */
export async function changeServer(action, name) {
  const titles = { enable: "Enable", disable: "Disable", remove: "Remove" };
  const preview = await post("/api/config/servers", { action, name });
  return openDialog(`${titles[action]} ${name}`, (close) => {
    const button = h("button.button", { type: "button", class: action === "remove" ? "danger" : "primary", dataset: { autofocus: "" } }, titles[action]);
    button.addEventListener("click", () =>
      runAction(button, async () => {
        await post("/api/config/servers", { action, name, apply: true, revision: preview.revision });
        toast(`${preview.path} is changed.`);
        close(true);
      }),
    );
    return [changePreview(preview), h("footer.dialog-foot", h("button.button", { type: "button", onclick: () => close() }, "Cancel"), button)];
  });
}

function changePreview(preview) {
  return h(
    "div.stack",
    h("p", "This changes ", h("code", preview.path), ". Comments and order are kept."),
    renderDiff(preview.diff || "Nothing changes."),
  );
}

function buildSteps(close, way, saved) {
  const body = h("div.stack");
  showInput();
  return body;

  /** Return what shows an edit and saves it; `done` runs after it was saved. */
  async function previewEdit(edit, names, done) {
    const change = await post("/api/config/servers", edit);
    const save = h("button.button.primary", { type: "button" }, "Save");
    save.addEventListener("click", () =>
      runAction(save, async () => {
        await post("/api/config/servers", { ...edit, apply: true, revision: change.revision });
        names.forEach((name) => saved.add(name));
        toast(`${names.length === 1 ? names[0] : plural(names.length, "server")} added to ${change.path}.`);
        done();
      }),
    );
    return [changePreview(change), h("div", save)];
  }

  function showInput() {
    const error = h("p.form-error", { role: "alert", hidden: true });
    const next = h("button.button.primary", { type: "submit" }, "Continue");
    const fields = h("div");
    const tabs = WAYS.map(([kind, title]) =>
      h("button", { type: "button", "aria-pressed": "false", dataset: { kind }, onclick: () => choose(kind) }, title),
    );
    let kind;
    function choose(chosen) {
      kind = chosen;
      for (const tab of tabs) tab.setAttribute("aria-pressed", String(tab.dataset.kind === chosen));
      fill(fields, inputsFor(chosen));
      fields.querySelector("input, textarea")?.focus();
    }
    const form = h(
      "form.stack",
      { novalidate: true },
      h("div.segmented.wrap", { role: "group", "aria-label": "How to add the server" }, tabs),
      fields,
      error,
      h("footer.dialog-foot", h("button.button", { type: "button", onclick: () => close() }, "Cancel"), next),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      error.hidden = true;
      runAction(next, async () => {
        try {
          if (kind === "clients") {
            await showDiscovered();
            return;
          }
          const text = kind === "paste" ? form.elements.text.value : JSON.stringify(readEntry(kind, form.elements));
          const name = form.elements.name?.value.trim();
          const { servers } = await post("/api/config/parse", { text, name });
          showChoice(servers);
        } catch (fault) {
          fill(error, fault.message);
          error.hidden = false;
        }
      });
    });
    fill(body, form);
    choose(WAYS.some(([kind]) => kind === way) ? way : "paste");
  }

  async function showDiscovered() {
    const { servers, problems } = await get("/api/config/clients");
    if (!servers.length) throw new Error(problems[0] ?? "The configuration files of your clients have no further servers.");
    showChoice(servers, problems);
  }

  function showChoice(servers, problems = []) {
    fill(
      body,
      servers.length > 1 ? addAll(servers) : null,
      problems.map((problem) => h("p.notice", { dataset: { kind: "warn" } }, problem)),
      servers.map((server) => serverCard(server, servers.length === 1)),
      h("footer.dialog-foot", h("button.button", { type: "button", onclick: showInput }, "Back")),
    );
  }

  function addAll(servers) {
    const valid = servers.filter((server) => !server.error);
    const output = h("div.stack", { "aria-live": "polite" });
    const button = h("button.button.primary", { type: "button" }, `Add all ${valid.length}`);
    button.addEventListener("click", () =>
      runAction(button, async () => {
        const left = valid.filter((server) => !saved.has(server.name));
        const edit = { action: "add", entries: Object.fromEntries(left.map((server) => [server.name, server.entry])) };
        fill(output, await previewEdit(edit, left.map((server) => server.name), () => close()));
      }),
    );
    return h("div.stack", h("div.row.spread", h("p", `${plural(servers.length, "server")} found. Add all of them, or test and add single ones.`), valid.length > 1 ? button : null), output);
  }

  function serverCard(server, isOnly) {
    const output = h("div.stack", { "aria-live": "polite" });
    const name = h("input", { value: server.name, "aria-label": "Name", spellcheck: "false" });
    const test = h("button.button", { type: "button" }, "Test");
    const preview = h("button.button.primary", { type: "button" }, "Show the change");
    test.addEventListener("click", () => runAction(test, async () => fill(output, renderReport(await post("/api/config/test", { name: name.value, entry: server.entry })))));
    preview.addEventListener("click", () =>
      runAction(preview, async () => {
        const edit = { action: "add", name: name.value.trim(), entry: server.entry };
        const done = () => {
          if (isOnly) close();
          else fill(card, h("p.notice", { dataset: { kind: "ok" } }, `${edit.name} is added.`));
        };
        fill(output, await previewEdit(edit, [edit.name], done));
        find("button", output)?.focus();
      }),
    );
    const card = h(
      "section.card.stack",
      { "aria-label": server.name },
      h("div.field", h("span.label", server.client ? `Name (from ${server.client})` : "Name"), name),
      h("pre.diff", { tabindex: "0", "aria-label": "Entry" }, h("span.diff-line", JSON.stringify(server.entry, null, 2))),
      server.notes.map((note) => h("p.notice", { dataset: { kind: "warn" } }, note)),
      server.error ? h("p.notice", { dataset: { kind: "bad" } }, server.error) : h("div.row", test, preview),
      output,
    );
    return card;
  }
}

function inputsFor(kind) {
  if (kind === "paste") {
    return h("div.field", h("label", { for: "add-text" }, "Configuration of any client"), h("textarea", { id: "add-text", name: "text", rows: "10", dataset: { autofocus: "" }, placeholder: EXAMPLE, spellcheck: "false" }), h("span.hint", "JSON of Claude, Cursor, VS Code, Gemini or another client, TOML of Codex, or one entry."));
  }
  if (kind === "clients") return h("p", "Look for servers in the configuration files of your MCP clients (Claude, Cursor, VS Code, Codex, opencode, Zed and others) on the machine of the gateway. The files are not changed.");
  const input = (name, label, hint, isArea) =>
    h("div.field", h("label", { for: `add-${name}` }, label), h(isArea ? "textarea" : "input", { id: `add-${name}`, name, spellcheck: "false", autocomplete: "off" }), h("span.hint", hint));
  const name = input("name", "Name", "How the gateway calls the server, such as files.");
  if (kind === "program") {
    return h("div.stack", name, input("command", "Command", "The program, such as npx or uvx."), input("args", "Arguments", "One per line.", true), input("env", "Variables", "One per line: NAME=value, or NAME=${NAME} to take it from the environment.", true));
  }
  const headers = input("headers", "Headers", "One per line: Authorization: Bearer ${TOKEN}.", true);
  if (kind === "openapi") {
    return h("div.stack", name, input("openapi", "OpenAPI document", "A URL or a file on the machine of the gateway, in JSON or YAML. Its operations become tools."), input("baseUrl", "Address of the API", "Empty for the one in the document."), headers);
  }
  return h("div.stack", name, input("url", "Address", "Such as https://example.com/mcp."), headers);
}

function readEntry(kind, elements) {
  const lines = (name) => elements[name].value.split("\n").map((line) => line.trim()).filter(Boolean);
  const pairs = (name, separator) =>
    Object.fromEntries(lines(name).map((line) => {
      const at = line.indexOf(separator);
      if (at < 1) throw new Error(`“${line}” has no ${separator}`);
      return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    }));
  if (!elements.name.value.trim()) throw new Error("The server needs a name.");
  if (kind === "program") {
    const entry = { command: elements.command.value.trim(), args: lines("args"), env: pairs("env", "=") };
    if (!entry.command) throw new Error("The command is missing.");
    return entry;
  }
  if (kind === "openapi") {
    const entry = { openapi: elements.openapi.value.trim(), headers: pairs("headers", ":") };
    if (!entry.openapi) throw new Error("The document is missing.");
    const baseUrl = elements.baseUrl.value.trim();
    return baseUrl ? { ...entry, baseUrl } : entry;
  }
  if (!elements.url.value.trim()) throw new Error("The address is missing.");
  return { url: elements.url.value.trim(), headers: pairs("headers", ":") };
}

function renderReport(report) {
  const summary = report.running
    ? h("p.notice", { dataset: { kind: "ok" } }, `It works: ${[plural(report.tools, "tool"), plural(report.tokens, "token"), report.protocol ? `protocol ${report.protocol}` : ""].filter(Boolean).join(", ")}.`)
    : h("p.notice", { dataset: { kind: "bad" } }, "It does not start.");
  return [summary, report.findings.map((finding) => h("p.notice", { dataset: { kind: finding.severity === "error" ? "bad" : "warn" } }, h("strong", finding.problem), finding.fix ? h("div", `Fix: ${finding.fix}.`) : null))];
}
