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

/** Shows a number: words for people, the number itself for programs. */
export function num(element, value, format) {
  attr(element, 'data-value', value ?? '');
  text(element, format(value));
}

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
 * first column is the header of its row. Returns a function that shows items.
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
  return (items) => rows(body, items, key, make, update);
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
