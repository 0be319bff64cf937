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

// Asks for the tree of the snapshot that most people go to next, while they look at something else: it takes no request
// to the storage beyond those for the snapshot.
export async function prepareTree(at) {
  if (report !== null) return;
  try {
    await get("tree", { at: await resolve(at) }, undefined, true);
  } catch { /* whoever goes there is told */ }
}

export function refresh() {
  overviewPromise = firstPromise = allPromise = null;
}

export async function resolve(at) {
  const [kind, ...rest] = at.split(":");
  const name = rest.join(":");
  if (kind !== "branch" && kind !== "tag") return at;
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
