// DOM helpers: create elements, change only what differs, update rows by key.

const SVG = 'http://www.w3.org/2000/svg';

/** @type {(id: string) => HTMLElement} */
export const byId = (id) => document.getElementById(id);

/**
 * Creates an HTML element; strings become text nodes, never markup.
 * @type {(tag: string, attributes?: Object, ...children: (Node | string | null)[]) => HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * Creates an SVG element.
 * @type {(tag: string, attributes?: Object, ...children: (Node | string | null)[]) => SVGElement}
 */
export function svgElement(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) {
      element.setAttribute(name, value === true ? '' : value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/**
 * Sets text only if it differs, to keep selections and not to disturb screen readers.
 * @type {(element: Element, value: string) => void}
 */
export function setText(element, value) {
  if (element.textContent !== value) {
    element.textContent = value;
  }
}

/**
 * Sets an attribute only if it differs; null, undefined and false remove it.
 * @type {(element: Element, name: string, value: any) => void}
 */
export function setAttr(element, name, value) {
  if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value === true ? '' : value);
  }
}

/**
 * Shows a formatted number, with the raw value in `data-value`. Skipped if the value is unchanged,
 * unless its text changes with time (`format.changesWithTime`).
 * @type {(element: Element, value: number | null, format: Function) => void}
 */
export function setNumber(element, value, format) {
  if (element.shown === value && element.format === format && !format.changesWithTime) {
    return;
  }
  element.shown = value;
  element.format = format;
  setAttr(element, 'data-value', value ?? '');
  setText(element, format(value));
}

/** Calls `draw` when a `details` element is opened; returns a function that tells whether it is. */
export function whileOpen(details, draw) {
  details.addEventListener('toggle', () => details.open && draw());
  return () => details.open;
}

/** Returns a function for the width of an element, cached to avoid forced layouts. */
export function widthOf(element, changed) {
  let width = 0;
  new ResizeObserver(([entry]) => {
    if (entry.contentRect.width !== width) {
      width = entry.contentRect.width;
      changed();
    }
  }).observe(element);
  return () => width || element.clientWidth;
}

/** Returns a function with the size of an element; `changed` is called when it changes. */
export function boxOf(element, changed) {
  const size = { width: 0, height: 0 };
  new ResizeObserver(([entry]) => {
    const { width, height } = entry.contentRect;
    if (width !== size.width || height !== size.height) {
      Object.assign(size, { width, height });
      changed();
    }
  }).observe(element);
  return () => (size.width ? size : { width: element.clientWidth, height: element.clientHeight });
}

const colors = new Map();

/** Returns a color variable of the style sheet, cached until the theme changes. */
export function color(name) {
  if (!colors.has(name)) {
    const style = getComputedStyle(document.documentElement);
    colors.set(name, style.getPropertyValue(`--${name}`).trim());
  }
  return colors.get(name);
}

/** Clears cached colors after a change of theme. */
export const clearColors = () => colors.clear();

/**
 * Updates the children of `parent` to match `items`, reusing elements by key and keeping the order.
 * `make(item)` creates an element, `update(element, item, index)` fills it.
 */
export function syncRows(parent, items, key, make, update) {
  const known = parent.rowsByKey ??= new Map();
  const next = new Map();
  let before = null;
  items.forEach((item, index) => {
    const name = key(item);
    const element = known.get(name) ?? make(item);
    known.delete(name);
    next.set(name, element);
    update(element, item, index);
    const place = before ? before.nextSibling : parent.firstChild;
    if (place !== element) {
      parent.insertBefore(element, place);
    }
    before = element;
  });
  known.forEach((element) => element.remove());
  parent.rowsByKey = next;
}

/**
 * Builds a table with columns `{label, field, show(item) or draw(cell, item), number, wide}`. The
 * first column contains row headers. Returns a function that shows items, optionally only those in
 * a `rowWindow`.
 */
