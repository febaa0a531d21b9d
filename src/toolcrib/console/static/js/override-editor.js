// Edit the override of a tool: other texts and parameters for models, with a preview of what changes in search.

import { get, post, put, remove, runAction, toast } from "./api.js";
import { confirm, openDialog } from "./dialog.js";
import { sideBySide } from "./diff.js";
import { fill, h, plural } from "./dom.js";

const TEXTS = [
  ["name", "Name", "Without the prefix of the server; leave it empty to keep the name.", "input"],
  ["description", "Description", "What models read in place of the server's text.", "textarea"],
  ["hint", "Words for search", "Further words by which the tool is found. Models do not see them.", "input"],
];

/** Open the editor for a tool or a pattern. Resolves to true if the override was saved. */
export async function editOverride(pattern, tool = null) {
  const { overrides } = await get("/api/overrides");
  const saved = overrides.find((each) => each.pattern === pattern)?.override ?? {};
  const { tests } = await get("/api/tests");
  return openDialog(`Override ${pattern}`, (close) => buildEditor(pattern, saved, tool, tests, close), { size: "large" });
}

/** Delete an override after a question. Resolves to true if it was deleted. */
export async function deleteOverride(pattern) {
  const isSure = await confirm(`Delete the override of ${pattern}?`, "Models see the texts of the server again.", { action: "Delete", isDangerous: true });
  if (!isSure) return false;
  await remove(`/api/overrides/${encodeURIComponent(pattern)}`);
  toast(`The override of ${pattern} is deleted.`);
  return true;
}

function buildEditor(pattern, saved, tool, tests, close) {
  const isPattern = /[*?[]/.test(pattern);
  const inputs = Object.fromEntries(TEXTS.map(([key, , , tag]) => [key, h(tag, { id: `override-${key}`, value: saved[key] ?? "", rows: tag === "textarea" ? "4" : null, spellcheck: "false" })]));
  if (tool) inputs.description.placeholder = (tool.definition.description ?? "").slice(0, 300);
  const tags = h("input", { id: "override-tags", value: (saved.tags ?? []).join(", "), spellcheck: "false" });
  const parameters = Object.keys(tool?.definition.inputSchema?.properties ?? {}).slice(0, 100);
  const hidden = new Set(saved.hiddenParameters ?? []);
  const names = [...new Set([...parameters, ...hidden])];
  const fixed = h("textarea", { id: "override-fixed", rows: "2", spellcheck: "false", placeholder: '{"owner": "acme"}', value: saved.fixedParameters ? JSON.stringify(saved.fixedParameters, null, 2) : "" });
  const queries = h("textarea", { id: "override-queries", rows: "3", placeholder: "One query per line", value: tests.filter((test) => test.tools.includes(pattern)).map((test) => test.query).join("\n") });
  const error = h("p.form-error", { role: "alert", hidden: true });
  const output = h("div.stack", { "aria-live": "polite" });
  const preview = h("button.button", { type: "button" }, "Preview");
  const save = h("button.button.primary", { type: "submit" }, "Save");

  const field = (id, label, hint, input) => h("div.field", h("label", { for: id }, label), input, h("span.hint", hint));
  const form = h(
    "form.stack",
    { novalidate: true },
    TEXTS.filter(([key]) => key !== "name" || !isPattern).map(([key, label, hint]) => field(`override-${key}`, label, hint, inputs[key])),
    field("override-tags", "Tags", "Separated by commas. Searches can be filtered by them.", tags),
    names.length
      ? h("fieldset.facet", h("legend", "Parameters that models do not see"), h("div.row", names.map((name) => h("label.check", h("input", { type: "checkbox", checked: hidden.has(name), onchange: (event) => (event.target.checked ? hidden.add(name) : hidden.delete(name)) }), h("span.mono", name)))))
      : null,
    field("override-fixed", "Fixed values", "JSON. Every call gets these values, and models do not see the parameters.", fixed),
    field("override-queries", "Queries to compare", "How the rank of the tool changes in these searches.", queries),
    error,
    output,
    h("footer.dialog-foot", h("button.button", { type: "button", onclick: () => close() }, "Cancel"), preview, save),
  );

  function read() {
    const override = { ...saved };
    const set = (key, value, isEmpty) => (isEmpty ? delete override[key] : (override[key] = value));
    for (const [key] of TEXTS) set(key, inputs[key].value.trim(), !inputs[key].value.trim());
    const words = tags.value.split(",").map((tag) => tag.trim()).filter(Boolean);
    set("tags", words, !words.length);
    set("hiddenParameters", [...hidden], !hidden.size);
    let values = {};
    if (fixed.value.trim()) {
      try {
        values = JSON.parse(fixed.value);
      } catch {
        throw new Error("The fixed values are not valid JSON.");
      }
    }
    set("fixedParameters", values, !Object.keys(values).length);
    return override;
  }

  const run = (button, action) =>
    runAction(button, async () => {
      error.hidden = true;
      try {
        await action();
      } catch (fault) {
        fill(error, fault.message);
        error.hidden = false;
      }
    });
  preview.addEventListener("click", () =>
    run(preview, async () => {
      const asked = queries.value.split("\n").map((line) => line.trim()).filter(Boolean);
      fill(output, renderPreview(await post("/api/overrides/preview", { pattern, override: read(), queries: asked })));
    }),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(save, async () => {
      const { path } = await put(`/api/overrides/${encodeURIComponent(pattern)}`, { override: read() });
      toast(`Saved in ${path}.`);
      close(true);
    });
  });
  return form;
}

function renderPreview({ tools, total, problems, searches }) {
  return [
    problems.map((problem) => h("p.notice", { dataset: { kind: "warn" } }, problem)),
    h("p", total ? `${plural(total, "tool")} would change.` : "Nothing would change."),
    tools.map((tool) => h("section.card.flush", h("div.card-head", h("h3.mono", tool.name)), sideBySide(tool.before, tool.after, [], ["Now", "With the override"]))),
    searches.length
      ? h(
          "div.table-scroll",
          { tabindex: "0", role: "region", "aria-label": "Ranks" },
          h("table", h("thead", h("tr", h("th", "Query"), h("th", "Tool"), h("th", "Now"), h("th", "With the override"))), h("tbody", searches.flatMap((search) => search.ranks.map((rank) => h("tr", h("td", search.query), h("td.mono", rank.name), h("td", renderRank(rank.before)), h("td", renderRank(rank.after, rank.before))))))),
        )
      : null,
  ];
}

function renderRank(rank, before) {
  const kind = before === undefined || rank === before ? "" : rank && (!before || rank < before) ? "ok" : "bad";
  return h("span.badge", { dataset: { kind } }, rank ? `number ${rank}` : "not found");
}
