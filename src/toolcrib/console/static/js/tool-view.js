// One tool in detail: its texts, forms, parameters, history, and a form to call it.

import { post, runAction } from "./api.js";
import { codeBlock } from "./copy.js";
import { confirm } from "./dialog.js";
import { renderDiff } from "./diff.js";
import { fill, formatNumber, formatSeconds, h, longText, plural, timeAgo } from "./dom.js";
import { editOverride } from "./override-editor.js";
import { buildForm, parameterTable } from "./schema.js";

const FORMS = [
  ["full", "Full definition", "In the list of tools, or after a search."],
  ["stub", "Stub", "In a search result with little detail."],
  ["signature", "Signature", "The shortest form that can be called."],
];
const IMAGE_TYPES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const MAX_RESULT_CHARS = 20_000;

/** Return the elements that show a tool of `/api/tools/{name}`. `onchange` is called after its override was saved. */
export function toolView(tool, onchange = () => {}) {
  return [
    h(
      "header.detail-head",
      h("h2.mono", tool.name),
      h(
        "div.row",
        h("a.badge", { href: `/servers?server=${encodeURIComponent(tool.server)}` }, tool.server),
        toolBadges(tool),
        h("span.muted", `${plural(tool.tokens, "token")} · called ${plural(tool.usage.calls, "time")}`),
        document.body.dataset.fullAccess === "true" ? overrideButton(tool, onchange) : null,
      ),
    ),
    tool.findings.map((finding) =>
      h("p.notice", { dataset: { kind: finding.severity === "high" ? "bad" : "warn" } }, h("strong", finding.category), ` in ${finding.location || "the text"}: ${finding.message}`),
    ),
    tool.definition.description ? longText(tool.definition.description, 1200) : h("p.muted", "The server gives no description."),
    section("Parameters", parameterTable(tool.definition.inputSchema ?? {})),
    section("Call", callForm(tool)),
    section("As the model sees it", formsView(tool)),
    section("History", historyView(tool)),
  ];
}

/** Return badges for what a tool does. */
export function toolBadges(tool) {
  return [
    tool.readOnly ? h("span.badge", { dataset: { kind: "ok" } }, "read-only") : null,
    tool.destructive ? h("span.badge", { dataset: { kind: "warn" }, title: "It may delete or overwrite something." }, "may destroy") : null,
    tool.flagged ? h("span.badge", { dataset: { kind: "bad" } }, "suspicious") : null,
    tool.tags.map((tag) => h("span.badge", tag)),
  ];
}

function overrideButton(tool, onchange) {
  const button = h("button.text-button", { type: "button", title: "Other texts and parameters for models" }, "Edit what models see");
  button.addEventListener("click", () => runAction(button, async () => (await editOverride(tool.originalName, tool)) && onchange()));
  return button;
}

function section(title, ...content) {
  return h("section.detail-section", h("h3", title), content);
}

function formsView(tool) {
  const body = h("div");
  const buttons = FORMS.map(([form, title, hint]) =>
    h("button", { type: "button", title: hint, "aria-pressed": "false", dataset: { form }, onclick: () => show(form) }, title, " ", h("span.muted", formatNumber(tool.forms[form].tokens))),
  );
  function show(form) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.form === form));
    const { text } = tool.forms[form];
    fill(body, codeBlock(text.length > MAX_RESULT_CHARS ? `${text.slice(0, MAX_RESULT_CHARS)} …` : text, "Definition"));
  }
  show("full");
  return [h("div.segmented", { role: "group", "aria-label": "Form" }, buttons), body];
}

function historyView(tool) {
  if (!tool.pin) return h("p.muted", "Definitions are not pinned on this gateway (safety.changed is off).");
  return [
    h(
      "p.muted",
      "Pinned ", h("code", tool.pin.fingerprint.slice(0, 12)), ", first seen ", timeAgo(tool.pin.firstSeen),
      tool.versions.length ? "." : ". The definition has not changed since.",
    ),
    tool.versions.map((version) =>
      h(
        "details.version",
        h("summary", "Changed ", timeAgo(version.replacedAt), " ", h("code.muted", version.fingerprint.slice(0, 12))),
        renderDiff(version.diff),
      ),
    ),
  ];
}

function callForm(tool) {
  const form = buildForm(tool.definition.inputSchema ?? {});
  const error = h("p.form-error", { role: "alert", hidden: true });
  const output = h("div.call-result", { "aria-live": "polite" });
  const button = h("button.button.primary", { type: "submit" }, "Call the tool");
  const element = h("form.stack.call-form", { novalidate: true, "aria-label": "Call the tool" }, form.element, error, h("div", button), output);
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    error.hidden = true;
    let args;
    try {
      args = form.read();
    } catch (fault) {
      showError(fault.message);
      return;
    }
    if (tool.destructive) {
      const detail = [h("p", `${tool.name} is not declared read-only or non-destructive, so it may delete or overwrite something.`), codeBlock(JSON.stringify(args, null, 2), "Arguments")];
      if (!(await confirm("Call this tool?", detail, { action: "Call the tool", isDangerous: true }))) return;
    }
    await runAction(button, async () => {
      try {
        const reply = await post(`/api/tools/${encodeURIComponent(tool.name)}/call`, { arguments: args });
        fill(output, renderResult(reply));
      } catch (fault) {
        fill(output);
        showError(fault.message);
      }
    });
  });
  function showError(message) {
    error.textContent = "";
    fill(error, message);
    error.hidden = false;
  }
  return element;
}

/** Return the result of a call: texts, images, JSON. */
function renderResult({ result, succeeded, seconds }) {
  const content = Array.isArray(result.content) ? result.content : [];
  return [
    h("div.row", h("span.badge", { dataset: { kind: succeeded ? "ok" : "bad" } }, succeeded ? "Succeeded" : "The tool returned an error"), h("span.muted", formatSeconds(seconds))),
    content.slice(0, 50).map(renderContent),
    result.structuredContent ? h("details", h("summary", "Structured result"), codeBlock(toText(result.structuredContent), "Structured result")) : null,
    content.length ? null : codeBlock(toText(result), "Result"),
  ];
}

function renderContent(item) {
  if (item?.type === "text") return codeBlock(cut(prettify(String(item.text ?? ""))), "Text");
  if (item?.type === "image" && IMAGE_TYPES.has(item.mimeType) && /^[A-Za-z0-9+/=\s]*$/.test(item.data ?? "")) {
    return h("img.result-image", { src: `data:${item.mimeType};base64,${item.data.replace(/\s/g, "")}`, alt: "Image in the result" });
  }
  return codeBlock(toText(item), "Content");
}

const toText = (value) => cut(JSON.stringify(value, null, 2) ?? "");
const cut = (text) => (text.length > MAX_RESULT_CHARS ? `${text.slice(0, MAX_RESULT_CHARS)} … (${formatNumber(text.length)} characters)` : text);

function prettify(text) {
  if (!/^\s*[[{]/.test(text) || text.length > 500_000) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