export function table(element, columns, key, caption) {
  const head = columns.map((column) => h('th', {
    scope: 'col', class: classes(column), role: 'columnheader',
  }, column.label));
  const body = h('tbody', { role: 'rowgroup' });
  element.setAttribute('role', 'table');
  element.append(
    h('caption', { class: 'said' }, caption),
    h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, ...head)),
    body,
  );
  const make = () => h('tr', { role: 'row' }, ...columns.map((column, index) => h(
    index === 0 ? 'th' : 'td',
    {
      scope: index === 0 ? 'row' : null,
      role: index === 0 ? 'rowheader' : 'cell',
      class: classes(column),
      'data-label': column.label,
      'data-field': column.field,
    },
  )));
  const update = (row, item) => {
    setAttr(row, 'data-key', key(item));
    columns.forEach((column, index) => {
      const cell = row.children[index];
      if (column.draw) {
        column.draw(cell, item);
      } else if (column.format) {
        setNumber(cell, column.show(item), column.format);
      } else {
        setText(cell, column.show(item));
      }
    });
  };
  return (items, window) => {
    if (window || body.fillers) {
      fillers(body, window);
    }
    setAttr(element, 'aria-rowcount', window ? items.length + 1 : null);
    const shown = window ? items.slice(window.first, window.last) : items;
    syncRows(body, shown, key, make, (row, item, index) => {
      setAttr(row, 'aria-rowindex', window ? window.first + index + 2 : null);
      update(row, item);
    });
  };
}

/**
 * Virtual scrolling: computes which rows of equal height are visible in a scrolling box, with a
 * margin; two filler rows replace the others. `draw` is called when the visible range changes.
 */
export function rowWindow(box, height, draw) {
  const visible = { top: 0, height: 0 };
  const margin = 8;
  box.addEventListener('scroll', () => {
    visible.top = box.scrollTop;
    draw();
  }, { passive: true });
  new ResizeObserver(() => {
    if (visible.height !== box.clientHeight) {
      visible.height = box.clientHeight;
      draw();
    }
  }).observe(box);
  return (total) => {
    const count = Math.ceil((visible.height || 400) / height);
    const first = Math.max(0, Math.min(Math.floor(visible.top / height) - margin, total - count));
    const last = Math.min(total, first + count + 2 * margin);
    return { first, last, before: first * height, after: (total - last) * height };
  };
}

/** Sets the heights of the filler rows before and after the visible rows of a table. */
function fillers(body, heights) {
  body.fillers ??= ['before', 'after'].map((side) => {
    const filler = h('tbody', { class: 'filler', 'aria-hidden': 'true' }, h('tr', {}, h('td')));
    body[side](filler);
    return filler;
  });
  [heights?.before ?? 0, heights?.after ?? 0].forEach((height, index) => {
    body.fillers[index].hidden = height === 0;
    body.fillers[index].firstChild.firstChild.style.height = `${height}px`;
  });
}

function classes(column) {
  return [column.number ? 'number' : '', column.wide ? 'wide' : '', column.class ?? '']
    .filter(Boolean).join(' ') || null;
}

/**
 * Shows an empty-state message, or hides the element without one.
 * @type {(element: HTMLElement, message: string | null) => void}
 */
export function setEmpty(element, message) {
  element.hidden = !message;
  setText(element, message ?? '');
}

/** Fetches JSON from the host; throws an Error if it does not answer with JSON. */
export async function getJson(path) {
  const response = await fetch(path, { headers: { accept: 'application/json' } });
  if (!response.ok) {
    throw new Error(`status ${response.status}`);
  }
  return response.json();
}

/** Posts JSON to the host; throws an Error with the message of the host. */
export async function post(path, body) {
  const response = await fetch(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const json = await response.json().catch(() => ({ error: `status ${response.status}` }));
  if (!response.ok) {
    throw new Error(json.field ? `${json.field}: ${json.error}` : json.error);
  }
  return json;
}

/**
 * Announces a message to screen readers and shows it for four seconds.
 * @type {(message: string) => void}
 */
export function announce(message) {
  const element = byId('said');
  setText(element, message);
  element.classList.add('shown');
  clearTimeout(element.timer);
  element.timer = setTimeout(() => element.classList.remove('shown'), 4000);
}
