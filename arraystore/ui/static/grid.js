// Chunks as cells on a canvas: a pointer or the arrow keys say which one, a function says its colour and its meaning.

import { channels, colour, h, onResize, sized } from "./dom.js";

export class Grid {
  // tint(cell) returns a colour, tell(cell) what to say of it
  constructor({ label, tint, tell }) {
    this.tint = tint;
    this.tell = tell;
    this.at = -1;
    this.canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": label });
    this.reading = h("p", { class: "reading", "aria-live": "polite" }, " ");
    this.root = h("div", { class: "grid" }, this.canvas, this.reading);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.read(-1));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    onResize(this.root, () => this.draw());
  }

  set(rows, columns, cells) {
    this.rows = rows;
    this.columns = columns;
    this.cells = cells;
    this.canvas.hidden = !cells;
    const at = this.at < cells ? this.at : -1;
    this.at = null;  // what is said of it may be another thing now
    this.read(at);
    this.draw();
  }

  draw() {
    const width = this.root.clientWidth;
    if (!this.cells || width === 0) return;
    const most = Math.max(3, Math.floor(320 / this.rows));
    this.side = Math.max(1.5, Math.min(26, most, Math.floor(width / this.columns) || width / this.columns));
    this.side = Math.min(this.side, width / this.columns);
    const gap = this.side >= 8 ? 2 : this.side >= 4 ? 1 : 0;
    this.gap = gap;
    this.cellsDrawn = h("canvas");
    const context = sized(this.cellsDrawn, this.columns * this.side + 4, this.rows * this.side + 4);
    if (gap) this.drawCells(context);
    else this.drawPixels(context);
    this.mark();
  }

  // Cells with room between them.
  drawCells(context) {
    const { gap } = this;
    const radius = gap === 2 ? 3 : 0;
    for (let cell = 0; cell < this.cells; cell += 1) {
      const x = (cell % this.columns) * this.side + 2;
      const y = Math.floor(cell / this.columns) * this.side + 2;
      context.fillStyle = this.tint(cell);
      if (radius) {
        context.beginPath();
        context.roundRect(x, y, this.side - gap, this.side - gap, radius);
        context.fill();
      } else {
        context.fillRect(x, y, this.side - gap, this.side - gap);
      }
    }
  }

  // Cells side by side, as the pixels of a picture.
  drawPixels(context) {
    const picture = h("canvas", { width: this.columns, height: this.rows });
    const small = picture.getContext("2d");
    const image = small.createImageData(this.columns, this.rows);
    for (let cell = 0; cell < this.cells; cell += 1) image.data.set(channels(this.tint(cell)), 4 * cell);
    small.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, 2, 2, this.columns * this.side, this.rows * this.side);
  }

  // Shows what was drawn, with a frame around the cell that is read.
  mark() {
    const { side, gap, columns } = this;
    const context = sized(this.canvas, columns * side + 4, this.rows * side + 4);
    context.drawImage(this.cellsDrawn, 0, 0, columns * side + 4, this.rows * side + 4);
    if (!(this.at >= 0)) return;
    context.strokeStyle = colour("--ink");
    context.lineWidth = 2;
    context.strokeRect((this.at % columns) * side + 1, Math.floor(this.at / columns) * side + 1, Math.max(4, side - gap + 2), Math.max(4, side - gap + 2));
  }

  point(event) {
    if (!this.cells) return;
    const bounds = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - bounds.left - 2) / this.side);
    const row = Math.floor((event.clientY - bounds.top - 2) / this.side);
    const cell = row * this.columns + column;
    this.read(column >= 0 && column < this.columns && row >= 0 && cell < this.cells ? cell : -1);
  }

  key(event) {
    const moves = { ArrowUp: -this.columns, ArrowDown: this.columns, ArrowLeft: -1, ArrowRight: 1, Home: -this.at, End: this.cells - 1 - this.at };
    if (!(event.key in moves) || !this.cells) return;
    event.preventDefault();
    const next = this.at < 0 && event.key !== "End" ? 0 : this.at + moves[event.key];
    if (next >= 0 && next < this.cells) this.read(next);
  }

  read(cell) {
    if (cell === this.at) return;
    this.at = cell;
    this.reading.textContent = cell < 0 ? " " : this.tell(cell);
    if (this.cellsDrawn) this.mark();
  }
}

// Coordinates of the chunks of a picture cell, as text.
export function placeOf(picture, cell) {
  const span = (start, step, size) => (step === 1 ? String(start) : `${start}–${Math.min(start + step, size) - 1}`);
  if (picture.axes === null) {
    const long = picture.grid.indexOf(Math.max(...picture.grid));
    return `(${picture.grid.map((size, axis) => (axis === long ? span(cell * picture.step[1], picture.step[1], size) : picture.index[axis])).join(", ")})`;
  }
  const [down, across] = picture.axes;
  const row = Math.floor(cell / picture.columns) * picture.step[0];
  const column = (cell % picture.columns) * picture.step[1];
  return `(${picture.grid.map((size, axis) => (axis === down ? span(row, picture.step[0], size) : axis === across ? span(column, picture.step[1], size) : picture.index[axis])).join(", ")})`;
}

// Number of picture cells: the last row of a wrapped axis may be shorter.
export function cellsOf(picture) {
  if (picture.axes !== null) return picture.rows * picture.columns;
  const most = picture.grid.length ? Math.max(...picture.grid) : 1;
  return picture.grid.includes(0) ? 0 : Math.ceil(most / picture.step[1]);
}
