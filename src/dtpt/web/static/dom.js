/** Building blocks of the page: elements, figures, formatted numbers. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element. Text always becomes text, never markup.
 * @param {string} tag name of the element
 * @param {Object<string, any>} attributes `on...` are listeners, null is left out
 * @param {...(Node|string|number|null)} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * Make an SVG element; see `h`.
 * @returns {SVGElement}
 */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("aria-")) element.setAttribute(name, String(value));
    else if (value === false) continue;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** @param {string} id @returns {HTMLElement} */
export const byId = (id) => document.getElementById(id);

/** A fraction as percent: 0.1234 is "12.3 %"; tiny values do not become 0, nor large ones 100. */
export function percent(value, digits = 1) {
  const text = (100 * value).toFixed(digits);
  if (value > 0 && Number(text) === 0) return `< ${(10 ** -digits).toFixed(digits)}\u00a0%`;
  if (value < 1 && Number(text) === 100) return `> ${(100 - 10 ** -digits).toFixed(digits)}\u00a0%`;
  return `${text}\u00a0%`;
}

/** A difference of fractions in points: "+1.2". */
export function points(difference) {
  const text = (100 * difference).toFixed(1);
  return Number(text) === 0 ? "±0.0" : `${difference > 0 ? "+" : "−"}${text.replace("-", "")}`;
}

const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** A short number: 100000 is "10⁵", 250000 is "2.5·10⁵". */
export function power(value) {
  if (value < 1000) return String(Number(value.toPrecision(3)));
  const exponent = Math.floor(Math.log10(value) + 1e-9);
  const mantissa = Number((value / 10 ** exponent).toPrecision(2));
  const ten = `10${[...String(exponent)].map((digit) => SUPERSCRIPT[digit]).join("")}`;
  return mantissa === 1 ? ten : `${mantissa}·${ten}`;
}

/** Call a function after some milliseconds without another call. */
export function debounced(call, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), milliseconds);
  };
}

/**
 * Draw into an element now and whenever its width changes.
 * @param {HTMLElement} parent
 * @param {(width: number) => Node} draw
 */
export function drawn(parent, draw) {
  let last = 0;
  const observer = new ResizeObserver(() => {
    const width = Math.floor(parent.clientWidth);
    if (width === last || width === 0) return;
    last = width;
    parent.replaceChildren(draw(width));
  });
  observer.observe(parent);
  return parent;
}
