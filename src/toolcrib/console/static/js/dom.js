// Build elements from data. Text is never parsed as HTML, and hidden characters become visible.

const HIDDEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|[\u{1d173}-\u{1d17a}]/gu;
const MAX_SHOWN_CHARS = 2_000;
const SVG_TAGS = new Set(["svg", "path", "line", "rect", "circle", "g", "text", "polyline", "polygon", "title"]);

/** Return a text with control, bidi and zero-width characters written as their code, such as [U+202E]. */
export function revealHidden(text) {
  return String(text).replace(HIDDEN, (char) => `[U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

/** Create an element: h("a.button", { href: "/" }, "Text", child, …). Null children are skipped. */
export function h(selector, props, ...children) {
  const [tag, ...classes] = selector.split(".");
  const isSvg = SVG_TAGS.has(tag) && !(tag === "title" && props?.html);
  const element = isSvg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag || "div");
  if (classes.length) element.setAttribute("class", classes.join(" "));
  if (props instanceof Node || typeof props !== "object" || props === null || Array.isArray(props)) {
    children.unshift(props);
    props = {};
  }
  for (const [name, value] of Object.entries(props)) setProperty(element, name, value);
  append(element, children);
  return element;
}

function setProperty(element, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
  else if (name === "dataset") Object.assign(element.dataset, value);
  else if (name === "class") element.classList.add(...value.split(" ").filter(Boolean));
  else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
  else if (value === true) element.setAttribute(name, "");
  else element.setAttribute(name, name === "title" || name.startsWith("aria-") ? revealHidden(value) : value);
}

/** Append children: nodes, texts, and arrays of both. */
export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === undefined || child === null || child === false || child === "") continue;
    element.append(child instanceof Node ? child : revealHidden(child));
  }
  return element;
}

/** Replace the content of an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

export const find = (selector, root = document) => root.querySelector(selector);
export const findAll = (selector, root = document) => [...root.querySelectorAll(selector)];

/** Return a long text cut after some characters, with a button that shows the rest. */
export function longText(text, limit = MAX_SHOWN_CHARS, selector = "div.long-text") {
  text = String(text ?? "");
  if (text.length <= limit) return h(selector, text);
  const box = h(selector, text.slice(0, limit), " … ");
  const button = h("button.text-button", { type: "button" }, `Show all ${formatNumber(text.length)} characters`);
  button.addEventListener("click", () => {
    fill(box, text);
    box.classList.add("is-long");
    box.tabIndex = 0;
  });
  return append(box, button);
}

/** Return a message for an empty, loading or failed part: state("empty", "Nothing here", "What to do", action). */
export function state(kind, title, detail = "", ...actions) {
  const role = kind === "error" ? "alert" : "status";
  return h(
    "div.state",
    { dataset: { state: kind }, role },
    h("p.state-title", title),
    detail ? h("p.state-detail", detail) : null,
    actions.length ? h("div.state-actions", actions) : null,
  );
}

const numberFormat = new Intl.NumberFormat("en");
const compactFormat = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const relativeFormat = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });

export const formatNumber = (value) => (Number.isFinite(value) ? numberFormat.format(value) : "–");
export const formatCompact = (value) =>
  Number.isFinite(value) ? (Math.abs(value) < 10_000 ? numberFormat.format(value) : compactFormat.format(value)) : "–";
export const formatPercent = (share) => (Number.isFinite(share) ? `${Math.round(share * 100)} %` : "–");
export const plural = (count, one, many = `${one}s`) => `${formatNumber(count)} ${count === 1 ? one : many}`;

/** Return a duration such as 340 ms, 2.1 s or 3 min. */
export function formatSeconds(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 0.0995) return `${(seconds * 1000).toFixed(seconds < 0.00995 ? 1 : 0)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return seconds < 86_400 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} d`;
}

/** Return a time element such as "3 min. ago"; `epochSeconds` is in seconds since 1970. */
export function timeAgo(epochSeconds) {
  if (!epochSeconds) return h("span.muted", "never");
  const date = new Date(epochSeconds * 1000);
  const seconds = epochSeconds - Date.now() / 1000;
  const [unit, size] = [["day", 86_400], ["hour", 3600], ["minute", 60], ["second", 1]].find(
    ([, each]) => Math.abs(seconds) >= each,
  ) ?? ["second", 1];
  const text = Math.abs(seconds) < 5 ? "now" : relativeFormat.format(Math.round(seconds / size), unit);
  return h("time", { datetime: date.toISOString(), title: date.toLocaleString("en") }, text);
}

/** Load a page: show that it loads, and if that fails, the problem with a button that tries again. */
export async function startPage(load, problem) {
  const content = find("[data-content]");
  fill(content, state("loading", "Loading"));
  try {
    await load();
  } catch (error) {
    const retry = h("button.button", { type: "button", onclick: () => startPage(load, problem) }, "Try again");
    fill(content, state("error", problem, error.message, retry));
  }
}

/** Return a function that runs another one after a pause in its calls. */
export function debounce(run, milliseconds) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...args), milliseconds);
  };
}
