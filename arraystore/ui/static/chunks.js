// The chunk map of an array, coloured by what one wants to know.

import { get } from "./api.js";
import { CATEGORIES, rising, shade } from "./colours.js";
import { colour, fill, h } from "./dom.js";
import { ago, bytes, count, plural, when } from "./format.js";
import { cellsOf, Grid, placeOf } from "./grid.js";
import { Slices } from "./slices.js";

const KINDS = ["no chunk", "in a pack", "in a manifest", "virtual", "several kinds"];
const MODES = { kind: "Kind", changed: "Changed here", time: "Age", nbytes: "Size", pack: "Pack" };

function modeOf(slice) {
  return Object.hasOwn(MODES, slice.chunks) ? slice.chunks : "kind";
}

// slice: chunks (the mode), grid and cell (axes and index of the map); sliced is called with what changes of these
export function chunkPanel(at, node, slice, sliced) {
  const panel = new ChunkPanel(at, node, slice, sliced);
  panel.load();
  return panel;
}

class ChunkPanel {
  constructor(at, node, slice, sliced) {
    this.at = at;
    this.node = node;
    this.sliced = sliced;
    this.mode = modeOf(slice);
    this.run = 0;
    this.slices = new Slices({ shape: node.grid, dimensions: node.dimensions }, { axes: slice.grid, index: slice.cell },
      ({ axes, index }) => { sliced({ grid: axes, cell: index }); this.load(); }, 0);
    this.body = h("div", {}, h("p", { class: "hint" }, "Reading manifests …"));
    this.numbers = h("p", { class: "hint numbers" });
    this.legend = h("div", { class: "legend" });
    const modes = h("div", { class: "segments", role: "group", "aria-label": "Colour chunks by" },
      Object.entries(MODES).map(([mode, text]) => h("button", { type: "button", "data-mode": mode, "aria-pressed": String(mode === this.mode), onclick: () => { sliced({ chunks: mode === "kind" ? "" : mode }); this.turn(mode); } }, text)));
    this.modes = modes;
    this.root = h("section", { class: "panel chunks", "aria-label": "Chunks" },
      h("div", { class: "panel-head" }, h("h2", {}, "Chunks"), this.numbers, modes), this.slices.root, this.body, this.legend);
  }

  show(at, slice) {
    this.at = at;
    this.slices.move({ axes: slice.grid, index: slice.cell });
    this.map = null;
    this.turn(modeOf(slice));
    this.load();
  }

  turn(mode) {
    this.mode = mode;
    for (const button of this.modes.children) button.setAttribute("aria-pressed", button.dataset.mode === mode);
    if (this.map) this.draw();
  }

  async load() {
    const run = (this.run += 1);
    try {
      const map = await get("chunks", { at: this.at, path: this.node.path, ...this.slices.slice });
      if (run !== this.run) return;
      this.map = map;
      this.slide(map);
      if (!this.grid || !this.grid.root.isConnected) {
        this.grid = new Grid({ label: "Chunk map", tint: (cell) => this.tint(cell), tell: (cell) => this.tell(cell) });
        fill(this.body, this.grid.root);
      }
      this.draw();
    } catch (error) {
      if (run !== this.run) return;
      this.map = null;
      this.numbers.textContent = "";
      fill(this.body, h("div", { class: "problem", role: "alert" }, h("h3", {}, error.type || "Error"), h("p", { class: "prose" }, error.message)));
      fill(this.legend);
    }
  }

  slide({ picture }) {
    const axis = (dimension) => ({ dimension, size: picture.grid[dimension], start: picture.index[dimension], stop: picture.index[dimension] + 1, labels: null });
    const shown = picture.axes || [];
    const others = picture.grid.map((_, at) => at).filter((at) => !shown.includes(at) && picture.axes !== null);
    this.slices.show({ axes: shown.map(axis), others: others.map(axis), clipped: false });
  }

