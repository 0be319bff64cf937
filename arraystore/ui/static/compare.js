// Differences of any two snapshots: nodes, documents, chunks, values.

import { get, ViewError } from "./api.js";
import { busy, colour, fill, h, plain } from "./dom.js";
import { count, isNear, number, plural, precise, short, when } from "./format.js";
import { cellsOf, Grid, placeOf } from "./grid.js";
import { extent, Plane, tick } from "./plane.js";
import { link, note, push } from "./router.js";
import { Slices } from "./slices.js";
import { newestHistory, overview, resolve } from "./state.js";
import { drawn, valuePanel } from "./values.js";

const KINDS = [["chunks", "▦", "Chunks"], ["updated", "~", "Metadata"], ["created", "+", "New"], ["deleted", "−", "Deleted"], ["moved", "→", "Moved"]];
const MOST_CHOICES = 200;

export async function compareView(root, place, signal, paint) {
  const [refs, history] = await Promise.all([overview(), newestHistory()]);
  const newest = history.ids[0];
  const to = place.query.get("to") || newest;
  const parent = history.parents[history.ids.indexOf(await resolve(to))];
  const from = place.query.get("from") || (parent >= 0 ? history.ids[parent] : to);
  const page = new ComparePage(root, signal, refs, history, from, to);
  page.slice = { axes: place.query.get("axes") || "", index: place.query.get("index") || "" };
  page.start();
  paint(root);
  try {
    await page.load(place.query.get("path"));
  } catch (error) {
    if (!(error instanceof ViewError)) throw error;
    fill(page.node, problemText(error));  // with the pickers, by which one comes to two others
  }
  return null;
}

class ComparePage {
  constructor(root, signal, refs, history, from, to) {
    Object.assign(this, { root, signal, refs, history, from, to });
  }

  start() {
    this.list = h("div", { class: "scroll changes-all", tabindex: "-1" });
    this.node = h("div", { class: "node" });
    const swap = h("button", { type: "button", class: "step", "aria-label": "Swap the two", onclick: () => this.turn(this.to, this.from) }, "⇄");
    this.root.append(
      h("section", { class: "panel pickers", "aria-label": "Snapshots" }, h("h1", { class: "sr" }, "Compare"),
        this.picker("Before", this.from, (at) => this.turn(at, this.to)), swap,
        this.picker("After", this.to, (at) => this.turn(this.from, at))),
      h("section", { class: "panel tree", "aria-label": "Differences" }, this.list),
      this.node);
  }

  picker(text, value, choose) {
    const { ids, subjects, times } = this.history;
    const known = [...this.refs.branches.map((ref) => [`branch:${ref.name}`, `branch ${ref.name}`]), ...this.refs.tags.map((ref) => [`tag:${ref.name}`, `tag ${ref.name}`])];
    const commits = ids.slice(0, MOST_CHOICES).map((id, at) => [id, `${when(times[at]).slice(0, 10)} ${subjects[at].slice(0, 60)} (${short(id)})`]);
    const select = h("select", { onchange: (event) => choose(event.target.value) },
      ![...known, ...commits].some(([id]) => id === value) && h("option", { value }, value),
      h("optgroup", { label: "Branches and tags" }, known.map(([id, label]) => h("option", { value: id }, label))),
      h("optgroup", { label: "Newest snapshots" }, commits.map(([id, label]) => h("option", { value: id }, label))));
    select.value = value;
    return h("label", { class: "pick grow" }, h("span", {}, text), select);
  }

  turn(from, to) {
    window.location.hash = link("compare", [], { from, to, path: this.path === undefined ? null : `/${this.path}` });
  }

  address() {
    return link("compare", [], { from: this.from, to: this.to, path: `/${this.path}`, ...this.slice });
  }

