// Access: API keys and access profiles, and what each sees.

import { get, post, put, remove, runAction, toast } from "./api.js";
import { codeBlock } from "./copy.js";
import { confirm, openDialog } from "./dialog.js";
import { fill, find, formatCompact, formatNumber, h, plural, startPage, state, timeAgo } from "./dom.js";

let keys = [];
let profiles = [];
let servers = [];

function keyTable() {
  if (!keys.length) {
    return state("empty", "No keys", "Everyone on this machine can use the gateway. After you create a key, every client needs one.");
  }
  return h(
    "div.table-scroll",
    { tabindex: "0", role: "region", "aria-label": "API keys" },
    h(
      "table",
      h("thead", h("tr", h("th", "Name"), h("th", "Access"), h("th", "Created"), h("th", "Last used"), h("th.number", "Requests"), h("th", "LLM use today"), h("th", h("span.visually-hidden", "Actions")))),
      h(
        "tbody",
        keys.map((key) =>
          h(
            "tr",
            h("td", h("strong", key.name)),
            h("td", key.profile ? h("span.badge", key.profile) : h("span.badge", { dataset: { kind: "accent" } }, "full access")),
            h("td.muted", key.created_at ? [timeAgo(key.created_at), key.created_by ? ` by ${key.created_by}` : ""] : key.created_by),
            h("td", timeAgo(key.last_used)),
            h("td.number", formatNumber(key.requests)),
            h("td", describeUse(key)),
            h("td.number", key.id ? keyActions(key) : h("span.muted", "in toolcrib.json")),
          ),
        ),
      ),
    ),
  );
}

/** Return the tokens and requests of today, with their limits. */
function describeUse(key) {
  const part = (used, limit, unit) => `${formatCompact(used)}${limit === null ? "" : ` of ${formatCompact(limit)}`} ${unit}`;
  const isOver = [["tokens_today", "tokens_per_day"], ["requests_today", "requests_per_day"]].some(([used, limit]) => key[limit] !== null && key[used] >= key[limit]);
  return [
    `${part(key.tokens_today, key.tokens_per_day, "tokens")}, ${part(key.requests_today, key.requests_per_day, "requests")} `,
    isOver ? h("span.badge", { dataset: { kind: "warn" } }, "used up") : null,
  ];
}

const keyActions = (key) =>
  h(
    "div.row",
    h("button.button.small", { type: "button", "aria-label": `Change the budget of ${key.name}`, onclick: () => changeBudget(key) }, "Budget"),
    h("button.button.small.danger", { type: "button", onclick: (event) => revoke(event.currentTarget, key) }, "Revoke"),
  );

/** Return the fields of a budget, and a function that reads them. */
function budgetFields(key) {
  const input = (id, value) => h("input", { id, type: "number", min: "0", step: "1", inputmode: "numeric", value: value ?? "" });
  const tokens = input("key-tokens", key?.tokens_per_day);
  const requests = input("key-requests", key?.requests_per_day);
  const read = (control) => (control.value === "" ? null : Number(control.value));
  return {
    fields: [
      field("LLM tokens a day", tokens, "Input and output together, per day in UTC. Empty for no limit."),
      field("LLM requests a day", requests, "Empty for no limit."),
    ],
    read: () => ({ tokensPerDay: read(tokens), requestsPerDay: read(requests) }),
  };
}

function changeBudget(key) {
  const budget = budgetFields(key);
  openForm(`Budget of ${key.name}`, budget.fields, "Save", async () => {
    await put(`/api/keys/${key.id}`, budget.read());
    toast(`The budget of ${key.name} is changed.`);
    return null;
  });
}

