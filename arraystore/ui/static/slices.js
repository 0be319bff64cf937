// Which part of an array is shown: two axes, and a slider for each other dimension.

import { report } from "./api.js";
import { h, later, plain } from "./dom.js";
import { count } from "./format.js";

const MOST = 2 ** 31;

export class Slices {
  // node: shape and dimensions; change(slice) is called with axes and index as text for an address
  // recorded: how many indices along the first dimension a report holds
  constructor(node, slice, change, recorded = 24) {
    this.sizes = node.shape;
    this.names = (node.dimensions || []).map((name, at) => name ?? `dimension ${at}`);
    this.index = numbers(slice.index, this.sizes.length) || this.sizes.map(() => 0);
    this.axes = numbers(slice.axes, 2);
    this.change = change;
    this.recorded = recorded;
    this.soon = later(60, () => this.tell());
    this.labels = new Map();
    this.root = h("div", { class: "slices" });
  }

  name(axis) {
    return this.names[axis] || `dimension ${axis}`;
  }

  get slice() {
    return { axes: this.axes ? this.axes.join(",") : "", index: this.index.some(Boolean) ? this.index.join(",") : "" };
  }

  // Takes over where the slice of an address leads.
  move(slice) {
    this.index = numbers(slice.index, this.sizes.length) || this.sizes.map(() => 0);
    this.axes = numbers(slice.axes, 2);
    this.drawn = null;
  }

  tell() {
    this.change(this.slice);
  }

  // found: axes and others of a plane, which say what is shown and how it is labelled
  show(found) {
    const axes = found.axes.map((axis) => axis.dimension);
    const sliding = [...found.others, ...(found.clipped ? found.axes.filter((axis) => axis.stop - axis.start < axis.size) : [])];
    const key = JSON.stringify([axes, sliding.map((axis) => axis.dimension)]);
    if (this.drawn !== key) {
      this.drawn = key;
      this.labels.clear();
      this.root.replaceChildren(...this.controls(axes, sliding));
    }
    for (const axis of sliding) {
      const label = this.labels.get(axis.dimension);
      if (label) label.textContent = axes.includes(axis.dimension) ? `${count(axis.start)} to ${count(axis.stop - 1)}` : axis.labels !== null ? plain(axis.labels[0]) : String(axis.start);
    }
  }

  controls(axes, sliding) {
    const pickers = axes.length === 2 && this.sizes.length > 2 ? ["Down", "Across"].map((text, at) => this.picker(text, at, axes)) : [];
    return [...pickers, ...sliding.filter((axis) => axis.size > 1).map((axis) => this.slider(axis))];
  }

  picker(text, at, axes) {
    const select = h("select", { onchange: (event) => this.choose(at, Number(event.target.value), axes) },
      this.sizes.map((_, axis) => h("option", { value: axis }, this.name(axis))));
    select.value = String(axes[at]);
    select.disabled = report !== null;
    return h("label", { class: "pick" }, h("span", {}, text), select);
  }

  choose(at, axis, axes) {
    const next = [...axes];
    if (next[1 - at] === axis) next[1 - at] = next[at];
    next[at] = axis;
    this.axes = next;
    this.tell();
  }

  slider(axis) {
    const at = axis.dimension;
    const label = h("output", {}, "");
    const input = h("input", { type: "range", min: 0, max: Math.min(axis.size - 1, MOST), "aria-label": `Index along ${this.name(at)}` });
    if (report !== null) {
      input.step = Math.max(1, Math.ceil(axis.size / (this.recorded || 1)));
      input.disabled = !this.recorded || at !== 0 || this.sizes.length < 3;
    }
    input.value = this.index[at];
    input.addEventListener("input", () => {
      this.index[at] = Number(input.value);
      label.textContent = input.value;
      this.soon();
    });
    this.labels.set(at, label);
    return h("label", { class: "slide" }, h("span", {}, this.name(at)), input, label);
  }
}

function numbers(text, length) {
  if (!text || !/^\d+(,\d+)*$/.test(text)) return null;
  const found = text.split(",").map(Number);
  return found.length === length ? found : null;
}
