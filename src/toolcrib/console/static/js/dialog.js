// Modal dialogs on the <dialog> element: Esc closes them and the focus returns to where it was.

import { append, h } from "./dom.js";

let nextId = 0;

/**
 * Open a dialog. `build(close)` returns its content. `close(value)` closes it.
 * Returns a promise of the value, which is undefined if the user dismissed the dialog.
 */
export function openDialog(title, build, { size = "medium" } = {}) {
  return new Promise((resolve) => {
    const id = `dialog-${++nextId}`;
    const opener = document.activeElement;
    const dialog = h("dialog.dialog", { "aria-labelledby": id, dataset: { size } });
    let value;
    const close = (result) => {
      value = result;
      dialog.close();
    };
    append(dialog, [
      h(
        "header.dialog-head",
        h("h2", { id }, title),
        h("button.icon-button", { type: "button", "aria-label": "Close", onclick: () => close() }, "×"),
      ),
      h("div.dialog-body", build(close)),
    ]);
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
      resolve(value);
    });
    dialog.addEventListener("click", (event) => event.target === dialog && close());
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("[data-autofocus]")?.focus();
  });
}

/** Ask before an action; resolves to true or false. */
export async function confirm(title, detail, { action = "Continue", isDangerous = false } = {}) {
  const answer = await openDialog(
    title,
    (close) => [
      h("div.dialog-text", detail),
      h(
        "footer.dialog-foot",
        h("button.button", { type: "button", dataset: isDangerous ? { autofocus: "" } : {}, onclick: () => close(false) }, "Cancel"),
        h(
          "button.button",
          {
            class: isDangerous ? "danger" : "primary",
            type: "button",
            dataset: isDangerous ? {} : { autofocus: "" },
            onclick: () => close(true),
          },
          action,
        ),
      ),
    ],
    { size: "small" },
  );
  return answer === true;
}