  draw() {
    const { picture, chunks, total, changed } = this.map;
    this.spans = { time: span(this.map.time.values), nbytes: span(this.map.nbytes.values.map((size, cell) => size / (this.map.count.values[cell] || 1))) };
    const wrote = changed === null ? null : changed.values.reduce((sum, each) => sum + each, 0);
    this.numbers.textContent = `${count(chunks)} of ${count(total)} initialised${wrote === null ? "" : `, ${count(wrote)} changed by this commit`}`;
    this.grid.set(picture.rows, picture.columns, cellsOf(picture));
    this.grid.canvas.setAttribute("aria-label", `Chunk map: ${this.numbers.textContent}`);
    fill(this.legend, this.describe(), (picture.step[0] > 1 || picture.step[1] > 1) && h("span", { class: "hint" }, `a cell is ${picture.step.map(count).join(" × ")} chunks`));
  }

  tint(cell) {
    const { kind, count: counts, time, nbytes, pack, changed } = this.map;
    const none = colour("--nothing");
    if (this.mode === "changed") return changed !== null && changed.values[cell] ? colour("--changed") : counts.values[cell] ? colour("--dim-chunk") : none;
    if (!counts.values[cell]) return none;
    if (this.mode === "kind") return kindColour(kind.values[cell]);
    if (this.mode === "pack") return pack.values[cell] >= 0 ? CATEGORIES[pack.values[cell] % CATEGORIES.length] : colour("--dim-chunk");
    const [low, high] = this.spans[this.mode];
    const value = this.mode === "time" ? time.values[cell] : nbytes.values[cell] / counts.values[cell];
    return shade(rising, high > low ? 0.08 + 0.9 * ((value - low) / (high - low)) : 0.5);
  }

  tell(cell) {
    const { picture, kind, count: counts, nbytes, time, pack, packs, changed } = this.map;
    const number = counts.values[cell];
    if (!number) return `${placeOf(picture, cell)}: not written${changed !== null && changed.values[cell] ? ", deleted by this commit" : ""}`;
    const where = pack.values[cell] >= 0 ? ` ${packs[pack.values[cell]]}` : "";
    return `${placeOf(picture, cell)}: ${number > 1 ? `${plural(number, "chunk")}, ` : ""}${bytes(nbytes.values[cell])}, ${KINDS[kind.values[cell]]}${where}, written ${when(time.values[cell])}${changed !== null && changed.values[cell] ? ", changed by this commit" : ""}`;
  }

  describe() {
    const { kind, packs, changed } = this.map;
    if (this.mode === "kind") return [...new Set(kind.values)].sort().map((each) => key(each ? kindColour(each) : colour("--nothing"), KINDS[each]));
    if (this.mode === "changed") return changed === null ? h("span", { class: "hint" }, "The snapshot before is not known.") : [key(colour("--changed"), "changed by this commit"), key(colour("--dim-chunk"), "older"), key(colour("--nothing"), "no chunk")];
    if (this.mode === "pack") return h("span", { class: "hint" }, `${plural(packs.length, "pack")}; neighbours of one colour are read together`);
    const [low, high] = this.spans[this.mode];
    const text = this.mode === "time" ? [ago(low), ago(high)] : [bytes(Math.round(low)), bytes(Math.round(high))];
    return [h("span", {}, text[0]), h("span", { class: "ramp", "aria-hidden": "true" }), h("span", {}, text[1]), this.mode === "nbytes" && h("span", { class: "hint" }, "a chunk, encoded")];
  }
}

export function kindColour(kind) {
  return colour(["--nothing", "--packed", "--inlined", "--virtual", "--mixed"][kind]);
}

export function key(paint, text) {
  const swatch = h("i", { class: "swatch", "aria-hidden": "true" });
  swatch.style.background = paint;
  return h("span", { class: "key" }, swatch, text);
}

function span(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!(value > 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 0];
}
