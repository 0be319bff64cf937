// The history of all branches as a graph, with search, and one snapshot beside it.

import { get } from "./api.js";
import { CATEGORIES } from "./colours.js";
import { colour, fill, h, later, sized } from "./dom.js";
import { ago, count, plural, short, when } from "./format.js";
import { bow, Edges, line, ROW } from "./graph.js";
import { link, note } from "./router.js";
import { chain, newestHistory, overview, prepareData, wholeHistory } from "./state.js";
import { VirtualList } from "./virtual.js";

const LANE = 16;
const MOST_LANES = 14;

export async function historyView(root, place, signal, paint) {
  const view = new HistoryPage(root, place, signal);
  const [first, refs] = await Promise.all([newestHistory(), overview()]);
  view.start(first, refs);
  paint(root);
  view.list.render();
  view.select(place.query.get("id") || first.ids[0]);
  const whole = first.complete ? Promise.resolve() : wholeHistory().then((all) => !signal.aborted && view.take(all)).catch((error) => view.tell(error.message));
  whole.then(() => setTimeout(() => prepareData("branch:main"), 200));
  return (next) => {
    if (next.view !== "history") return false;
    view.follow(next.query);
    return true;
  };
}

class HistoryPage {
  constructor(root, place, signal) {
    this.root = root;
    this.signal = signal;
    this.words = place.query.get("q") || "";
    this.branch = place.query.get("branch") || "";
    this.chosen = null;
    this.place = new Map();
  }

  start(history, refs) {
    [this.first] = refs.branches;
    this.canvas = h("canvas", { class: "graph", "aria-hidden": "true" });
    this.list = new VirtualList({
      label: "Snapshots, newest first", height: ROW,
      draw: (row, element) => this.drawRow(row, element),
      choose: (row) => this.choose(this.rows[row]),
      open: (row) => { window.location.hash = link("data", [this.history.ids[this.rows[row]]]); },
      scrolled: (first, last) => this.drawGraph(first, last),
    });
    this.list.element.prepend(this.canvas);
    this.status = h("p", { class: "hint", role: "status" });
    this.details = h("aside", { class: "panel details", "aria-label": "Snapshot" });
    const branches = h("select", { id: "branch", onchange: (event) => this.filter(this.words, event.target.value) },
      h("option", { value: "" }, "All branches and tags"),
      refs.branches.map((ref) => h("option", { value: `branch ${ref.name}` }, ref.name)),
      refs.tags.map((ref) => h("option", { value: `tag ${ref.name}` }, `tag ${ref.name}`)));
    branches.value = this.branch;
    this.branches = branches;
    this.search = h("input", { type: "search", id: "search", placeholder: "Message, id, branch or tag", value: this.words, autocomplete: "off", oninput: later(120, (event) => this.filter(event.target.value, this.branch)) });
    this.root.append(
      h("section", { class: "panel list", "aria-label": "History" },
        h("div", { class: "bar" },
          h("h1", { class: "sr" }, "History"),
          h("label", { class: "grow" }, h("span", { class: "sr" }, "Search"), this.search),
          h("label", {}, h("span", { class: "sr" }, "Branch or tag"), branches), this.status),
        this.list.element),
      this.details);
    this.take(history);
  }

  take(history) {
    const late = this.chosen !== null && !this.place.has(this.chosen);
    this.history = history;
    this.place = new Map(history.ids.map((id, row) => [id, row]));
    this.edges = new Edges(history, this.place);
    this.lanes = Math.min(MOST_LANES, 1 + history.lanes.reduce((most, lane) => Math.max(most, lane), 0));
    this.filter(this.words, this.branch, true);
    if (late) this.select(this.chosen);
  }

  // Takes over what an address says: another filter, another snapshot.
  follow(query) {
    const [words, branch, id] = ["q", "branch", "id"].map((name) => query.get(name) || "");
    if (words !== this.words || branch !== this.branch) {
      this.search.value = words;
      this.branches.value = branch;
      this.filter(words, branch, true);
    }
    if (id && id !== this.chosen) this.select(id);
  }

  tell(text) {
    fill(this.status, text);
  }

  filter(words, branch, quiet = false) {
    this.words = words;
    this.branch = branch;
    const { history } = this;
    const wanted = words.trim().toLowerCase();
    let rows = this.ofBranch(branch) || history.ids.map((_, row) => row);
    if (wanted) rows = rows.filter((row) => this.matches(row, wanted));
    this.rows = rows;
    this.whole = !wanted && !branch;
    this.gutter = this.whole ? 14 + this.lanes * LANE : 26;
    this.list.element.style.setProperty("--gutter", `${this.gutter}px`);
    this.list.selected = rows.indexOf(this.place.get(this.chosen) ?? -1);
    this.list.setLength(rows.length);
    this.tell(`${plural(rows.length, "snapshot")}${history.complete ? "" : ", older ones not loaded"}`);
    if (!quiet) note(link("history", [], { id: this.chosen, q: words, branch }));
  }