function profileCard(profile) {
  const more = profile.tools - profile.sample.length;
  return h(
    "article.card.session",
    { "aria-label": profile.name || "Full access" },
    h(
      "div.card-head",
      h("h3", profile.name || "Full access"),
      profile.source === "toolcrib.json" ? h("span.badge", "toolcrib.json") : null,
      profile.source === "store" ? h("div.actions", h("button.button.small.danger", { type: "button", onclick: (event) => deleteProfile(event.currentTarget, profile) }, "Delete")) : null,
    ),
    h(
      "dl.facts",
      fact("Sees", `${plural(profile.tools, "tool")} of ${plural(profile.servers.length, "server")}, about ${formatCompact(profile.tokens)} tokens`),
      fact("Servers", profile.servers.join(", ") || "none"),
      profile.settings.tools ? fact("Tool patterns", profile.settings.tools.join(", ")) : null,
      fact("Mode", profile.mode),
      fact("Keys", profile.keys.join(", ") || "none"),
      fact("Records", profile.records_content ? "arguments and results" : "no arguments or results"),
      fact("Quotas", describeQuotas(profile.settings) || "none"),
      fact("Own overrides and pins", `${Object.keys(profile.settings.overrides).length} and ${Object.keys(profile.settings.pins).length}`),
    ),
    profile.sample.length ? h("details", h("summary", "Tools"), h("p.mono.names", profile.sample.join(", "), more > 0 ? ` and ${formatNumber(more)} more` : "")) : null,
  );
}

const QUOTAS = [
  ["callsPerMinute", "Calls a minute", (limit) => `${formatNumber(limit)} calls a minute`],
  ["searchesPerMinute", "Searches a minute", (limit) => `${formatNumber(limit)} searches a minute`],
  ["maxConcurrentCalls", "Calls at the same time", (limit) => `${formatNumber(limit)} calls at the same time`],
  ["resultBytesPerMinute", "Bytes of results a minute", (limit) => `${formatCompact(limit)} bytes of results a minute`],
];

function describeQuotas(settings) {
  return QUOTAS.filter(([key]) => settings[key]).map(([key, , describe]) => describe(settings[key])).join(", ");
}

const fact = (name, value) => [h("dt", name), h("dd", value)];

async function revoke(button, key) {
  const isSure = await confirm(`Revoke ${key.name}?`, "Clients with this key lose access immediately, and their streams end.", { action: "Revoke", isDangerous: true });
  if (!isSure) return;
  await runAction(button, async () => {
    await remove(`/api/keys/${key.id}`);
    toast(`${key.name} is revoked.`);
    await load();
  });
}

async function deleteProfile(button, profile) {
  const isSure = await confirm(`Delete ${profile.name}?`, "You can delete an access profile only after you have revoked its keys.", { action: "Delete", isDangerous: true });
  if (!isSure) return;
  await runAction(button, async () => {
    await remove(`/api/profiles/${encodeURIComponent(profile.name)}`);
    toast(`${profile.name} is deleted.`);
    await load();
  });
}

function createKey() {
  const name = h("input", { id: "key-name", required: true, maxlength: "80", autocomplete: "off", dataset: { autofocus: "" } });
  // The first key needs full access: without it, nobody can manage the gateway.
  const choices = keys.length ? profiles : profiles.filter((each) => !each.name);
  const profile = h("select", { id: "key-profile" }, choices.map((each) => h("option", { value: each.name }, each.name || "Full access")));
  const budget = budgetFields();
  openForm(
    "Create a key",
    [
      field("Name", name, "Appears in logs and in the audit log, such as the name of a person or a machine."),
      field("Access", profile, "What clients with this key may use."),
      ...budget.fields,
      keys.length ? null : h("p.notice", { dataset: { kind: "warn" } }, "This is the first key. From now on, every client needs a key, and this page logs in with the new one."),
    ],
    "Create",
    async () => {
      const isFirst = !keys.length;
      const created = await post("/api/keys", { name: name.value, profile: profile.value || null, ...budget.read() });
      if (isFirst) await post("/api/login", { key: created.key });
      return () => showSecret(created, isFirst);
    },
  );
}

async function showSecret(created, isFirst) {
  await openDialog("Your new key", () => [
    h("p", "Copy the key now. It is stored as a hash and cannot be shown again."),
    codeBlock(created.key, "API key"),
  ]);
  if (isFirst) location.reload();
}

