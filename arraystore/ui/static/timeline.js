// Time travel: a slider along the line of history that a snapshot is on.

import { report } from "./api.js";
import { fill, h, later } from "./dom.js";
import { plural, when } from "./format.js";
import { lineOf, newestHistory, overview, wholeHistory } from "./state.js";

export function timeline(id, travel) {
  const root = h("section", { class: "timeline panel", "aria-label": "Time travel" });
  const found = { history: null, line: null, at: id };
  const text = h("span", { class: "timeline-text" });
  const slider = h("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Snapshot in time" });
  const moved = later(140, (place) => travel(found.history.ids[found.line.rows[found.line.rows.length - 1 - place]]));
  const older = h("button", { type: "button", class: "step", "aria-label": "Older snapshot", onclick: () => step(-1) }, "‹");
  const newer = h("button", { type: "button", class: "step", "aria-label": "Newer snapshot", onclick: () => step(1) }, "›");
  const jump = h("select", { "aria-label": "Branch or tag", onchange: (event) => event.target.value && travel(event.target.value) });
  slider.addEventListener("input", () => { say(); moved(Number(slider.value)); });
  root.append(jump, older, slider, newer, text);

  function step(by) {
    slider.value = Number(slider.value) + by;
    slider.dispatchEvent(new Event("input"));
  }

  function say() {
    const { history, line } = found;
    const row = line.rows[line.rows.length - 1 - Number(slider.value)];
    if (row === undefined) {
      fill(text, found.history.complete ? h("span", { class: "hint" }, "This snapshot is in no branch that is listed.") : "");
      return;
    }
    fill(text, h("strong", {}, history.subjects[row]), h("br", {}),
      h("span", { class: "hint" }, `${when(history.times[row])} · ${Number(slider.value) + 1} of ${plural(line.rows.length, "snapshot")}${line.name ? ` on ${line.name}` : ""}`));
    slider.setAttribute("aria-valuetext", `${when(history.times[row])}, ${history.subjects[row]}`);
    older.disabled = slider.value === slider.min;
    newer.disabled = slider.value === slider.max;
  }

  function place(history) {
    found.history = history;
    found.line = lineOf(history, found.at);
    slider.max = Math.max(0, found.line.rows.length - 1);
    slider.value = Math.max(0, found.line.rows.length - 1 - found.line.at);
    slider.disabled = older.disabled = newer.disabled = found.line.rows.length < 2;
    say();
  }

  async function start() {
    const refs = await overview();
    fill(jump, h("option", { value: "" }, "Go to …"),
      refs.branches.map((ref) => h("option", { value: `branch:${ref.name}` }, ref.name)),
      refs.tags.map((ref) => h("option", { value: `tag:${ref.name}` }, `tag ${ref.name}`)));
    const first = await newestHistory();
    place(first);
    if (!first.complete) place(await wholeHistory());
  }

  root.hidden = report !== null;  // a report holds one snapshot
  if (report === null) start().catch((error) => fill(text, error.message));
  const show = (at) => {
    found.at = at;
    jump.value = "";  // the branch that was gone to can be gone to again
    if (found.history) place(found.history);
  };
  return { root, show };
}
