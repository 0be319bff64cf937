// A plane or a line of values on a canvas, with axes, a colour bar and a reading of what is under the pointer.

import { rising, shade, ticks, turning } from "./colours.js";
import { colour, h, onResize, plain, sized } from "./dom.js";
import { isNear, number, precise } from "./format.js";

const BAR = 14;
const FONT = "11px system-ui, sans-serif";
const LATITUDE = /(^|_)r?lat(itude)?s?(_|$)/i;
const LONGITUDE = /(^|_)r?lon(gitude)?s?(_|$)/i;

export class Plane {
  constructor({ diverging = false, height = 380, label }) {
    this.diverging = diverging;
    this.height = height;
    this.canvas = h("canvas", { role: "img", "aria-label": label, tabindex: "0" });
    this.reading = h("p", { class: "reading", "aria-live": "polite" }, " ");
    this.root = h("div", { class: "plane" }, this.canvas, this.reading);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.read(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    onResize(this.root, () => this.draw());
  }

  // found: {kind, values, axes, units}; range: [low, high] or null for that of the values
  set(found, range, label) {
    this.found = found;
    const values = found.values.values;
    let [low, high] = range || extent(values) || [0, 1];
    if (this.diverging) {
      high = Math.max(Math.abs(low), Math.abs(high)) || 1;
      low = -high;
    }
    if (!(high > low)) [low, high] = around(low);
    this.low = low;
    this.high = high;
    this.blank = !values.some(Number.isFinite);
    const same = this.at && this.at.length === found.values.shape.length && this.at.every((at, axis) => at < found.values.shape[axis]);
    if (this.at) this.say(same ? this.at : null);
    if (label) this.canvas.setAttribute("aria-label", label);
    this.picture = found.kind === "image" ? this.paint(values, found.values.shape) : null;
    this.draw();
  }

  paint(values, [rows, columns]) {
    const picture = document.createElement("canvas");
    picture.width = columns;
    picture.height = rows;
    const context = picture.getContext("2d");
    const image = context.createImageData(columns, rows);
    const scale = this.diverging ? turning : rising;
    const span = this.high / 255 - this.low / 255 || 1;
    for (let row = 0; row < rows; row += 1) {
      const from = (this.upsideDown() ? rows - 1 - row : row) * columns;
      for (let column = 0; column < columns; column += 1) {
        const value = values[from + column];
        if (Number.isNaN(value)) continue;
        const at = 3 * Math.min(255, Math.max(0, Math.round((value - this.low) / span)));
        const to = 4 * (row * columns + column);
        image.data[to] = scale[at];
        image.data[to + 1] = scale[at + 1];
        image.data[to + 2] = scale[at + 2];
        image.data[to + 3] = 255;
      }
    }
    context.putImageData(image, 0, 0);
    return picture;
  }

  // North is up: latitudes and other heights that rise are drawn from the bottom.
  upsideDown() {
    const [down] = this.found.axes;
    if (down.values === null) return /^(y|j|r?lat(itude)?)$/i.test(down.name);
    const rises = down.values.length > 1 && down.values[down.values.length - 1] > down.values[0];
    return rises && (LATITUDE.test(down.name) || /^y$|(^|_)(north|height|altitude)/i.test(down.name));
  }

  proportion() {
    const [down, across] = this.found.axes;
    const [rows, columns] = this.found.values.shape;
    const latitude = down.values !== null && across.values !== null && LATITUDE.test(down.name) && LONGITUDE.test(across.name);
    if (!latitude) return Math.min(4, Math.max(0.5, columns / Math.max(rows, 1)));
    const span = (values) => Math.abs(values[values.length - 1] - values[0]) || 1;
    const middle = (down.values[0] + down.values[down.values.length - 1]) / 2;
    return Math.min(4, Math.max(0.5, (span(across.values) / span(down.values)) * Math.max(0.3, Math.cos((middle * Math.PI) / 180))));
  }

  draw() {
    const width = this.root.clientWidth;
    if (!this.found || width === 0) return;
    if (this.found.kind === "image") this.drawImage(width);
    else this.drawLine(width);
  }

  drawImage(width) {
    const left = this.margin(width);
    const marks = this.blank ? [] : scale(this.low, this.high, 8);
    const right = Math.max(66, BAR + 28 + longest(this.canvas.getContext("2d"), marks));
    const room = Math.max(60, width - left - right);
    let tall = Math.min(this.height, room / this.proportion());
    tall = Math.max(70, tall);
    const wide = Math.min(room, tall * this.proportion());
    const box = { x: left, y: 10, width: wide, height: tall };
    const context = sized(this.canvas, width, tall + 46);
    context.font = FONT;
    context.imageSmoothingEnabled = false;
    context.fillStyle = colour("--nothing");
    context.fillRect(box.x, box.y, box.width, box.height);
    if (this.diverging) hatch(context, box);
    context.drawImage(this.picture, box.x, box.y, box.width, box.height);
    context.strokeStyle = colour("--line");
    context.lineWidth = 1;
    context.strokeRect(box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1);
    this.box = box;
    this.drawLabels(context, box);
    if (!this.blank) this.drawBar(context, box.x + box.width + 14, box.y, box.height, width);
    if (this.at) this.drawCross(context, box);
  }

  // Room to the left: for the title of an axis, and for labels as long as dates.
  margin(width) {
    const [down] = this.found.axes;
    return Math.min(Math.max(62, 30 + widest(this.canvas.getContext("2d"), down)), Math.max(62, 0.3 * width));
  }

  drawLabels(context, box) {
    const [down, across] = this.found.axes;
    context.fillStyle = colour("--soft");
    context.textAlign = "center";
    context.textBaseline = "top";
    const columns = this.found.values.shape[1];
    for (const [at, label] of axisTicks(across, columns, Math.max(1, Math.floor(box.width / Math.max(84, widest(context, across) + 12))))) {
      const x = box.x + ((at + 0.5) / columns) * box.width;
      context.fillRect(x, box.y + box.height, 1, 4);
      context.fillText(cut(label, LONGEST), x, box.y + box.height + 6);
    }
    context.fillText(cut(title(across), 60), box.x + box.width / 2, box.y + box.height + 23);
    context.textAlign = "right";
    context.textBaseline = "middle";
    const rows = this.found.values.shape[0];
    for (const [at, label] of axisTicks(down, rows, Math.max(1, Math.floor(box.height / 44)))) {
      const y = box.y + ((this.upsideDown() ? rows - 1 - at : at) + 0.5) / rows * box.height;
      context.fillRect(box.x - 5, y, 4, 1);
      context.fillText(fitted(context, label, box.x - 28), box.x - 8, y);
    }
    context.save();
    context.translate(10, box.y + box.height / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(cut(title(down), 40), 0, 0);
    context.restore();
  }

  drawBar(context, x, y, height, width) {
    const shades = this.diverging ? turning : rising;
    for (let at = 0; at < height; at += 1) {
      context.fillStyle = shade(shades, 1 - at / height);
      context.fillRect(x, y + at, BAR, 1.5);
    }
    context.fillStyle = colour("--soft");
    context.textAlign = "left";
    context.textBaseline = "middle";
    const marks = scale(this.low, this.high, Math.max(2, Math.floor(height / 48)));
    for (const [value, text] of marks) {
      const at = y + height * (1 - this.share(value));
      context.fillRect(x + BAR, at, 3, 1);
      context.fillText(text, x + BAR + 5, at);
    }
    drawBase(context, marks, x, 0, width);
    if (this.found.units) {
      context.textBaseline = "top";
      context.fillText(cut(plain(this.found.units), 9), x, y + height + 6);
    }
  }

  drawCross(context, box) {
    const [rows, columns] = this.found.values.shape;
    const [row, column] = this.at;
    const shown = this.upsideDown() ? rows - 1 - row : row;
    const cell = { x: box.x + (column / columns) * box.width, y: box.y + (shown / rows) * box.height, width: box.width / columns, height: box.height / rows };
    context.lineWidth = 2;
    context.strokeStyle = "#fff";
    context.strokeRect(cell.x - 2, cell.y - 2, cell.width + 4, cell.height + 4);
    context.strokeStyle = "#000";
    context.lineWidth = 1;
    context.strokeRect(cell.x - 3.5, cell.y - 3.5, cell.width + 7, cell.height + 7);
  }

  drawLine(width) {
    const values = this.found.values.values;
    const marks = scale(this.low, this.high, 5);
    const left = Math.max(62, 14 + longest(this.canvas.getContext("2d"), marks));
    const box = { x: left, y: marks.base === undefined ? 12 : 22, width: Math.max(60, width - left - 18), height: Math.min(this.height, 240) };
    const context = sized(this.canvas, width, box.y + box.height + 42);
    context.font = FONT;
    this.box = box;
    const y = (value) => box.y + box.height * (1 - this.share(value));
    const x = (at) => box.x + (values.length > 1 ? at / (values.length - 1) : 0.5) * box.width;
    context.textAlign = "right";
    context.textBaseline = "middle";
    drawBase(context, marks, box.x, 2, width);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const [value, text] of marks) {
      context.strokeStyle = colour("--grid");
      context.beginPath();
      context.moveTo(box.x, y(value));
      context.lineTo(box.x + box.width, y(value));
      context.stroke();
      context.fillStyle = colour("--soft");
      context.fillText(text, box.x - 7, y(value));
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    const [across] = this.found.axes;
    for (const [at, label] of axisTicks(across, values.length, Math.max(1, Math.floor(box.width / Math.max(96, widest(context, across) + 16))))) {
      const half = context.measureText(cut(label, LONGEST)).width / 2;
      context.fillText(cut(label, LONGEST), Math.min(Math.max(x(at), half), width - half), box.y + box.height + 6);
    }
    context.fillText(`${cut(title(across), 60)}${this.found.units ? ` · values in ${plain(this.found.units)}` : ""}`, box.x + box.width / 2, box.y + box.height + 24);
    context.strokeStyle = colour("--accent");
    context.fillStyle = colour("--accent");
    context.lineWidth = 1.8;
    context.beginPath();
    let pen = false;
    for (let at = 0; at < values.length; at += 1) {
      if (!Number.isFinite(values[at])) pen = false;
      else if (pen) context.lineTo(x(at), y(values[at]));
      else {
        context.moveTo(x(at), y(values[at]));
        pen = true;
        if (at + 1 === values.length || !Number.isFinite(values[at + 1])) dot(context, x(at), y(values[at]));
      }
    }
    context.stroke();
    if (this.at && Number.isFinite(values[this.at[0]])) {
      context.beginPath();
      context.arc(x(this.at[0]), y(values[this.at[0]]), 4, 0, 2 * Math.PI);
      context.fill();
    }
  }

  point(event) {
    if (!this.found) return;
    const bounds = this.canvas.getBoundingClientRect();
    const across = (event.clientX - bounds.left - this.box.x) / this.box.width;
    const down = (event.clientY - bounds.top - this.box.y) / this.box.height;
    if (across < 0 || across >= 1 || down < 0 || down >= 1) {
      this.read(null);
    } else if (this.found.kind === "image") {
      const [rows, columns] = this.found.values.shape;
      const row = Math.floor(down * rows);
      this.read([this.upsideDown() ? rows - 1 - row : row, Math.floor(across * columns)]);
    } else {
      this.read([Math.round(across * (this.found.values.values.length - 1))]);
    }
  }

  key(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!(event.key in moves) || !this.found) return;
    event.preventDefault();
    const sizes = this.found.values.shape;
    const [down, across] = moves[event.key];
    const by = sizes.length === 2 ? [this.upsideDown() ? -down : down, across] : [across || -down];
    const from = this.at || sizes.map((size) => Math.floor(size / 2));
    this.read(sizes.map((size, axis) => Math.min(size - 1, Math.max(0, from[axis] + by[axis]))));
  }

  read(at) {
    this.say(at);
    this.draw();
  }

  // Where a value is between the lowest and the highest, whose difference may be more than there are numbers.
  share(value) {
    const [all, part] = [this.high - this.low, value - this.low];
    return Number.isFinite(all) ? part / all : (value / 2 - this.low / 2) / (this.high / 2 - this.low / 2);
  }

  say(at) {
    this.at = at;
    if (at === null) {
      this.reading.textContent = " ";
    } else {
      const { values, axes, units } = this.found;
      const value = values.values[at.length === 2 ? at[0] * values.shape[1] + at[1] : at[0]];
      const where = at.map((place, axis) => `${axes[axis].name} ${tick(axes[axis], place)}`).join(", ");
      this.reading.textContent = plain(`${where}: ${Number.isNaN(value) ? "no value" : isNear(this.low, this.high) ? precise(value) : number(value)}${units && !Number.isNaN(value) ? ` ${units}` : ""}`);
    }
  }
}

// The lowest and the highest finite value; null where there is none.
export function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low && value !== -Infinity) low = value;
    if (value > high && value !== Infinity) high = value;
  }
  return low <= high ? [low, high] : null;
}

