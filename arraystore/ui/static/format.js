// Numbers, sizes and times as text.

export function bytes(count) {
  let size = Number(count);
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]) {
    if (size < 1024) return unit === "B" ? `${size} B` : `${size.toFixed(size < 10 ? 2 : 1)} ${unit}`;
    size /= 1024;
  }
  return size < 1024 ? `${size.toFixed(1)} EiB` : `${Number(count).toExponential(2)} B`;
}

export function count(value) {
  const number = Number(value);
  return Number.isFinite(number) && Math.abs(number) < 1e15 ? number.toLocaleString("en") : number.toExponential(2);
}

export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return String(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return Number(value).toExponential(3);
  return String(Number(Number(value).toPrecision(6)));
}

// Whether two numbers are too near to each other for the digits that `number` shows.
export function isNear(low, high) {
  return high > low && high - low < 1e-4 * Math.max(Math.abs(low), Math.abs(high));
}

// All digits of a number.
export function precise(value) {
  return String(value);
}

export function when(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  const date = new Date(milliseconds);
  return Number.isNaN(date.getTime()) ? "–" : date.toISOString().replace("T", " ").slice(0, 16);
}

const STEPS = [[60, "minute"], [60, "hour"], [24, "day"], [30.44, "month"], [12, "year"]];

export function ago(milliseconds, now = Date.now()) {
  let value = (now - milliseconds) / 1000;
  if (!Number.isFinite(value)) return "–";
  if (value < 60) return value < -60 ? when(milliseconds) : "just now";
  let unit = "second";
  for (const [size, name] of STEPS) {
    if (value < size) break;
    value /= size;
    unit = name;
  }
  const whole = Math.floor(value);
  return `${whole} ${unit}${whole === 1 ? "" : "s"} ago`;
}

export function shape(sizes) {
  return sizes === null || sizes === undefined ? "–" : sizes.length ? sizes.map(count).join(" × ") : "scalar";
}

export function short(id) {
  return id.slice(0, 6) + "…" + id.slice(-5);
}

export function name(path) {
  return path ? path.slice(path.lastIndexOf("/") + 1) : "/";
}