function createProfile() {
  const name = h("input", { id: "profile-name", required: true, maxlength: "64", pattern: "[A-Za-z0-9_.\\-]+", autocomplete: "off", dataset: { autofocus: "" } });
  const boxes = servers.map((server) => h("input", { type: "checkbox", value: server }));
  const patterns = h("input", { id: "profile-tools", placeholder: "github___*, *read*", autocomplete: "off" });
  const mode = h("select", { id: "profile-mode" }, [["", "As configured"], ["auto", "auto"], ["direct", "direct"], ["search", "search"], ["dynamic", "dynamic"]].map(([value, text]) => h("option", { value }, text)));
  const records = h("input", { type: "checkbox" });
  const quotas = QUOTAS.map(([key]) => h("input", { id: `profile-${key}`, type: "number", min: key === "resultBytesPerMinute" ? "1024" : "1", step: "1", inputmode: "numeric" }));
  openForm(
    "Create an access profile",
    [
      field("Name", name, "Letters, digits, _, . and -; it is part of the URL /mcp/p/<name>."),
      h("fieldset.plain", h("legend.label", "Servers"), h("p.help", "All servers if you choose none."), h("div.row", boxes.map((box) => h("label.check", box, box.value)))),
      field("Tools", patterns, "Patterns of server___tool, separated by commas. Empty for all."),
      field("Mode", mode, "How tools are shown to clients."),
      h("label.check", records, "Record arguments and results in the audit log"),
      h("details", h("summary", "Quotas"), h("div.stack.inset", h("p.help", "For all clients with this access profile together. Empty for no limit."), QUOTAS.map(([, label], index) => field(label, quotas[index])))),
    ],
    "Create",
    async () => {
      const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
      const tools = patterns.value.split(",").map((each) => each.trim()).filter(Boolean);
      await post("/api/profiles", {
        name: name.value,
        ...(chosen.length ? { servers: chosen } : {}),
        ...(tools.length ? { tools } : {}),
        ...(mode.value ? { mode: mode.value } : {}),
        ...(records.checked ? { recordContent: true } : {}),
        ...Object.fromEntries(QUOTAS.map(([key], index) => [key, quotas[index].value]).filter(([, value]) => value).map(([key, value]) => [key, Number(value)])),
      });
      return null;
    },
  );
}

/** Open a dialog with a form. `submit` returns what to do after the dialog is closed, or null. */
async function openForm(title, fields, action, submit) {
  const after = await openDialog(title, (close) => {
    const error = h("p.form-error", { role: "alert" });
    const button = h("button.button.primary", { type: "submit" }, action);
    const form = h("form.stack", fields, error, h("footer.dialog-foot", h("button.button", { type: "button", onclick: () => close() }, "Cancel"), button));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      error.textContent = "";
      try {
        close((await submit()) ?? (() => {}));
      } catch (problem) {
        error.textContent = problem.message;
      } finally {
        button.disabled = false;
      }
    });
    return form;
  });
  if (!after) return;
  await after();
  await load().catch(() => {});
}

const field = (label, control, hint) => h("div.field", h("label", { for: control.id }, label), control, hint ? h("span.hint", hint) : null);

async function load() {
  [{ keys }, { profiles, servers }] = await Promise.all([get("/api/keys"), get("/api/profiles")]);
  fill(
    find("[data-content]"),
    h(
      "section.card.flush",
      { "aria-label": "API keys" },
      h("div.card-head", h("h2", "API keys"), h("div.actions", h("button.button.small.primary", { type: "button", onclick: createKey }, "Create a key"))),
      keyTable(),
    ),
    h(
      "section.stack",
      { "aria-label": "Access profiles" },
      h("div.row.spread", h("h2", "Access profiles"), h("button.button.small", { type: "button", onclick: createProfile }, "Create an access profile")),
      h("div.grid", profiles.map(profileCard)),
    ),
  );
}

startPage(load, "Keys and access profiles could not be loaded");