// Two numbers around one, which differ however large it is.
function around(value) {
  const room = Math.max(0.5, Math.abs(value) * 1e-9);
  return [Math.max(-Number.MAX_VALUE, value - room), Math.min(Number.MAX_VALUE, value + room)];
}

// Round numbers between two with their texts; those of numbers that differ by little say how much is added to `base`.
function scale(low, high, most) {
  const found = ticks(low, high, most);
  const near = found.length > 1 && isNear(low, high);
  const marks = found.map((value) => [value, number(near ? value - found[0] : value)]);
  if (near) [marks.base] = found;
  return marks;
}

// Tells what has no value from what hardly differs, which is as pale.
function hatch(context, box) {
  context.save();
  context.beginPath();
  context.rect(box.x, box.y, box.width, box.height);
  context.clip();
  context.beginPath();
  for (let x = box.x - box.height; x < box.x + box.width; x += 8) {
    context.moveTo(x, box.y + box.height);
    context.lineTo(x + box.height, box.y);
  }
  context.strokeStyle = colour("--dim-chunk");
  context.lineWidth = 1;
  context.stroke();
  context.restore();
}

function drawBase(context, marks, x, y, width) {
  if (marks.base === undefined) return;
  const text = `${precise(marks.base)} +`;
  context.textAlign = "left";
  context.textBaseline = "top";
  context.fillStyle = colour("--soft");
  context.fillText(text, Math.max(0, Math.min(x, width - context.measureText(text).width)), y);
}