  ofBranch(branch) {
    if (!branch) return null;
    const [kind, name] = [branch.slice(0, branch.indexOf(" ")), branch.slice(branch.indexOf(" ") + 1)];
    const label = kind === "tag" ? `tag: ${name}` : name;
    const tip = Object.keys(this.history.labels).find((row) => this.history.labels[row].includes(label));
    return tip === undefined ? [] : chain(this.history, Number(tip));
  }

  matches(row, words) {
    const { history } = this;
    return history.subjects[row].toLowerCase().includes(words) || history.ids[row].toLowerCase().startsWith(words)
      || (history.labels[row] || []).some((label) => label.toLowerCase().includes(words));
  }

  drawRow(row, element) {
    const at = this.rows[row];
    const { history } = this;
    fill(element,
      h("span", { class: "subject" },
        someLabels(history.labels[at] || []),
        markChips(marksOf(history, at)),
        h("span", { class: "text" }, history.subjects[at] || "(no message)")),
      h("code", { class: "id" }, short(history.ids[at])),
      h("time", { datetime: new Date(history.times[at]).toISOString(), title: when(history.times[at]) }, ago(history.times[at])));
  }

  drawGraph(first, last) {
    const { element } = this.list;
    const context = sized(this.canvas, this.gutter, element.clientHeight);
    const top = element.scrollTop;
    this.canvas.style.transform = `translateY(${top}px)`;
    const y = (row) => row * ROW + ROW / 2 - top;
    context.lineWidth = 2;
    if (this.whole) this.drawEdges(context, first, last, y);
    for (let row = first; row < last; row += 1) this.drawDot(context, row, y(row));
  }

  x(lane) {
    return 16 + Math.min(lane, MOST_LANES - 1) * LANE;
  }

  drawEdges(context, first, last, y) {
    const { parents, lanes, ids } = this.history;
    const bottom = this.list.element.clientHeight;
    for (const [row, end] of this.edges.parents(first, last)) {
      const known = parents[row] !== -2;
      const to = known ? lanes[end] : lanes[row];
      context.strokeStyle = CATEGORIES[Math.max(lanes[row], known ? to : 0) % CATEGORIES.length];
      context.setLineDash(known ? [] : [2, 4]);
      line(context, this.x(lanes[row]), y(row), this.x(to), y(end), bottom);
    }
    context.setLineDash([3, 3]);
    context.strokeStyle = colour("--faint");
    for (const [row, at] of this.edges.sources(first, last)) line(context, this.x(lanes[row]), y(row), this.x(lanes[at]), y(at), bottom);
    for (let row = first; row < Math.min(last, ids.length); row += 1) {
      const [, base] = this.history.rebased[row] || [-1, -1];
      if (base >= 0) bow(context, this.x(lanes[row]), y(row), this.x(lanes[base]), y(base), LANE * 0.6);
    }
    context.setLineDash([]);
    for (let row = first; row < Math.min(last, ids.length); row += 1) {
      if (this.history.forks[row] && parents[row] >= 0) this.drawForks(context, row, y);
    }
  }

  // Two strands beside the line to the parent: what forks wrote side by side.
  drawForks(context, row, y) {
    const { lanes } = this.history;
    const x = this.x(lanes[row]);
    context.strokeStyle = CATEGORIES[lanes[row] % CATEGORIES.length];
    context.lineWidth = 1.5;
    for (const side of [-0.34, 0.34]) bow(context, x, y(row), x, y(row + 1), LANE * side);
    context.lineWidth = 2;
  }

  drawDot(context, row, y) {
    const at = this.rows[row];
    const lane = this.whole ? this.history.lanes[at] : 0;
    const mine = this.history.ids[at] === this.chosen;
    context.beginPath();
    context.arc(this.whole ? this.x(lane) : 14, y, mine ? 6 : 4.5, 0, 2 * Math.PI);
    context.fillStyle = CATEGORIES[this.history.lanes[at] % CATEGORIES.length];
    context.strokeStyle = colour("--surface");
    context.fill();
    if (!mine) return;
    context.strokeStyle = colour("--ink");
    context.stroke();
  }

  select(id) {
    const row = this.rows.indexOf(this.place.get(id) ?? -1);
    if (row >= 0) this.list.pick(row, true);
    this.describe(id);
  }

  choose(at) {
    const id = this.history.ids[at];
    note(link("history", [], { id, q: this.words, branch: this.branch }));
    this.describe(id);
  }

