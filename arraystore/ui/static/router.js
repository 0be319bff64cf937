// Everything that is shown has an address: #/view/part/…?name=value

export function parse(hash = window.location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").map(plain);
  return { view: parts[0] || "history", parts: parts.slice(1), query: new URLSearchParams(query) };
}

function plain(text) {
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

// Changes the address without a new entry in the history of the browser.
export function replace(address) {
  history.replaceState(null, "", address);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

// Changes the address only: what is shown is up to date already.
export function note(address) {
  history.replaceState(null, "", address);
}
