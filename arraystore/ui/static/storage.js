// What takes room: arrays, ages, objects, packs, and what a collection would free.

import { get, report } from "./api.js";
import { fill, h } from "./dom.js";
import { ago, bytes, count, plural, when } from "./format.js";
import { key } from "./chunks.js";
import { link, replace } from "./router.js";
import { overview, resolve } from "./state.js";
import { timeline } from "./timeline.js";

export async function storageView(root, place, signal, paint) {
  const at = place.parts[0] || "branch:main";
  const id = await resolve(at);
  const time = timeline(id, (next) => replace(link("storage", [next])));
  const body = h("div", { class: "storage-body" });
  const rest = objects();
  let shown = id;
  root.append(time.root, h("h1", { class: "sr" }, "Storage"), body, rest);
  const show = async (here, first) => {
    shown = here;
    const [later] = await measured(here, signal, () => shown === here, (found) => fill(body, tiles(found), arrays(found, here), ages(found)));
    first();
    later.catch(tell);
  };
  const tell = (error) => error.name !== "AbortError" && fill(body, h("section", { class: "panel problem", role: "alert" }, h("h2", {}, error.type || "Error"), h("p", { class: "prose" }, error.message)));
  await show(id, () => paint(root));
  return (next) => {
    if (next.view !== "storage") return false;
    resolve(next.parts[0] || "branch:main").then((other) => other !== shown && show(other, () => time.show(other))).catch(tell);
    return true;
  };
}

const PART = 120;  // milliseconds until what was measured so far is shown

// Shows the largest arrays first; once something is shown, returns a promise of the rest, in a list so that nobody waits for it.
async function measured(at, signal, wanted, draw) {
  const part = () => get("storage", report === null ? { at, within: PART } : { at }, signal);
  let found = await part();
  if (wanted()) draw(found);
  const rest = async () => {
    while (found.left && wanted() && !signal.aborted) {
      found = await part();
      if (wanted() && !signal.aborted) draw(found);
    }
  };
  return [rest()];
}

function tile(value, text, hint) {
  return h("div", { class: "tile" }, h("strong", {}, value), h("span", {}, text), hint && h("span", { class: "hint" }, hint));
}

function tiles(found) {
  const all = found.packed + found.inlined + found.virtual;
  return h("section", { class: "tiles", "aria-label": "This snapshot" },
    tile(bytes(all), "encoded chunks", found.virtual ? `${bytes(found.virtual)} of it elsewhere` : "all in this repository"),
    tile(count(found.chunks), "chunks", found.left ? `in ${count(found.arrays.length + found.more)} arrays so far, ${count(found.left)} to come` : `in ${plural(found.arrays.length + found.more, "array")}`),
    tile(bytes(found.packed), "in packs", `${bytes(found.inlined)} in manifests`),
    tile(found.bins ? ago(found.start + found.width * found.bins) : "–", "newest chunks", found.bins ? `the oldest ${ago(found.start)}` : ""));
}

function bar(parts, most) {
  const track = h("span", { class: "track", "aria-hidden": "true" });
  for (const [kind, size] of parts) {
    if (!size) continue;
    const part = h("i", { class: kind });
    part.style.width = `${Math.max(0.4, (100 * size) / most)}%`;
    track.append(part);
  }
  return track;
}

function arrays(found, id) {
  const rows = found.arrays.filter((each) => each.chunks).slice(0, 100);
  const most = Math.max(1, ...rows.map((each) => each.packed + each.inlined + each.virtual));
  return h("section", { class: "panel", "aria-label": "Arrays" },
    h("div", { class: "panel-head" }, h("h2", {}, "Arrays"), h("div", { class: "legend" }, key("var(--packed)", "in packs"), key("var(--inlined)", "in manifests"), key("var(--virtual)", "virtual"))),
    h("div", { class: "scroll tall", tabindex: "0", role: "group", "aria-label": "Arrays by size" },
      h("table", { class: "bars" }, h("thead", {}, h("tr", {}, ["Array", "Share", "Bytes", "Chunks", "Manifests", "Newest"].map((each) => h("th", { scope: "col" }, each)))),
        h("tbody", {}, rows.map((each) => h("tr", {},
          h("th", { scope: "row" }, h("a", { href: link("data", [id], { path: `/${each.path}` }) }, `/${each.path}`)),
          h("td", { class: "wide" }, bar([["packed", each.packed], ["inlined", each.inlined], ["virtual", each.virtual]], most)),
          h("td", {}, bytes(each.packed + each.inlined + each.virtual)), h("td", {}, count(each.chunks)), h("td", {}, count(each.layers)),
          h("td", {}, each.newest === null ? "" : ago(each.newest))))))),
    !rows.length && h("p", { class: "hint" }, "no chunks"),
    found.arrays.length + found.more > rows.length && h("p", { class: "hint" }, `${count(found.arrays.length + found.more - rows.length)} more arrays, smaller or without chunks`),
    found.skipped > 0 && h("p", { class: "hint" }, `${plural(found.skipped, "array")} with too many manifests left out`));
}