function longest(context, marks) {
  context.font = FONT;
  return Math.max(0, ...marks.map(([, text]) => context.measureText(text).width));
}

export function tick(axis, at) {
  return axis.labels !== null && axis.labels[at] !== undefined ? plain(axis.labels[at]) : String(axis.start + at * axis.step);
}

function title(axis) {
  return plain(axis.units ? `${axis.name} (${axis.units})` : axis.name);
}

// Of coordinates in metres all digits count.
function coordinate(value) {
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-4 || size >= 1e8) ? number(value) : String(value);
}

const LONGEST = 20;

// Pixels of the longest label of an axis; numbers are short.
function widest(context, axis) {
  if (axis.labels === null || axis.values !== null) return 0;
  context.font = FONT;
  const texts = axis.labels.slice(0, 400).map((label) => cut(label, LONGEST));
  return texts.length ? context.measureText(texts.reduce((most, text) => (text.length > most.length ? text : most))).width : 0;
}

function fitted(context, text, width) {
  let shown = text;
  for (let most = Math.min(text.length, 40); most > 1 && context.measureText(shown).width > width; most -= 1) shown = cut(text, most);
  return shown;
}

// A value between two that are missing, of which a line alone would show nothing.
function dot(context, x, y) {
  context.arc(x, y, 1.6, 0, 2 * Math.PI);
  context.moveTo(x, y);
}

