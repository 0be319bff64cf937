// Everything that is shown has an address: #/view/part/…?name=value

import { plain } from "./dom.js";

export function parse(hash = window.location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").map(unquoted);
  return { view: parts[0] || "history", parts: parts.slice(1), query: new URLSearchParams(query) };
}

function unquoted(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function link(view, parts = [], query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") search.set(name, value);
  }
  const text = search.toString();
  return `#/${[view, ...parts].map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(address) {
  if (window.location.hash !== address) window.location.hash = address;
}

// Says in the title what is shown, which tells the tabs and the history of a browser apart.
export function entitle() {
  const { view, query } = parse();
  const what = [query.get("path"), `${view.slice(0, 1).toUpperCase()}${view.slice(1)}`, "arraystore"];
  document.title = plain(what.filter((part) => part && part !== "/").join(" – ").slice(0, 200));
}

// Changes the address to that of what is shown already, as a new entry in the history of the browser.
export function push(address) {
  if (window.location.hash === address) return;
  history.pushState(null, "", address);
  entitle();
}

// Changes the address without a new entry in the history of the browser.
export function replace(address) {
  history.replaceState(null, "", address);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

// Changes the address only: what is shown is up to date already.
export function note(address) {
  history.replaceState(null, "", address);
  entitle();
}