function ages(found) {
  const { start, width, sizes } = found;
  const most = Math.max(1, ...sizes);
  const chart = h("div", { class: "columns", role: "img", "aria-label": `Bytes by the time they were written: ${sizes.length} columns from ${when(start)} on` }, sizes.map((size, at) => {
    const column = h("i", { title: `from ${when(start + at * width)}: ${bytes(Math.round(size))}` });
    column.style.height = `${size ? Math.max(2, (100 * size) / most) : 0}%`;
    return column;
  }));
  return h("section", { class: "panel", "aria-label": "Age" }, h("h2", {}, "Age"),
    sizes.length ? [chart, h("div", { class: "ends" }, h("span", {}, when(start)), h("span", { class: "hint" }, "encoded bytes by the time their pack was begun"), h("span", {}, when(start + width * sizes.length)))] : h("p", { class: "hint" }, "no chunks"));
}

function objects() {
  const body = h("div", {});
  const collection = h("div", {});
  return h("section", { class: "panel", "aria-label": "Objects" }, h("h2", {}, "The whole repository"),
    h("p", { class: "hint" }, "These two read more: every object is listed, and every manifest of every branch is read."),
    h("div", { class: "actions" },
      h("button", { type: "button", class: "button", onclick: (event) => run(event.target, body, listObjects) }, "List objects and packs"),
      h("button", { type: "button", class: "button", onclick: (event) => run(event.target, collection, listGarbage) }, "What would a collection free?")),
    body, collection);
}

async function run(button, body, work) {
  button.disabled = true;
  fill(body, h("p", { class: "hint", role: "status" }, "Reading …"));
  try {
    fill(body, await work());
  } catch (error) {
    fill(body, h("p", { class: "problem", role: "alert" }, error.message));
  }
  button.disabled = false;
}

async function listObjects() {
  const refs = await overview();
  const found = await get("objects", { branch: refs.branches[0].name });
  const most = Math.max(1, ...found.kinds.map(([, , size]) => size));
  return [
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Objects by kind" }, h("table", { class: "bars" }, h("thead", {}, h("tr", {}, ["Objects", "Share", "Bytes", "Number"].map((each) => h("th", { scope: "col" }, each)))),
      h("tbody", {}, found.kinds.map(([kind, number, size]) => h("tr", {}, h("th", { scope: "row" }, kind.replace("_", " ")), h("td", { class: "wide" }, bar([["packed", size]], most)), h("td", {}, bytes(size)), h("td", {}, count(number))))))),
    ...(found.packs ? liveShares(found) : [h("p", { class: "hint" }, "no packs")]),
  ];
}

function liveShares(found) {
  const packs = Math.max(1, ...found.by_live_share);
  return [
    h("h3", {}, `${plural(found.packs, "pack")}, ${found.pack_bytes ? Math.round((100 * found.live_bytes) / found.pack_bytes) : 100} % of ${bytes(found.pack_bytes)} live`),
    h("div", { class: "columns small", role: "img", "aria-label": `Packs by live share, from a tenth to all: ${found.by_live_share.join(", ")}` }, found.by_live_share.map((number, at) => {
      const column = h("i", { title: `${plural(number, "pack")} up to ${10 * (at + 1)} % live` });
      column.style.height = `${number ? Math.max(3, (100 * number) / packs) : 0}%`;
      return column;
    })),
    h("div", { class: "ends" }, h("span", {}, "10 % live"), h("span", { class: "hint" }, `${plural(found.unused, "pack")} only older snapshots use`), h("span", {}, "100 %")),
  ];
}

async function listGarbage() {
  const found = await get("garbage");
  const parts = [["packs and chunks", found.chunks_deleted], ["manifests", found.manifests_deleted], ["checkpoints", found.snapshots_deleted], ["change logs", found.transaction_logs_deleted], ["records", found.records_deleted], ["others", found.others_deleted]];
  const total = parts.reduce((sum, [, number]) => sum + number, 0);
  return [h("h3", {}, total ? `A collection now would free ${bytes(found.bytes_deleted)}` : "There is nothing to collect"),
    total > 0 && h("ul", {}, parts.filter(([, number]) => number).map(([what, number]) => h("li", {}, `${count(number)} ${what}`))),
    h("p", { class: "hint" }, "Nothing was deleted: `arraystore gc` does that. Snapshots that have not expired keep what they use.")];
}
