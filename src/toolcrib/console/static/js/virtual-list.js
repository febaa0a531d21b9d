// A list that renders only the visible rows, so that 10,000 rows scroll smoothly.

import { h } from "./dom.js";

const MARGIN_ROWS = 8;

/**
 * A list of rows with equal heights. `render(item, index)` returns the content of a row.
 * Arrow keys, Home, End and Page keys move the selection; Enter and a click open a row.
 */
export class VirtualList {
  constructor(element, { rowHeight, render, onselect, label }) {
    this.element = element;
    this.rowHeight = rowHeight;
    this.render = render;
    this.onselect = onselect;
    this.items = [];
    this.selected = -1;
    this.rows = new Map();
    this.space = h("div.virtual-space", { role: "presentation" });
    element.classList.add("virtual-list");
    element.setAttribute("role", "listbox");
    element.setAttribute("aria-label", label);
    element.tabIndex = 0;
    element.replaceChildren(this.space);
    element.addEventListener("scroll", () => this.#draw(), { passive: true });
    element.addEventListener("keydown", (event) => this.#onKey(event));
    this.space.addEventListener("click", (event) => {
      const row = event.target.closest("[data-index]");
      if (row) this.select(Number(row.dataset.index), true);
    });
    new ResizeObserver(() => this.#draw()).observe(element);
  }

  /** Show other items. The selection is kept if `isSelected` matches one of them. */
  setItems(items, isSelected = () => false) {
    this.items = items;
    this.space.style.setProperty("height", `${items.length * this.rowHeight}px`);
    this.selected = items.findIndex(isSelected);
    this.#clear();
    this.#draw();
  }

  /** Select a row and scroll to it; `open` also calls `onselect`. */
  select(index, open = false) {
    if (index < 0 || index >= this.items.length) return;
    this.selected = index;
    const top = index * this.rowHeight;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.rowHeight > scrollTop + clientHeight) this.element.scrollTop = top + this.rowHeight - clientHeight;
    this.#clear();
    this.#draw();
    if (open) this.onselect?.(this.items[index], index);
  }

  #clear() {
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
  }

  #draw() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(Math.floor(scrollTop / this.rowHeight) - MARGIN_ROWS, 0);
    const last = Math.min(Math.ceil((scrollTop + clientHeight) / this.rowHeight) + MARGIN_ROWS, this.items.length);
    for (const [index, row] of this.rows) {
      if (index < first || index >= last) {
        row.remove();
        this.rows.delete(index);
      }
    }
    for (let index = first; index < last; index++) {
      if (!this.rows.has(index)) this.rows.set(index, this.#addRow(index));
    }
    if (this.rows.has(this.selected)) this.element.setAttribute("aria-activedescendant", this.rows.get(this.selected).id);
    else this.element.removeAttribute("aria-activedescendant");
  }

  #addRow(index) {
    const row = h(
      "div.virtual-row",
      {
        id: `row-${index}`,
        role: "option",
        dataset: { index },
        "aria-selected": index === this.selected ? "true" : "false",
        "aria-posinset": index + 1,
        "aria-setsize": this.items.length,
        style: { transform: `translateY(${index * this.rowHeight}px)`, height: `${this.rowHeight}px` },
      },
      this.render(this.items[index], index),
    );
    this.space.append(row);
    return row;
  }

  #onKey(event) {
    const page = Math.max(Math.floor(this.element.clientHeight / this.rowHeight) - 1, 1);
    const last = this.items.length - 1;
    const moves = {
      ArrowDown: this.selected + 1,
      ArrowUp: this.selected - 1,
      PageDown: Math.min(this.selected + page, last),
      PageUp: Math.max(this.selected - page, 0),
      Home: 0,
      End: last,
    };
    if (event.key in moves) this.select(Math.min(Math.max(moves[event.key], 0), last));
    else if (event.key === "Enter" && this.selected >= 0) this.onselect?.(this.items[this.selected], this.selected);
    else return;
    event.preventDefault();
  }
}
