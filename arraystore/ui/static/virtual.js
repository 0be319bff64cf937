// A list of any length of which only what is visible is in the page; one tab stop, moved through by keys.

import { h, later } from "./dom.js";

export class VirtualList {
  // draw(row, element) fills an element for a row; choose(row) is called when a row is picked, open(row) on Enter.
  constructor({ label, height, draw, choose, open, scrolled, roles = ["listbox", "option"] }) {
    this.height = height;
    this.draw = draw;
    this.choose = choose;
    this.open = open;
    this.scrolled = scrolled;
    [, this.role] = roles;
    this.length = 0;
    this.selected = -1;
    this.pool = new Map();
    this.free = [];
    this.id = `list${(VirtualList.count = (VirtualList.count || 0) + 1)}`;
    this.inner = h("div", { class: "virtual-inner", role: "presentation" });
    this.element = h("div", { class: "virtual", role: roles[0], tabindex: "0", "aria-label": label, onkeydown: (event) => this.key(event), onscroll: () => this.soon() }, this.inner);
    this.inner.addEventListener("click", (event) => this.clicked(event));
    this.tall = 0;
    this.chooseSoon = later(120, () => this.selected >= 0 && this.choose(this.selected));
    new ResizeObserver(() => this.resized()).observe(this.element);
  }

  setLength(length) {
    this.length = length;
    this.inner.style.height = `${length * this.height}px`;
    for (const element of this.pool.values()) this.release(element);
    this.pool.clear();
    if (this.selected >= length) this.selected = -1;
    this.render();
  }

  release(element) {
    element.hidden = true;
    element.removeAttribute("id");
    this.free.push(element);
  }

  // Keeps what is selected in sight where it was.
  resized() {
    const top = this.selected * this.height - this.element.scrollTop;
    if (this.selected >= 0 && top >= 0 && top < this.tall) this.reveal(this.selected);
    this.tall = this.element.clientHeight;
    this.soon();
  }

  soon() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.render();
    });
  }

  range() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.height) - 4);
    const last = Math.min(this.length, Math.ceil((this.element.scrollTop + this.element.clientHeight) / this.height) + 4);
    return [first, last];
  }

  render() {
    const [first, last] = this.range();
    for (const [row, element] of this.pool) {
      if (row < first || row >= last) {
        this.pool.delete(row);
        this.release(element);
      }
    }
    for (let row = first; row < last; row += 1) if (!this.pool.has(row)) this.show(row);
    if (this.scrolled) this.scrolled(first, last);
  }

  show(row) {
    const element = this.free.pop() || this.inner.appendChild(h("div", { class: "virtual-row", role: this.role }));
    element.hidden = false;
    element.id = `${this.id}-${row}`;
    element.dataset.row = row;
    element.style.transform = `translateY(${row * this.height}px)`;
    element.style.height = `${this.height}px`;
    element.setAttribute("aria-posinset", row + 1);
    element.setAttribute("aria-setsize", this.length);
    element.setAttribute("aria-selected", row === this.selected);
    this.draw(row, element);
    this.pool.set(row, element);
  }

  clicked(event) {
    const element = event.target.closest(".virtual-row");
    if (element && !event.target.closest("a, button")) this.pick(Number(element.dataset.row));
  }

  pick(row, quiet = false) {
    if (row < 0 || row >= this.length) return;
    const before = this.pool.get(this.selected);
    this.selected = row;
    if (before) before.setAttribute("aria-selected", "false");
    this.reveal(row);
    this.render();
    this.pool.get(row)?.setAttribute("aria-selected", "true");
    this.element.setAttribute("aria-activedescendant", `${this.id}-${row}`);
    if (!quiet) this.choose(row);
  }

  reveal(row) {
    const top = row * this.height;
    const view = this.element.clientHeight;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + this.height > this.element.scrollTop + view) this.element.scrollTop = top + this.height - view;
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.length, End: this.length };
    if (event.key in steps && this.length) {
      event.preventDefault();
      this.pick(Math.min(this.length - 1, Math.max(0, this.selected + steps[event.key])), event.repeat);
      if (event.repeat) this.chooseSoon();  // whoever holds a key does not ask for every row on the way
    } else if (event.key === "Enter" && this.selected >= 0 && this.open) {
      this.open(this.selected);
    }
  }
}