function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

// Places along an axis with what to write there: round numbers where the axis has numbers, else labels of some items.
function axisTicks(axis, size, most) {
  const index = axis.labels === null ? Array.from({ length: size }, (_, at) => axis.start + at * axis.step) : null;
  const numbers = index || axis.values;
  if (size < 3 || numbers === null || !Array.isArray(numbers) || !isMonotonic(numbers)) return places(size, most).map((at) => [at, tick(axis, at)]);
  const [low, high] = [Math.min(numbers[0], numbers[size - 1]), Math.max(numbers[0], numbers[size - 1])];
  return ticks(low, high, most).filter((value) => axis.labels !== null || Number.isInteger(value)).map((value) => [placeAmong(numbers, value), axis.labels === null ? String(value) : coordinate(value)]);
}

function isMonotonic(numbers) {
  const sign = Math.sign(numbers[1] - numbers[0]);
  return sign !== 0 && numbers.every((each, at) => at === 0 || Math.sign(each - numbers[at - 1]) === sign);
}

// Where a number stands among numbers that rise or fall, between two of them too.
function placeAmong(numbers, value) {
  const rises = numbers[numbers.length - 1] > numbers[0];
  const after = numbers.findIndex((each) => (rises ? each >= value : each <= value));
  if (after <= 0) return after < 0 ? numbers.length - 1 : 0;
  return after - 1 + (value - numbers[after - 1]) / (numbers[after] - numbers[after - 1]);
}

function places(size, most) {
  const every = Math.max(1, Math.ceil(size / most));
  const found = [];
  for (let at = Math.floor(Math.min(every, size) / 2); at < size; at += every) found.push(at);
  return found;
}
