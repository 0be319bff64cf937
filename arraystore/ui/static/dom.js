// Elements made of text and attributes only: nothing that comes from a repository is ever parsed as markup.

const SHOWN = new Set(["aria-label", "label", "title"]);

// Shows characters that would reorder or hide others as what they are, so that no name looks like another one.
export function plain(text) {
  return text.replace(/[^\P{Cc}\n\r\t]|[\u202a-\u202e\u2066-\u2069]/gu, "\ufffd");
}

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : SHOWN.has(name) ? plain(String(value)) : String(value));
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(plain(String(child))));
  }
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

// Fades an element while one waits for what it is going to show.
export async function busy(element, work) {
  element.setAttribute("aria-busy", "true");
  try {
    return await work;
  } finally {
    element.removeAttribute("aria-busy");
  }
}

export function later(milliseconds, work) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), milliseconds);
  };
}

const known = new Map();

// Looked up once for all that is drawn at a time: a map has sixty thousand cells.
export function colour(name) {
  if (!known.size) setTimeout(() => known.clear());
  if (!known.has(name)) known.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return known.get(name);
}

const parsed = new Map();
const swatch = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });

// Red, green, blue and opacity of a colour of CSS, each from 0 to 255.
export function channels(paint) {
  let found = parsed.get(paint);
  if (found === undefined) {
    swatch.clearRect(0, 0, 1, 1);
    swatch.fillStyle = paint;
    swatch.fillRect(0, 0, 1, 1);
    found = swatch.getImageData(0, 0, 1, 1).data;
    if (parsed.size > 4096) parsed.clear();
    parsed.set(paint, found);
  }
  return found;
}

// Lays a canvas out in CSS pixels, sharp on any screen.
export function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// Calls work with the width of an element, now and whenever it changes.
export function onResize(element, work) {
  let last = -1;
  const observer = new ResizeObserver(() => {
    const width = element.clientWidth;
    if (width !== last && width > 0) {
      last = width;
      work(width);
    }
  });
  observer.observe(element);
}
