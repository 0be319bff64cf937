// Views of the repository: from the server, or from the report that this page is.

const BYTES = 96 << 20;
const kept = new Map();
let keptBytes = 0;
const watchers = new Set();
export const total = { requests: 0, bytes: 0, views: 0, last: null };

const embedded = document.getElementById("report");
export const report = embedded === null ? null : JSON.parse(embedded.textContent);

export class ViewError extends Error {
  constructor(error) {
    super(error.message);
    this.type = error.type;
    this.kind = error.kind;
  }
}

export function onCost(watch) {
  watchers.add(watch);
}

export function keyOf(view, parameters) {
  const names = Object.keys(parameters).filter((name) => parameters[name] !== undefined && parameters[name] !== null).sort();
  return [view, ...names.map((name) => `${name}=${parameters[name]}`)].join("&");
}

const MUTABLE = new Set(["overview", "history", "objects", "garbage"]);

function isFixed(view, parameters) {
  return !MUTABLE.has(view) && !Object.values(parameters).some((value) => /^(branch|tag):/.test(String(value)));
}

export async function get(view, parameters = {}, signal = undefined, quiet = false) {
  const key = keyOf(view, parameters);
  if (kept.has(key)) {
    const [result, size] = kept.get(key);
    kept.delete(key);
    kept.set(key, [result, size]);
    return result;
  }
  const [body, size] = report === null ? await fetched(view, parameters, signal, quiet) : [recorded(key), 0];
  if (body.error) throw new ViewError(body.error);
  const result = decoded(body.result);
  if (report === null && isFixed(view, parameters) && !result.left) keep(key, result, size);
  return result;
}

function keep(key, result, size) {
  kept.set(key, [result, size]);
  keptBytes += size;
  for (const [oldest, [, bytes]] of kept) {
    if (keptBytes <= BYTES) break;
    kept.delete(oldest);
    keptBytes -= bytes;
  }
}

async function fetched(view, parameters, signal, quiet) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null) query.set(name, value);
  }
  let response;
  try {
    response = await fetch(`api/${view}?${query}`, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ViewError({ type: "Disconnected", kind: "disconnected", message: "The server does not answer: is arraystore ui still running?" });
  }
  const text = await response.text();
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    throw new ViewError({ type: `HTTP ${response.status}`, kind: "unexpected", message: text.slice(0, 500) });
  }
  if (body.cost) {
    total.requests += body.cost.requests;
    total.bytes += body.cost.bytes;
    total.views += 1;
    if (!quiet || total.last === null) total.last = { view, ...body.cost };
    for (const watch of watchers) watch(total);
  }
  return [body, text.length];
}

function recorded(key) {
  const body = report.views[key];
  if (body !== undefined) return body;
  return { error: { type: "Not in this report", kind: "not-exported", message: "This report does not hold this view: open the repository with `arraystore ui`." } };
}

const ARRAYS = {
  "|u1": Uint8Array, "<u2": Uint16Array, "<f4": Float32Array, "<f8": Float64Array, "<i4": Int32Array,
};

const AS_THEY_ARE = new Set(["attributes", "codecs", "dtype_details", "fill_value", "metadata"]);  // what looks like an array there is none

function decoded(value) {
  if (Array.isArray(value)) return value.map(decoded);
  if (value === null || typeof value !== "object") return value;
  if (typeof value.dtype === "string" && typeof value.data === "string" && Array.isArray(value.shape) && ARRAYS[value.dtype]) {
    return { shape: value.shape, values: typed(ARRAYS[value.dtype], value.data) };
  }
  const result = Object.create(null);
  for (const name of Object.keys(value)) result[name] = AS_THEY_ARE.has(name) ? value[name] : decoded(value[name]);
  return result;
}

function typed(kind, base64) {
  const text = atob(base64);
  const data = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) data[at] = text.charCodeAt(at);
  return new kind(data.buffer);
}
