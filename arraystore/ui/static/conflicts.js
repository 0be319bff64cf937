// Conflicts: of an error that somebody sent a link of, or of the changes of a snapshot with another branch.

import { get, report, ViewError } from "./api.js";
import { colour, fill, h } from "./dom.js";
import { plural, short, when } from "./format.js";
import { Grid } from "./grid.js";
import { link } from "./router.js";
import { newestHistory, overview, resolve } from "./state.js";

export async function conflictsView(root, place, signal, paint) {
  const sent = place.query.get("error");
  const [refs, history] = await Promise.all([overview(), newestHistory()]);
  const ours = place.query.get("ours") || "";
  const onto = place.query.get("onto") || "branch:main";
  const body = h("div", { class: "conflict-list" });
  root.append(h("section", { class: "panel", "aria-label": "Question" }, h("h1", {}, "Conflicts"),
    h("p", { class: "hint" }, sent ? "Of a commit or a rebase that failed; its changes are in no snapshot." : report !== null ? "A report shows those of a link that conflict_link has made." : "Would the changes of a snapshot apply to another one? Nothing is committed."),
    !sent && report === null && h("div", { class: "pickers" }, picker("Changes of", ours, history, refs, (value) => { window.location.hash = link("conflicts", [], { ours: value, onto }); }),
      picker("onto", onto, history, refs, (value) => { window.location.hash = link("conflicts", [], { ours, onto: value }); }))), body);
  paint(root);
  if (sent) fill(body, rows(readLink(sent)));
  else if (ours) fill(body, await ask(ours, onto));
  return null;
}

function picker(text, value, history, refs, choose) {
  const known = [...refs.branches.map((ref) => [`branch:${ref.name}`, `branch ${ref.name}`]), ...refs.tags.map((ref) => [`tag:${ref.name}`, `tag ${ref.name}`])];
  const commits = history.ids.slice(0, 200).map((id, at) => [id, `${when(history.times[at]).slice(0, 10)} ${history.subjects[at].slice(0, 60)} (${short(id)})`]);
  const select = h("select", { onchange: (event) => choose(event.target.value) },
    value === "" && h("option", { value: "" }, "Choose a snapshot"),
    value !== "" && ![...known, ...commits].some(([id]) => id === value) && h("option", { value }, value),
    [...known, ...commits].map(([id, label]) => h("option", { value: id }, label)));
  select.value = value;
  return h("label", { class: "pick grow" }, h("span", {}, text), select);
}

async function ask(ours, onto) {
  const found = await get("conflicts", { ours: await resolve(ours), onto: await resolve(onto) });
  if (!found.rows.length) {
    return h("section", { class: "panel fine" }, h("h2", {}, found.changes ? "No conflicts" : "Nothing to apply"),
      h("p", {}, found.changes ? "These changes would apply: `arraystore cherry-pick` commits them." : "The snapshot has all of these changes already."));
  }
  return rows(found);
}

function rows(found) {
  return [
    h("p", { class: "summary", role: "status" }, `${plural(found.rows.length + found.more, "conflict")}${found.onto ? " with " : ""}`, found.onto && h("a", { href: link("history", [], { id: found.onto }) }, found.onto)),
    found.rows.map((row) => h("section", { class: "panel conflict" },
      h("h2", {}, row.path), h("div", { class: "chips" }, h("span", { class: "chip warn" }, row.kind), row.count > 0 && h("span", { class: "chip" }, plural(row.count, "chunk"))),
      h("p", {}, row.detail || row.meaning),
      row.snapshot && h("p", { class: "hint" }, "their snapshot ", h("a", { href: link("history", [], { id: row.snapshot }) }, row.snapshot)),
      row.chunks.length > 0 && chunkMap(row.chunks))),
    found.more > 0 && h("p", { class: "hint" }, `and ${found.more} more`),
  ];
}

// The conflicting chunks in their bounding box along the two longest axes.
function chunkMap(chunks) {
  const dimensions = chunks[0].length;
  const text = () => h("p", {}, h("code", {}, chunks.slice(0, 40).map((chunk) => `(${chunk.join(", ")})`).join(" ")));
  if (!dimensions) return null;
  const low = chunks[0].map((_, axis) => Math.min(...chunks.map((chunk) => chunk[axis])));
  const sizes = low.map((first, axis) => Math.max(...chunks.map((chunk) => chunk[axis])) - first + 1);
  const order = sizes.map((_, axis) => axis).sort((a, b) => sizes[b] - sizes[a]);
  const [across, down] = dimensions === 1 ? [0, null] : [order[0], order[1]];
  const columns = sizes[across];
  const lines = down === null ? 1 : sizes[down];
  if (columns * lines > 20000) return text();
  const hit = new Map();
  for (const chunk of chunks) {
    const cell = (down === null ? 0 : chunk[down] - low[down]) * columns + chunk[across] - low[across];
    hit.set(cell, [...(hit.get(cell) || []), chunk]);
  }
  const grid = new Grid({
    label: `${plural(chunks.length, "conflicting chunk")}`,
    tint: (cell) => colour(hit.has(cell) ? "--bad" : "--dim-chunk"),
    tell: (cell) => (hit.has(cell) ? hit.get(cell).slice(0, 6).map((chunk) => `(${chunk.join(", ")})`).join(" ") : "no conflict"),
  });
  grid.set(lines, columns, columns * lines);
  return [grid.root, text()];
}

function parsedLink(text) {
  try {
    const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    return Object(JSON.parse(new TextDecoder().decode(Uint8Array.from(plain, (each) => each.charCodeAt(0)))));
  } catch {
    throw new ViewError({ type: "Not a link of conflicts", kind: "invalid", message: "A part of this address is missing: copy all of it, as conflict_link has returned it." });
  }
}

// Reads the part of an address that arraystore.ui.conflict_link made; every field is taken for text.
function readLink(text) {
  const found = parsedLink(text);
  const word = (value) => (typeof value === "string" ? value : "");
  const chunks = (value) => (Array.isArray(value) ? value.filter((each) => Array.isArray(each) && each.every(Number.isSafeInteger)) : []);
  return {
    onto: word(found.onto), more: Number(found.more) || 0,
    rows: (Array.isArray(found.rows) ? found.rows : []).map(Object).map((row) => {
      const cells = chunks(row.chunks);
      const same = cells.filter((each) => each.length === cells[0].length);
      return { kind: word(row.kind), meaning: word(row.meaning), path: word(row.path), snapshot: word(row.snapshot), detail: word(row.detail), count: Number(row.count) || 0, chunks: same };
    }),
  };
}
