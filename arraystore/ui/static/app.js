// The frame of the page: header, views by address, what the last view cost.

import { onCost, report, total, ViewError } from "./api.js";
import { compareView } from "./compare.js";
import { conflictsView } from "./conflicts.js";
import { dataView } from "./data.js";
import { fill, h } from "./dom.js";
import { bytes, plural } from "./format.js";
import { historyView } from "./history.js";
import { entitle, link, parse } from "./router.js";
import { overview, refresh } from "./state.js";
import { storageView } from "./storage.js";

const VIEWS = {
  history: { title: "History", show: historyView, address: () => link("history") },
  data: { title: "Data", show: dataView, address: () => link("data", [lastAt()]) },
  compare: { title: "Compare", show: compareView, address: () => link("compare") },
  storage: { title: "Storage", show: storageView, address: () => link("storage", [lastAt()]) },
  conflicts: { title: "Conflicts", show: conflictsView, address: () => link("conflicts") },
};

const main = document.getElementById("main");
let current = null;
const FIRST = `branch:${report === null ? "main" : report.branch}`;
let at = FIRST;

function lastAt() {
  return at;
}

function header() {
  const links = Object.entries(VIEWS).map(([name, view]) =>
    h("a", { href: view.address(), "data-view": name, class: "tab" }, view.title));
  const place = h("span", { class: "place", id: "place" });
  fill(document.getElementById("top"),
    h("a", { class: "brand", href: link("history"), "aria-label": "arraystore, history" },
      h("span", { class: "mark", "aria-hidden": "true" }, h("i"), h("i"), h("i"), h("i")), "arraystore"),
    place,
    h("nav", { "aria-label": "Views", class: "tabs" }, links),
    h("div", { class: "tools" },
      report === null && h("button", { type: "button", class: "quiet", onclick: again, title: "Look for new commits" }, "Refresh"),
      h("button", { type: "button", class: "quiet", onclick: turn, id: "theme", title: "Light or dark" }, "Theme")));
  overview().then((found) => {
    place.textContent = found.location;
    place.title = found.location;
    if (found.status !== "online") place.append(" ", h("span", { class: "chip warn", title: found.status_reason || "" }, found.status.replace("_", "-")));
  }).catch(() => {});
}

function again() {
  refresh();
  show(true);
}

function turn() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("arraystore-theme", root.dataset.theme);
  } catch { /* a page of a file may have no storage */ }
  show(true);
}

function footer() {
  const foot = document.getElementById("foot");
  if (report !== null) {
    fill(foot, h("span", {}, `Report of ${report.made} · arraystore ${report.version}`), h("span", {}, "A file: nothing is read from elsewhere"));
    return;
  }
  const last = h("span", { role: "status", id: "cost" }, "read-only");
  fill(foot, last, h("span", { id: "total" }));
  onCost(() => {
    const { view, requests, bytes: read, seconds } = total.last;
    last.textContent = `${view}: ${plural(requests, "request")}, ${bytes(read)}, ${Math.round(seconds * 1000)} ms`;
    document.getElementById("total").textContent = `${plural(total.requests, "request")}, ${bytes(total.bytes)} in all`;
  });
}

export function problem(error) {
  if (!(error instanceof ViewError)) console.error(error);
  const kind = error instanceof ViewError ? error.type : "The page failed";
  return h("section", { class: "problem", role: "alert" },
    h("h2", {}, kind), h("p", { class: "prose" }, error.message || String(error)),
    h("p", {}, h("a", { href: link("history") }, "Go to the history")));
}

function turnTo(view) {
  for (const tab of document.querySelectorAll(".tab")) {
    if (tab.dataset.view === view) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
    tab.href = VIEWS[tab.dataset.view].address();
  }
}

async function show(force = false) {
  const place = parse();
  const known = Object.hasOwn(VIEWS, place.view) ? place.view : "history";
  const view = VIEWS[known];
  if ((known === "data" || known === "storage") && place.parts[0]) at = place.parts[0];
  entitle();
  turnTo(known);
  if (!force && current && current.view === view && current.update && current.update(place)) return;
  current?.abort.abort();
  const abort = new AbortController();
  current = { view, abort, update: null };
  const mine = current;
  const root = h("div", { class: `view view-${known}` });
  main.setAttribute("aria-busy", "true");
  try {
    const update = await view.show(root, place, abort.signal, (element) => {
      if (mine === current) put(element);
    });
    mine.update = update;
  } catch (error) {
    if (mine !== current || error.name === "AbortError") return;
    at = FIRST;  // whoever goes on by a tab does not come back to what is not there
    turnTo(known);
    put(problem(error));
    return;
  }
  if (mine === current && root.parentElement !== main) put(root);
}

// Shows a view; whoever came by a link of the one before goes on with the keyboard where it was.
function put(element) {
  const inside = main.contains(document.activeElement);
  main.removeAttribute("aria-busy");
  fill(main, element);
  if (inside) main.focus({ preventScroll: true });
}

try {
  const theme = localStorage.getItem("arraystore-theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch { /* a page of a file may have no storage */ }
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();  // its address would be that of a view
  main.focus();
});
header();
footer();
window.addEventListener("hashchange", () => show());
show();