  async load(wanted) {
    const [from, to] = await Promise.all([resolve(this.from), resolve(this.to)]);
    this.ids = { from, to };
    const found = await get("diff", { from, to });
    if (this.signal.aborted) return;
    this.found = found;
    const rows = KINDS.flatMap(([kind]) => found[kind].map((row) => ({ ...row, what: kind })));
    fill(this.list, KINDS.filter(([kind]) => found.counts[kind]).map(([kind, sign, title]) => this.section(kind, sign, title)),
      !rows.length && h("p", { class: "hint" }, "These two snapshots are equal."));
    const path = wanted === null ? best(found) : wanted.replace(/^\//, "");
    if (path !== null) await this.open(path);
  }

  section(kind, sign, title) {
    const rows = this.found[kind];
    return h("section", {}, h("h2", {}, `${title} (${count(this.found.counts[kind])})`),
      h("ul", { class: "change-list" }, rows.slice(0, 500).map((row) => h("li", { class: `change ${kind}` },
        h("span", { class: "sign", "aria-hidden": "true" }, sign),
        h("button", { type: "button", class: "link", "data-path": row.path, onclick: () => this.open(row.path, push) }, row.before === null ? `/${row.path}` : `/${row.before} → /${row.path}`),
        row.chunks > 0 && h("span", { class: "hint" }, plural(row.chunks, "chunk")))),
      rows.length > 500 && h("li", { class: "hint" }, `and ${count(this.found.counts[kind] - 500)} more`)));
  }

  async open(path, tell = note) {
    if (this.path !== undefined && this.path !== path) this.slice = { axes: "", index: "" };
    this.path = path;
    tell(this.address());
    for (const button of this.list.querySelectorAll("button.link")) {
      if (button.dataset.path === path) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
    try {
      const found = await busy(this.node, get("diff-node", { ...this.ids, path }));
      const at = found.side === "before" ? this.ids.from : this.ids.to;
      if (this.path !== path || this.signal.aborted) return;
      fill(this.node, h("div", { class: "node-head" }, h("h1", { class: "crumbs" }, `/${found.path}`),
        h("div", { class: "chips" }, h("span", { class: "chip strong" }, found.kind), found.chunks > 0 && h("span", { class: "chip" }, differ(found.chunks, "chunk")),
          found.kind === "array" && h("a", { class: "button small", href: link("data", [at], { path: `/${found.path}` }) }, "Open"))),
        found.kind === "array" && (found.side === "both" ? this.values(found) : this.alone(found, at)), found.picture !== null && found.chunks > 0 && changedMap(found), documents(found));
    } catch (error) {
      if (this.path === path) fill(this.node, problemText(error));
    }
  }

  // The values of an array of one side only: there is nothing to subtract.
  alone(found, at) {
    const slot = h("div", {});
    get("node", { at, path: found.path }).then((node) => {
      if (node.shape === null) throw new Error("The metadata of this array cannot be used.");
      if (this.path === found.path) fill(slot, valuePanel(at, node, this.slice, (slice) => { Object.assign(this.slice, slice); note(this.address()); }, 0).root);
    }).catch((error) => fill(slot, h("p", { class: "hint" }, error.message)));
    return slot;
  }

  values(found) {
    const body = h("div", {}, h("p", { class: "hint" }, "Reading …"));
    const numbers = h("p", { class: "hint numbers" });
    const slot = h("div", {});
    const panel = h("section", { class: "panel values", "aria-label": "Values" }, h("div", { class: "panel-head" }, h("h2", {}, "Values"), numbers), slot, body);
    this.showValues(found, { body, numbers, slot }).catch((error) => fill(body, h("p", { class: "hint" }, error.message)));
    return panel;
  }

  async showValues(found, { body, numbers, slot }) {
    const node = await get("node", { at: this.ids.to, path: found.path });
    if (node.shape === null) throw new Error("The metadata of this array cannot be used.");
    if (this.path !== found.path) return;
    if (!this.slice.index && found.index.some(Boolean)) this.slice.index = found.index.join(",");
    const slices = new Slices(node, this.slice, (slice) => { this.slice = slice; note(this.address()); read(); }, 0);
    fill(slot, slices.root);
    let planes = null;
    let run = 0;
    const read = async () => {
      const mine = (run += 1);
      let values;
      try {
        values = await busy(body, get("diff-values", { ...this.ids, path: found.path, ...slices.slice }));
      } catch (error) {
        if (mine === run) fill(body, h("p", { class: "hint" }, error.message));
        planes = null;
        return;
      }
      if (mine !== run) return;
      slices.show(values);
      const difference = values.tables === null ? values.summaries[2] : null;
      const text = values.differing === 0 ? "equal here" : difference === null ? `${differ(values.differing, "item")} here` : difference.minimum === null ? `${plural(values.differing, "item")} in one of the two only` : !difference.minimum && !difference.maximum ? `${differ(values.differing, "item")} here, none of those that are drawn` : `${differ(values.differing, "item")} here: ${number(difference.minimum)} to ${number(difference.maximum)}${values.units ? ` ${values.units}` : ""}, mean ${number(difference.mean)}`;
      numbers.textContent = plain([text, values.clipped && " · a part of it", values.tables === null && drawn(values.axes)].filter(Boolean).join(""));
      if (values.tables !== null) {
        fill(body, twoTables(values));
        planes = null;
        return;
      }
      if (values.kind !== "image" && values.kind !== "line") {
        const [old, now] = [values.before.values[0], values.after.values[0]];
        const digits = isNear(Math.min(old, now), Math.max(old, now)) ? precise : number;
        fill(body, h("p", { class: "scalar" }, `${digits(old)} → ${digits(now)}`));
        return;
      }
      if (planes === null) {
        planes = ["Before", "After", "After minus before"].map((label, at) => new Plane({ label, diverging: at === 2, height: at === 2 ? 400 : 220 }));
        fill(body, h("div", { class: "triple" }, planes.map((plane, at) => h("figure", { class: at === 2 ? "main-figure" : "" }, h("figcaption", {}, ["Before", "After", "After minus before"][at]), plane.root))));
      }
      const known = [values.before, values.after].map((part) => extent(part.values)).filter(Boolean);
      const range = known.length ? [Math.min(...known.map(([low]) => low)), Math.max(...known.map(([, high]) => high))] : null;
      for (const [at, part] of [values.before, values.after, values.difference].entries()) {
        planes[at].set({ ...values, values: part }, at < 2 ? range : null, `${["Before", "After", "Difference"][at]}: ${numbers.textContent}`);
      }
    };
    await read();
  }
}

function problemText(error) {
  return h("section", { class: "panel problem", role: "alert" }, h("h2", {}, error.type || "Error"), h("p", { class: "prose" }, error.message));
}

// Items of anything but numbers, before and after; those that differ are marked.
function twoTables({ tables, axes }) {
  const figure = (title, mine, other) => {
    const rows = axes.length < 2 ? (mine[0] || []).map((_, at) => [at, 0, at]) : mine.map((_, at) => [at, at, 0]);
    const cells = ([, row, column]) => (axes.length < 2 ? [mine[0][column]] : mine[row]).map((item, at) =>
      h("td", { class: item === (other[row] || [])[axes.length < 2 ? column : at] ? "words" : "words differs" }, item));
    return h("figure", {}, h("figcaption", {}, title), h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title },
      h("table", { class: "numbers-table" }, h("tbody", {}, rows.map((row) => h("tr", {}, axes.length > 0 && h("th", { scope: "row" }, tick(axes[0], row[0])), cells(row)))))));
  };
  return h("div", { class: "triple" }, figure("Before", tables[0], tables[1]), figure("After", tables[1], tables[0]));
}

