// The values of an array: a plane, a line, or a table.

import { get } from "./api.js";
import { busy, fill, h, plain } from "./dom.js";
import { count, isNear, number, precise } from "./format.js";
import { extent, Plane, tick } from "./plane.js";
import { Slices } from "./slices.js";

// recorded: how many indices along the first dimension a report holds
export function valuePanel(at, node, slice, sliced, recorded) {
  const panel = new ValuePanel(at, node, slice, sliced, recorded);
  panel.load();
  return panel;
}

class ValuePanel {
  constructor(at, node, slice, sliced, recorded) {
    this.at = at;
    this.node = node;
    this.sliced = sliced;
    this.slices = new Slices(node, slice, (next) => { sliced(next); this.load(); }, recorded);
    this.body = h("div", { class: "values-body" }, h("p", { class: "hint" }, "Reading …"));
    this.numbers = h("p", { class: "hint numbers" });
    this.asTable = h("button", { type: "button", class: "quiet", "aria-pressed": String(slice.table === "1"), onclick: () => this.turn(!this.turned) }, "Table");
    this.root = h("section", { class: "panel values", "aria-label": "Values" },
      h("div", { class: "panel-head" }, h("h2", {}, "Values"), this.numbers, this.asTable), this.slices.root, this.body);
    this.turned = slice.table === "1";
    this.run = 0;
  }

  show(at, slice) {
    this.at = at;
    this.slices.move(slice);
    this.turned = slice.table === "1";
    this.asTable.setAttribute("aria-pressed", this.turned);
    this.load();
  }

  turn(turned) {
    this.turned = turned;
    this.asTable.setAttribute("aria-pressed", turned);
    this.sliced({ table: turned ? "1" : "" });
    if (this.found) this.draw(this.found);
  }

  // Colours mean the same in every slice that is looked at: the range only grows.
  wider({ values, units }) {
    const known = this.range && this.range.units === units ? [this.range] : [];
    const all = [...known, extent(values.values)].filter(Boolean);
    if (!all.length) return null;
    this.range = Object.assign([Math.min(...all.map(([low]) => low)), Math.max(...all.map(([, high]) => high))], { units });
    return this.range;
  }

  async load() {
    const run = (this.run += 1);
    try {
      const found = await busy(this.body, get("preview", { at: this.at, path: this.node.path, ...this.slices.slice }));
      if (run !== this.run) return;
      this.found = found;
      this.slices.show(found);
      this.draw(found);
    } catch (error) {
      if (run !== this.run) return;
      this.plane = this.found = null;
      this.asTable.hidden = true;
      this.numbers.textContent = "";
      fill(this.body, h("div", { class: "problem", role: "alert" }, h("h3", {}, error.type || "Error"), h("p", { class: "prose" }, error.message)));
    }
  }

  draw(found) {
    const { summary } = found;
    this.numbers.textContent = summary === null || summary.count <= 1 ? "" : plain([...inNumbers(summary, found.units), found.clipped && " · a part of it", drawn(found.axes)].filter(Boolean).join(""));
    const empty = this.node.shape.includes(0);
    const pictured = !empty && (found.kind === "image" || found.kind === "line");
    this.asTable.hidden = !pictured;
    if (empty) {
      this.plane = null;
      fill(this.body, h("p", { class: "hint" }, "An array without items."));
      return;
    }
    if (!pictured || this.turned) {
      this.plane = null;
      fill(this.body, table(found));
      return;
    }
    if (!this.plane || this.kind !== found.kind) {
      this.kind = found.kind;
      this.plane = new Plane({ label: "Values" });
      fill(this.body, this.plane.root);
    }
    this.plane.set(found, this.wider(found), `${found.title || found.path}, ${this.numbers.textContent}`);
  }
}

function inNumbers({ minimum, maximum, mean, missing, infinite, count: all }, units) {
  const text = isNear(minimum, maximum) ? precise : number;
  return [
    minimum === null ? (infinite ? "no finite values here" : "no values here") : `${text(minimum)} to ${text(maximum)}${units ? ` ${units}` : ""}, mean ${text(mean)}`,
    missing > 0 && missing < all && `, ${count(missing)} missing`, infinite > 0 && `, ${count(infinite)} infinite`,
  ];
}

// What a picture leaves out of what its numbers are about.
export function drawn(axes) {
  const parts = axes.filter((axis) => axis.step > 1).map((axis) => `one of ${count(axis.step)} along ${axis.name}`);
  return parts.length > 0 && ` · drawn is ${parts.join(", ")}`;
}

// How much of what is looked at a table has: it ends early, and every how many-th item of a large array is read.
function extentOf(rows, [first, second]) {
  const sides = [[first, rows.length], ...(second ? [[second, (rows[0] || []).length]] : [])];
  if (sides.every(([axis, shown]) => shown === axis.size)) return null;
  const parts = sides.map(([axis, shown]) => `${count(shown)} of ${count(axis.size)} along ${axis.name}${axis.step > 1 ? `, one of ${count(axis.step)}` : ""}`);
  return h("p", { class: "hint" }, `A part: ${parts.join("; ")}`);
}

export function table(found) {
  if (found.kind === "scalar" || found.axes.length === 0) return h("p", { class: "scalar" }, found.table[0][0] || "no value", found.units && ` ${found.units}`);
  const [first, second] = found.axes;
  const rows = second ? found.table : (found.table[0] || []).map((item) => [item]);
  const head = second ? (rows[0] || []).map((_, at) => h("th", { scope: "col" }, tick(second, at))) : h("th", { scope: "col", class: found.values === null ? "words" : "" }, found.units || "value");
  return [extentOf(rows, found.axes), h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table of values" },
    h("table", { class: "numbers-table" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, second ? `${first.name} \\ ${second.name}` : first.name), head)),
      h("tbody", {}, rows.map((row, at) => h("tr", {}, h("th", { scope: "row" }, tick(first, at)), row.map((item) => h("td", { class: found.values === null ? "words" : "" }, item)))))))];
}
