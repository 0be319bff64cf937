// Colour scales: one that rises in lightness, one with a neutral middle, one for categories.

const RISING = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
const TURNING = ["#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b", "#67001f"];
export const CATEGORIES = ["#4269d0", "#c98a00", "#e8573f", "#3f9c88", "#3ca951", "#d9608f", "#9a5fe0", "#4f94d8", "#8a6b4f", "#7a7f87"];

function table(stops) {
  const colours = stops.map((text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)));
  const result = new Uint8ClampedArray(256 * 3);
  for (let at = 0; at < 256; at += 1) {
    const place = (at / 255) * (colours.length - 1);
    const low = Math.min(Math.floor(place), colours.length - 2);
    for (let part = 0; part < 3; part += 1) {
      result[3 * at + part] = colours[low][part] + (place - low) * (colours[low + 1][part] - colours[low][part]);
    }
  }
  return result;
}

export const rising = table(RISING);
export const turning = table(TURNING);

export function shade(scale, share) {
  const at = 3 * Math.round(255 * Math.min(1, Math.max(0, share)));
  return `rgb(${scale[at]} ${scale[at + 1]} ${scale[at + 2]})`;
}

// Round values between two numbers, about as many as fit.
export function ticks(low, high, most = 6) {
  if (!(high > low)) return [low];
  if (!Number.isFinite(high - low)) return [low, 0, high];
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? power * 10;
  const first = Math.ceil(low / step - 1e-9);
  const found = [];
  for (let at = 0; at <= 2 * most + 2; at += 1) {  // first may be so large that one more is the same number
    const value = (first + at) * step;
    if (!(value <= high + step * 1e-9)) break;
    if (value !== found.at(-1)) found.push(Math.abs(first) < 1e12 ? Number(value.toPrecision(12)) : value);
  }
  return found;
}