  async describe(id) {
    if (!id) {
      fill(this.details, h("p", { class: "hint" }, "Nothing matches."));
      return;
    }
    this.chosen = id;
    this.list.soon();
    const row = this.place.get(id) ?? -1;
    const changes = h("div", { class: "changes" }, h("p", { class: "hint" }, "…"));
    let info;
    try {
      info = await get("snapshot", { id });
    } catch (error) {
      fill(this.details, h("h2", {}, error.type || "Error"), h("p", { class: "prose" }, error.message));
      return;
    }
    if (this.chosen !== id || this.signal.aborted) return;
    fill(this.details, ...snapshotDetails(info, row < 0 ? [] : this.history.labels[row] || [], row < 0 ? marksOf(NO_MARKS, 0) : marksOf(this.history, row), this.history.sources[row], this.first), changes);
    if (info.parent === null) {
      fill(changes, h("p", { class: "hint" }, "The first snapshot: an empty repository."));
      return;
    }
    try {
      const found = await get("diff", { from: info.parent, to: id });
      if (this.chosen === id) fill(changes, h("h3", {}, "Changes"), changeList(found, id));
    } catch (error) {
      fill(changes, h("p", { class: "hint" }, error.message));
    }
  }
}

const MOST_LABELS = 4;

function someLabels(labels) {
  const rest = labels.slice(MOST_LABELS);
  return [labels.slice(0, MOST_LABELS).map(labelChip), rest.length > 0 && h("span", { class: "chip", title: rest.slice(0, 40).join(", ") }, `+${rest.length}`)];
}

export function labelChip(label) {
  const tag = label.startsWith("tag: ");
  return h("span", { class: `chip ${tag ? "tag" : "branch"}`, title: label }, tag ? label.slice(5) : label);
}

const NO_MARKS = { marks: {}, rebased: {}, forks: {} };

function marksOf(history, at) {
  const over = history.rebased[at];
  return [
    history.marks[at] && [history.marks[at], ""],
    over && [over[0] > 0 ? `rebased over ${count(over[0])}` : "rebased", over[0] > 0 ? `The changes were made ${plural(over[0], "commit")} earlier, and rebased` : "The changes were made on another snapshot than the parent"],
    history.forks[at] && [`merged ${plural(history.forks[at], "fork")}`, "Forks wrote parts of it side by side"],
  ].filter(Boolean);
}

function markChips(marks) {
  return marks.map(([mark, title]) => h("span", { class: "chip mark-chip", title: title || null }, mark));
}

function snapshotDetails(info, labels, marks, source, branch) {
  const [subject, ...rest] = (info.message || "(no message)").split("\n");
  const entries = Object.entries(info.metadata);
  return [
    h("div", { class: "chips" }, labels.map(labelChip), markChips(marks)),
    h("h2", { class: "message" }, subject.slice(0, 600)),
    (rest.length > 0 || subject.length > 600) && h("pre", { class: "prose body", tabindex: "0" }, subject.length > 600 ? info.message : rest.join("\n").trim()),
    h("dl", { class: "facts" },
      fact("Snapshot", h("code", {}, info.id)),
      info.parent && fact("Parent", h("a", { href: link("history", [], { id: info.parent }) }, h("code", {}, info.parent))),
      info.base !== null && info.base !== info.parent && fact("Made on", h("a", { href: link("history", [], { id: info.base }) }, h("code", {}, info.base))),
      source && fact("Repeats or undoes", h("a", { href: link("history", [], { id: source }) }, h("code", {}, source))),
      fact("Written", `${when(info.time)} UTC`),
      info.imported !== null && fact("Imported", `${when(info.imported)} UTC`),
      entries.filter(([, value]) => value !== source).slice(0, 60).map(([name, value]) => fact(name, typeof value === "string" ? value : JSON.stringify(value)))),
    h("div", { class: "actions" },
      h("a", { class: "button primary", href: link("data", [info.id]) }, "Browse"),
      info.parent && h("a", { class: "button", href: link("compare", [], { from: info.parent, to: info.id }) }, "Compare with parent"),
      branch && branch.snapshot !== info.id && h("a", { class: "button", href: link("compare", [], { from: info.id, to: `branch:${branch.name}` }) }, `Compare with ${branch.name}`)),
  ];
}

export function fact(name, ...value) {
  return [h("dt", {}, name), h("dd", {}, ...value)];
}

const SIGNS = { created: ["+", "new"], deleted: ["−", "deleted"], updated: ["~", "metadata"], moved: ["→", "moved"], chunks: ["▦", "chunks"] };

function changeList(found, id) {
  const rows = Object.keys(SIGNS).flatMap((kind) => found[kind].slice(0, 40).map((row) => [kind, row]));
  if (!rows.length) return h("p", { class: "hint" }, "No changes of data.");
  const total = Object.values(found.counts).reduce((sum, each) => sum + each, 0);
  return h("ul", { class: "change-list" },
    rows.slice(0, 60).map(([kind, row]) => h("li", { class: `change ${kind}` },
      h("span", { class: "sign", title: SIGNS[kind][1] }, SIGNS[kind][0]),
      h("a", { href: link("compare", [], { from: found.before, to: id, path: row.path || "/" }) }, row.before === null ? `/${row.path}` : `/${row.before} → /${row.path}`),
      h("span", { class: "hint" }, row.chunks ? plural(row.chunks, "chunk") : SIGNS[kind][1]))),
    total > 60 && h("li", { class: "hint" }, `and ${count(total - 60)} more`));
}