// What people most likely want to see first: the array of most dimensions whose chunks differ.
function best(found) {
  const rows = [...found.chunks].sort((a, b) => b.chunks - a.chunks);
  const first = rows[0] || found.updated[0] || found.created[0] || found.moved[0] || found.deleted[0];
  return first ? first.path : null;
}

function differ(number, what) {
  return `${plural(number, what)} ${number === 1 ? "differs" : "differ"}`;
}

function changedMap(found) {
  const { picture, changed } = found;
  const grid = new Grid({
    label: differ(found.chunks, "chunk"),
    tint: (cell) => colour(changed.values[cell] ? "--changed" : "--dim-chunk"),
    tell: (cell) => `${placeOf(picture, cell)}: ${changed.values[cell] ? (changed.values[cell] > 1 ? differ(changed.values[cell], "chunk") : "differs") : "equal"}`,
  });
  grid.set(picture.rows, picture.columns, cellsOf(picture));
  return h("section", { class: "panel", "aria-label": "Chunks that differ" }, h("div", { class: "panel-head" }, h("h2", {}, "Chunks that differ")), grid.root);
}

function documents(found) {
  if (!found.lines.length) return h("section", { class: "panel", "aria-label": "Metadata" }, h("h2", {}, "Metadata"), h("p", { class: "hint" }, "equal"));
  const kinds = { "+": "added", "-": "removed", "@": "place" };
  return h("section", { class: "panel", "aria-label": "Metadata" }, h("h2", {}, "Metadata"),
    h("pre", { class: "diff", tabindex: "0" }, found.lines.map((line) => h("span", { class: /^(\+\+\+|---) /.test(line) ? "file" : kinds[line[0]] || "" }, `${line}\n`))));
}
