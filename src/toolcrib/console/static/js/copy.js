// Copy buttons and code blocks with one.

import { h } from "./dom.js";

/** Return a button that copies a text; `text` may be a function. */
export function copyButton(text, label = "Copy") {
  const button = h("button.button.small", { type: "button" }, label);
  button.addEventListener("click", async () => {
    const value = typeof text === "function" ? text() : text;
    try {
      await navigator.clipboard.writeText(value);
      button.textContent = "Copied";
    } catch {
      // Browsers offer the clipboard only on loopback and HTTPS.
      button.textContent = copyBySelection(value) ? "Copied" : "Select and copy";
    }
    setTimeout(() => (button.textContent = label), 1_500);
  });
  return button;
}

function copyBySelection(value) {
  const area = h("textarea.visually-hidden", { value, "aria-hidden": "true" });
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied;
}

/** Return a code block with a copy button. */
export function codeBlock(text, label = "Code") {
  return h(
    "div.code-block",
    h("pre", { tabindex: "0", "aria-label": label }, h("code", text)),
    copyButton(text),
  );
}
