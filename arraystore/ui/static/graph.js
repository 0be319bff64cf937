// The lines of the graph of a history.

export const ROW = 36;
const SHORT = 64;

// Which rows are joined, so that those in sight are found without looking at all.
export class Edges {
  constructor({ parents, sources }, place) {
    this.ends = parents.map((parent) => (parent === -2 ? parents.length : parent));
    this.long = this.ends.flatMap((end, row) => (end - row > SHORT ? [[row, end]] : []));
    this.made = Object.entries(sources).map(([row, source]) => [Number(row), place.get(source) ?? -1]);
  }

  parents(first, last) {
    const found = this.long.filter(([row, end]) => row < last && end >= first);
    for (let row = Math.max(0, first - SHORT); row < Math.min(last, this.ends.length); row += 1) {
      const end = this.ends[row];
      if (end >= first && end - row <= SHORT) found.push([row, end]);
    }
    return found;
  }

  sources(first, last) {
    return this.made.filter(([row, at]) => row < last && at >= first);
  }
}

// Draws no more of a long line than what is in sight: the dashes of a thousand rows would take longer than a frame.
export function line(context, fromX, fromY, toX, toY, bottom) {
  const turn = Math.max(fromY, toY - ROW);
  context.beginPath();
  context.moveTo(fromX, Math.min(turn, Math.max(fromY, -ROW)));
  if (turn > bottom) context.lineTo(fromX, bottom + ROW);
  else if (fromX === toX) context.lineTo(toX, toY);
  else {
    context.lineTo(fromX, turn);
    context.bezierCurveTo(fromX, turn + ROW * 0.6, toX, toY - ROW * 0.6, toX, toY);
  }
  context.stroke();
}

// Joins two dots beside the line between them.
export function bow(context, fromX, fromY, toX, toY, width) {
  context.beginPath();
  context.moveTo(fromX, fromY);
  context.bezierCurveTo(fromX + width, fromY + ROW * 0.3, toX + width, toY - ROW * 0.3, toX, toY);
  context.stroke();
}
