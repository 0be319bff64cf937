// Groups and arrays of a snapshot, and one of them: metadata, values, chunks.

import { get } from "./api.js";
import { chunkPanel } from "./chunks.js";
import { busy, fill, h, later } from "./dom.js";
import { bytes, count, name, plural, shape } from "./format.js";
import { fact } from "./history.js";
import { link, note, push, replace } from "./router.js";
import { firstArray, resolve } from "./state.js";
import { timeline } from "./timeline.js";
import { valuePanel } from "./values.js";
import { VirtualList } from "./virtual.js";

const ROW = 28;
const ICONS = { group: "▾", array: "▦", file: "▤" };

export async function dataView(root, place, signal, paint) {
  const page = new DataPage(root, signal);
  page.at = place.parts[0] || "branch:main";
  page.id = await resolve(page.at);
  const tree = await get("tree", { at: page.id });
  page.start(tree);
  paint(root);
  page.list.render();
  await page.open(pathOf(place, tree), place.query);
  return (next) => page.update(next);
}

function pathOf(place, tree) {
  const path = place.query.get("path");
  if (path !== null) return path.replace(/^\//, "");
  return firstArray(tree);
}

class DataPage {
  constructor(root, signal) {
    this.root = root;
    this.signal = signal;
    this.closed = new Set();
    this.words = "";
    this.path = "";
  }

  start(tree) {
    this.list = new VirtualList({
      label: "Groups and arrays", height: ROW, roles: ["tree", "treeitem"],
      draw: (row, element) => this.drawRow(this.rows[row], element),
      choose: (row) => this.go(this.rows[row].path),
      open: (row) => this.toggle(this.rows[row].path),
    });
    this.list.element.addEventListener("keydown", (event) => this.key(event));
    this.node = h("div", { class: "node", "aria-live": "off" });
    this.time = timeline(this.id, (at) => this.travel(at));
    this.hint = h("p", { class: "hint", role: "status" });
    this.root.append(this.time.root,
      h("section", { class: "panel tree", "aria-label": "Hierarchy" },
        h("div", { class: "bar" },
          h("label", { class: "grow" }, h("span", { class: "sr" }, "Filter paths"),
            h("input", { type: "search", placeholder: "Filter paths", autocomplete: "off", oninput: later(100, (event) => this.filter(event.target.value)) }))),
        this.list.element, this.hint),
      this.node);
    this.take(tree);
  }

  take(tree) {
    this.tree = tree;
    this.filter(this.words);
  }

  filter(words) {
    this.words = words.trim().toLowerCase();
    const rows = this.tree.rows;
    if (this.words) this.rows = rows.filter((row) => row.path.toLowerCase().includes(this.words));
    else this.rows = rows.filter((row) => !this.isHidden(row.path));
    this.list.selected = this.rows.findIndex((row) => row.path === this.path);
    this.list.setLength(this.rows.length);
    const arrays = rows.filter((row) => row.kind === "array").length;
    const all = `${plural(arrays, "array")}, ${plural(rows.length - arrays, "group")}${this.tree.more ? `, ${count(this.tree.more)} more nodes are not listed` : ""}`;
    this.hint.textContent = this.words ? `${count(this.rows.length)} found · ${all}` : all;
  }

  isHidden(path) {
    if (!this.closed.size) return false;
    for (let at = path.lastIndexOf("/"); at >= 0; at = path.lastIndexOf("/", at - 1)) {
      if (this.closed.has(path.slice(0, at))) return true;
      if (at === 0) break;
    }
    return this.closed.has("") && path !== "";
  }

  toggle(path) {
    if (this.closed.has(path)) this.closed.delete(path);
    else this.closed.add(path);
    this.filter(this.words);
  }

  key(event) {
    const row = this.rows[this.list.selected];
    if (!row || row.kind !== "group") return;
    const open = !this.closed.has(row.path);
    if ((event.key === "ArrowRight" && !open) || (event.key === "ArrowLeft" && open)) this.toggle(row.path);
  }

  drawRow(row, element) {
    const depth = this.words || !row.path ? 0 : row.path.split("/").length;
    element.style.setProperty("--depth", depth);
    const group = row.kind === "group";
    element.setAttribute("aria-level", depth + 1);
    if (group && !this.words) element.setAttribute("aria-expanded", !this.closed.has(row.path));
    else element.removeAttribute("aria-expanded");
    const icon = group && this.closed.has(row.path) ? "▸" : ICONS[row.kind];
    fill(element,
      group ? h("span", { class: "fold", "aria-hidden": "true", onclick: (event) => { event.stopPropagation(); this.toggle(row.path); } }, icon)
        : h("span", { class: `icon ${row.kind}`, "aria-hidden": "true" }, icon),
      h("span", { class: "text", title: `/${row.path}` }, this.words ? `/${row.path}` : name(row.path)),
      row.shape && h("span", { class: "hint" }, shape(row.shape)),
      row.broken && h("span", { class: "chip warn" }, "broken"));
  }

  address(path, query = {}) {
    return link("data", [this.at], { path: `/${path}`, ...query });
  }

  go(path) {
    if (path === this.path) return;
    push(this.address(path));
    this.open(path, new URLSearchParams());
  }

  async travel(at) {
    this.at = at;
    replace(link("data", [at], { path: `/${this.path}`, ...this.slice }));
  }

  update(next) {
    if (next.view !== "data") return false;
    this.at = next.parts[0] || "branch:main";
    this.moveTo(this.at, next);
    return true;
  }

  async moveTo(at, next) {
    try {
      const id = await resolve(at);
      const tree = await get("tree", { at: id });
      if (this.signal.aborted || this.at !== at) return;
      const moved = id !== this.id;
      this.id = id;
      this.take(tree);
      if (moved) this.time.show(id);
      await this.open(pathOf(next, tree), next.query, true);
    } catch (error) {
      fill(this.node, problemText(error));
    }
  }

  async open(path, query, gently = false) {
    this.path = path;
    this.slice = pick(query);
    if (!this.tree.rows.length) {
      this.panels = null;
      fill(this.node, h("section", { class: "panel" }, h("h2", {}, "An empty snapshot"), h("p", { class: "hint" }, "It has no group and no array yet.")));
      return;
    }
    const row = this.rows.findIndex((each) => each.path === path);
    if (row >= 0 && row !== this.list.selected) this.list.pick(row, true);
    const at = this.id;
    try {
      const found = await busy(this.node, get("node", { at, path }));
      if (this.path !== path || this.id !== at || this.signal.aborted) return;
      if (gently && this.panels && this.panels.path === path && found.kind === "array" && !found.broken) {
        fill(this.panels.head, heading(found, this));
        fill(this.panels.facts, facts(found));
        this.panels.values?.show(at, this.slice);
        this.panels.chunks?.show(at, this.slice);
      } else {
        this.draw(found);
      }
    } catch (error) {
      this.panels = null;
      if (this.path === path) fill(this.node, problemText(error));
    }
  }

  draw(found) {
    const array = found.kind === "array" && !found.broken;
    const head = h("div", { class: "node-head" }, heading(found, this));
    const facts_ = h("section", { class: "panel", "aria-label": "Metadata" }, facts(found));
    const values = array ? valuePanel(this.id, found, this.slice, (slice) => this.sliced(slice)) : null;
    const chunks = array ? chunkPanel(this.id, found, this.slice, (slice) => this.sliced(slice)) : null;
    this.panels = { path: found.path, head, facts: facts_, values, chunks };
    fill(this.node, head, values && values.root, chunks && chunks.root, !array && children(this, found), facts_);
  }

  sliced(slice) {
    this.slice = { ...this.slice, ...slice };
    note(this.address(this.path, this.slice));
  }
}

function pick(query) {
  return Object.fromEntries(["axes", "index", "table", "chunks", "grid", "cell"].map((part) => [part, query.get(part) || ""]));
}

function problemText(error) {
  return h("section", { class: "panel problem", role: "alert" }, h("h2", {}, error.type || "Error"), h("p", { class: "prose" }, error.message));
}

function heading(found, page) {
  const parts = found.path ? found.path.split("/") : [];
  const crumbs = parts.map((part, at) => [h("span", { class: "slash", "aria-hidden": "true" }, "/"),
    h("a", { href: page.address(parts.slice(0, at + 1).join("/")) }, part)]);
  const lead = found.kind === "array" && found.shape
    ? [h("span", { class: "chip strong" }, shape(found.shape)), h("span", { class: "chip strong" }, found.dtype), found.nbytes !== null && h("span", { class: "chip" }, bytes(found.nbytes))]
    : [h("span", { class: "chip strong" }, found.kind)];
  return [h("h1", { class: "crumbs" }, h("a", { href: page.address("") }, "root"), crumbs), h("div", { class: "chips" }, lead)];
}

function facts(found) {
  const codecs = (found.codecs || []).map((codec) => codec.name || codec.id || JSON.stringify(codec));
  const rows = found.kind === "array" && found.shape ? [
    fact("Dimensions", (found.dimensions || found.shape.map((_, at) => `dimension ${at}`)).map((each, at) => `${each ?? `dimension ${at}`}: ${count(found.shape[at])}`).join(", ") || "none"),
    fact("Chunks", found.shape.length ? `${found.chunks ? shape(found.chunks) : "of varying shape"}, in a grid of ${shape(found.grid)}${found.parts ? `; shards with parts of ${shape(found.parts)}` : ""}` : "one"),
    found.dtype_details !== null && fact("Data type", `${found.dtype} ${text(found.dtype_details)}`),
    fact("Codecs", codecs.map((each) => h("span", { class: "chip" }, each)), codecs.length ? "" : "none"),
    fact("Fill value", text(found.fill_value ?? null) || "an empty string"),
    fact("Zarr format", String(found.zarr_format)),
    fact("Manifests", `${plural(found.layers, "layer")} with ${plural(found.references, "reference")}`),
  ] : [];
  const attributes = Object.entries(found.attributes || {});
  return [
    found.broken && h("div", { class: "problem", role: "alert" }, h("h2", {}, "The metadata cannot be used"), h("p", { class: "prose" }, found.broken)),
    rows.length > 0 && [h("h2", {}, "Layout"), h("dl", { class: "facts" }, rows)],
    h("h2", {}, "Attributes"),
    attributes.length ? h("dl", { class: "facts" }, attributes.slice(0, 200).map(([key, value]) => fact(key, text(value)))) : h("p", { class: "hint" }, "none"),
    Object.entries(found.documents).map(([key, value]) => h("details", {}, h("summary", {}, key), h("pre", { tabindex: "0" }, value))),
  ];
}

function text(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 1);
}

function children(page, found) {
  const below = found.path ? `${found.path}/` : "";
  const rows = page.tree.rows.filter((row) => row.path !== found.path && row.path.startsWith(below) && !row.path.slice(below.length).includes("/"));
  if (!rows.length) return null;
  return h("section", { class: "panel", "aria-label": "Members" }, h("h2", {}, "Members"),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table of members" },
      h("table", {}, h("thead", {}, h("tr", {}, ["Name", "Kind", "Shape", "Data type", "Dimensions"].map((each) => h("th", { scope: "col" }, each)))),
        h("tbody", {}, rows.slice(0, 500).map((row) => h("tr", {},
          h("td", {}, h("a", { href: page.address(row.path) }, name(row.path))), h("td", {}, row.kind),
          h("td", {}, row.shape ? shape(row.shape) : ""), h("td", {}, row.dtype || ""),
          h("td", {}, (row.dimensions || []).map((each) => each ?? "–").join(", "))))))),
    rows.length > 500 && h("p", { class: "hint" }, `and ${count(rows.length - 500)} more`));
}
