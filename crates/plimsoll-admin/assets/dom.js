// Small helpers around the DOM: make elements, change only what differs, keep rows by key.

const SVG = 'http://www.w3.org/2000/svg';

/** The element of that id. */
export const at = (id) => document.getElementById(id);

/** An HTML element with attributes and children; text is never read as markup. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes = {}, ...children) {
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

/** Sets text only if it differs: selections and screen readers are left in peace. */
export function text(element, value) {
  if (element.textContent !== value) {
    element.textContent = value;
  }
}

/** Sets an attribute only if it differs. */
export function attr(element, name, value) {
  if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value === true ? '' : value);
  }
}

/**
 * Shows a number: words for people, the number itself for programs. What shows the same number
 * already is left alone, unless its words move with time (`format.moves`).
 */
export function num(element, value, format) {
  if (element.shown === value && element.format === format && !format.moves) {
    return;
  }
  element.shown = value;
  element.format = format;
  attr(element, 'data-value', value ?? '');
  text(element, format(value));
}

/** The content of a `details` that changes only while it is open; `draw` when that begins. */
export function whileOpen(details, draw) {
  details.addEventListener('toggle', () => details.open && draw());
  return () => details.open;
}

/** Width of an element without asking for a layout each time it is drawn. */
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

const colours = new Map();

/** A colour of the style sheet, looked up once per theme. */
export function colour(name) {
  if (!colours.has(name)) {
    const style = getComputedStyle(document.documentElement);
    colours.set(name, style.getPropertyValue(`--${name}`).trim());
  }
  return colours.get(name);
}

/** The theme is another one. */
export const forgetColours = () => colours.clear();

/**
 * Keeps the children of `parent` in step with `items`: known keys are updated in place, in order.
 * `make(item)` builds an element, `update(element, item, index)` fills it.
 */
export function rows(parent, items, key, make, update) {
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
 * A table whose columns are `{label, field, show(item) or draw(cell, item), number, wide}`. The
 * first column is the header of its row. Returns a function that shows items, of many those in a
 * `rowWindow` only.
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
    attr(row, 'data-key', key(item));
    columns.forEach((column, index) => {
      const cell = row.children[index];
      if (column.draw) {
        column.draw(cell, item);
      } else if (column.format) {
        num(cell, column.show(item), column.format);
      } else {
        text(cell, column.show(item));
      }
    });
  };
  return (items, window) => {
    if (window || body.fillers) {
      fillers(body, window);
    }
    attr(element, 'aria-rowcount', window ? items.length + 1 : null);
    const shown = window ? items.slice(window.first, window.last) : items;
    rows(body, shown, key, make, (row, item, index) => {
      attr(row, 'aria-rowindex', window ? window.first + index + 2 : null);
      update(row, item);
    });
  };
}

/**
 * Which of many rows of one height are near what is seen of a box, so that only those are made;
 * the others are two fillers as high as all of them. `draw` is called when others come into sight.
 */
export function rowWindow(box, height, draw) {
  const seen = { top: 0, height: 0 };
  const spare = 8;
  box.addEventListener('scroll', () => {
    seen.top = box.scrollTop;
    draw();
  }, { passive: true });
  new ResizeObserver(() => {
    if (seen.height !== box.clientHeight) {
      seen.height = box.clientHeight;
      draw();
    }
  }).observe(box);
  return (total) => {
    const rowsSeen = Math.ceil((seen.height || 400) / height);
    const first = Math.max(0, Math.min(Math.floor(seen.top / height) - spare, total - rowsSeen));
    const last = Math.min(total, first + rowsSeen + 2 * spare);
    return { first, last, before: first * height, after: (total - last) * height };
  };
}

/** Puts fillers around the rows of a table, or takes them away. */
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

/** Shows an empty state with these words, or none. */
export function empty(element, words) {
  element.hidden = !words;
  text(element, words ?? '');
}

/** Asks the host; throws an Error with its words. */
export async function post(path, body) {
  const answer = await fetch(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const json = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
  if (!answer.ok) {
    throw new Error(json.field ? `${json.field}: ${json.error}` : json.error);
  }
  return json;
}

/** Says something to screen readers, and for a moment to everybody. */
export function say(words) {
  const said = at('said');
  text(said, words);
  said.classList.add('shown');
  clearTimeout(said.timer);
  said.timer = setTimeout(() => said.classList.remove('shown'), 4000);
}
