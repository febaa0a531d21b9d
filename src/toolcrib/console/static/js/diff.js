// Diffs: the changed lines of a text, and two definitions side by side.

import { fill, h, longText, plural, revealHidden } from "./dom.js";

/** Return a diff in lines with - and + (or of a unified diff) with its signs in colour. */
export function renderDiff(text) {
  const lines = text.split("\n").map((line) => {
    const sign = line.trimStart()[0];
    const isHeading = line.startsWith("---") || line.startsWith("+++") || line.startsWith("@@");
    const kind = isHeading ? "head" : sign === "+" ? "add" : sign === "-" ? "remove" : "";
    return h("span.diff-line", { dataset: { kind } }, line || " ");
  });
  return h("pre.diff", { tabindex: "0", "aria-label": "Changes" }, lines);
}

const MAX_MARKED_CHARS = 4_000;
const MAX_MARKED_QUOTES = 200;
const CONTEXT_CHARS = 400;

/** Return a text with some quotes of it marked. */
function markQuotes(text, quotes) {
  const parts = [];
  let from = 0;
  while (parts.length < 2 * MAX_MARKED_QUOTES) {
    const places = quotes.map((quote) => [text.indexOf(quote, from), quote]).filter(([at]) => at >= 0);
    if (!places.length) break;
    const [at, quote] = places.reduce((first, each) => (each[0] < first[0] ? each : first));
    parts.push(text.slice(from, at), h("mark.finding", quote));
    from = at + quote.length;
  }
  return [...parts, text.slice(from)];
}

/** Return a part of a text with its quotes marked; of a long part the start or the end, with a button that shows the rest. */
function foldPart(text, quotes, limit, keepsEnd = false) {
  if (text.length <= limit) return markQuotes(text, quotes);
  const shown = keepsEnd ? text.slice(-limit) : text.slice(0, limit);
  const rest = keepsEnd ? text.slice(0, -limit) : text.slice(limit);
  const findings = quotes.filter((quote) => rest.includes(quote)).length;
  const more = `${plural(rest.length, "more character")}${findings ? `, with ${plural(findings, "finding")}` : ""}`;
  const button = h("button.text-button", { type: "button" }, keepsEnd ? `${more} …` : `… ${more}`);
  const box = h("span", keepsEnd ? [button, " "] : null, markQuotes(shown, quotes), keepsEnd ? null : [" ", button]);
  button.addEventListener("click", () => {
    const scrolled = box.closest(".long-text");
    fill(box, markQuotes(text, quotes));
    scrolled?.classList.add("is-long");
    if (scrolled) scrolled.tabIndex = 0;
  });
  return box;
}

/** Return two texts with the words that differ marked, and some quotes in the second: [before, after]. */
export function markWords(before, after, quotes = []) {
  const [left, right] = [before, after].map((text) => revealHidden(text).split(/(\s+)/));
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start++;
  let end = 0;
  while (end < left.length - start && end < right.length - start && left.at(-1 - end) === right.at(-1 - end)) end++;
  // Of long texts, what changed is shown with some text around it.
  const isLong = Math.max(before.length, after.length) >= MAX_MARKED_CHARS;
  const [around, changed] = isLong ? [CONTEXT_CHARS, MAX_MARKED_CHARS] : [Infinity, Infinity];
  const mark = (words, selector, marked) => {
    const [head, middle, tail] = [words.slice(0, start), words.slice(start, words.length - end), words.slice(words.length - end)].map((part) => part.join(""));
    return [foldPart(head, marked, around, true), middle ? h(selector, foldPart(middle, marked, changed)) : null, foldPart(tail, marked, around)];
  };
  return [mark(left, "del", []), mark(right, "ins", quotes)];
}

/** Return rows of two definitions that differ: path, before, after. */
export function listChanges(before, after, path = "", depth = 0) {
  if (JSON.stringify(before) === JSON.stringify(after)) return [];
  const areObjects = [before, after].every((value) => value && typeof value === "object" && !Array.isArray(value));
  if (areObjects && depth < 8) {
    const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])];
    return keys.flatMap((key) => listChanges(before[key], after[key], path ? `${path}.${key}` : key, depth + 1));
  }
  return [{ path, before, after }];
}

const toText = (value) => (value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value, null, 2));

/** Return a table that shows two definitions side by side, with some quotes of the second marked. */
export function sideBySide(before, after, quotes = [], titles = ["Approved", "Now"]) {
  const heads = before ? titles : ["", "Definition"];
  const changes = before ? listChanges(before, after) : Object.keys(after).map((path) => ({ path, before: undefined, after: after[path] }));
  return h(
    "div.table-scroll",
    { tabindex: "0", role: "region", "aria-label": "Before and after" },
    h(
      "table.side-by-side",
      h("thead", h("tr", h("th", "Field"), before ? h("th", heads[0]) : null, h("th", heads[1]))),
      h(
        "tbody",
        changes.map((change) => {
          const texts = [toText(change.before), toText(change.after)];
          const [left, right] = texts[1] && (texts[0] || quotes.length) ? markWords(texts[0], texts[1], quotes) : texts.map((text) => longText(text, 1_000));
          return h(
            "tr",
            h("td.mono.muted", change.path),
            before ? h("td.before", { dataset: { title: heads[0] } }, change.before === undefined ? h("span.muted", "absent") : h("div.long-text", left)) : null,
            h("td.after", { dataset: { title: heads[1] } }, change.after === undefined ? h("span.muted", "removed") : h("div.long-text", right)),
          );
        }),
      ),
    ),
  );
}
