// What several views share: the repository, and its history, of which the newest part comes first.

import { get, report } from "./api.js";

const FIRST = 200;
let overviewPromise = null;
let firstPromise = null;
let allPromise = null;

export function overview() {
  overviewPromise ??= get("overview").catch((error) => {
    overviewPromise = null;
    throw error;
  });
  return overviewPromise;
}

export function newestHistory() {
  firstPromise ??= get("history", { limit: FIRST }).catch((error) => {
    firstPromise = null;
    throw error;
  });
  return firstPromise;
}

export async function wholeHistory() {
  const first = await newestHistory();
  if (first.complete) return first;
  allPromise ??= get("history").catch((error) => {
    allPromise = null;
    throw error;
  });
  return allPromise;
}

// The array that most likely is what people come for: the one with most dimensions, then items.
export function firstArray(tree) {
  let best = null;
  let most = -1;
  for (const row of tree.rows) {
    if (row.kind !== "array" || !row.shape) continue;
    const weight = row.shape.length * 1e6 + Math.log1p(row.shape.reduce((size, side) => size * side, 1));
    if (weight > most) [best, most] = [row.path, weight];
  }
  return best ?? "";
}

const FEW_MANIFESTS = 16;

// Asks for what most people go to next, while they look at something else: the tree, and the map of its first array
// where that takes few requests.
export async function prepareData(at) {
  if (report !== null) return;
  try {
    const id = await resolve(at);
    const path = firstArray(await get("tree", { at: id }, undefined, true));
    const node = path && await get("node", { at: id, path }, undefined, true);
    if (node && node.layers <= FEW_MANIFESTS) await get("chunks", { at: id, path, axes: "", index: "" }, undefined, true);
  } catch { /* whoever goes there is told */ }
}

export function refresh() {
  overviewPromise = firstPromise = allPromise = null;
}

export async function resolve(at) {
  const [kind, ...rest] = at.split(":");
  const name = rest.join(":");
  if (kind !== "branch" && kind !== "tag") return at;
  if (report !== null && kind === "branch" && name === report.branch) return report.tip;
  const found = (await overview())[kind === "branch" ? "branches" : "tags"].find((ref) => ref.name === name);
  return found && found.snapshot ? found.snapshot : at;
}

// Rows of the history that lead from a snapshot to its oldest ancestor, newest first.
export function chain(history, row) {
  const rows = [];
  for (let at = row; at >= 0; at = history.parents[at]) rows.push(at);
  return rows;
}

// Rows of the line of history that a snapshot is on: up to the tip of a branch above it.
export function lineOf(history, id) {
  const row = history.ids.indexOf(id);
  if (row < 0) return { rows: [], at: -1, name: "" };
  let best = { rows: chain(history, row), at: 0, name: "" };
  for (const [tip, labels] of Object.entries(history.labels)) {
    const name = labels.find((label) => !label.startsWith("tag: "));
    if (name === undefined || Number(tip) > row) continue;
    const rows = chain(history, Number(tip));
    const at = rows.indexOf(row);
    if (at >= 0 && (best.name === "" || rows.length - at > best.rows.length || name === "main")) best = { rows, at, name };
    if (best.name === "main") break;
  }
  return best;
}
