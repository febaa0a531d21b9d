// Diffs: the changed lines of a text, and two definitions side by side.

import { h, longText, revealHidden } from "./dom.js";

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

/** Return a text with some quotes of it marked. */
function markQuotes(text, quotes) {
  const found = quotes.find((quote) => text.includes(quote));
  if (!found) return [text];
  const at = text.indexOf(found);
  return [...markQuotes(text.slice(0, at), quotes), h("mark.finding", found), ...markQuotes(text.slice(at + found.length), quotes)];
}

/** Return two texts with the words that differ marked, and some quotes in the second: [before, after]. */
export function markWords(before, after, quotes = []) {
  const [left, right] = [before, after].map((text) => revealHidden(text).split(/(\s+)/));
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start++;
  let end = 0;
  while (end < left.length - start && end < right.length - start && left.at(-1 - end) === right.at(-1 - end)) end++;
  const mark = (words, selector, marked) => {
    const [head, middle, tail] = [words.slice(0, start), words.slice(start, words.length - end), words.slice(words.length - end)].map((part) => markQuotes(part.join(""), marked));
    return [head, middle.join("") ? h(selector, middle) : null, tail];
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
const MAX_MARKED_CHARS = 4_000;

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
          const isShort = texts.every((text) => text.length < MAX_MARKED_CHARS) && texts[1];
          const [left, right] = isShort && (texts[0] || quotes.length) ? markWords(texts[0], texts[1], quotes) : texts.map((text) => longText(text, 1_000));
          return h(
            "tr",
            h("td.mono.muted", change.path),
            before ? h("td.before", { dataset: { title: heads[0] } }, change.before === undefined ? h("span.muted", "not there") : h("div.long-text", left)) : null,
            h("td.after", { dataset: { title: heads[1] } }, change.after === undefined ? h("span.muted", "removed") : h("div.long-text", right)),
          );
        }),
      ),
    ),
  );
}
