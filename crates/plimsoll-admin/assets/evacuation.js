// Zones in use: state of every zone, and taking one out of use after a preview of what that does.

import { announce, byId, h, post, setAttr, setText, syncRows, table } from './dom.js';
import { count, known, localityName, percent } from './format.js';

const PATH = 'api/v1/zones';
/** Share of failed requests that is marked. */
const ILL = 0.01;

let showZones = null;
/** Zone and preview of the open dialog. */
let asked = null;

/** Creates the table and the dialog. */
export function start() {
  showZones = table(byId('evacuation'), [
    { label: 'Zone', field: 'zone', class: 'nowrap', show: (zone) => zone.zone },
    { label: 'State', field: 'state', draw: state },
    { label: 'Hosts in use', field: 'hosts', number: true, draw: hosts },
    { label: 'Why', field: 'why', class: 'words', draw: why },
    { label: 'Change', field: 'change', draw: change },
  ], (zone) => zone.zone, 'Zones in use');
  byId('drain-partial').addEventListener('change', draw);
  byId('drain').addEventListener('close', () => {
    if (byId('drain').returnValue === 'start') {
      drain();
    }
  });
}

/** Shows the zones of a document. */
export function show({ evacuation, links }) {
  byId('evacuation-card').hidden = !evacuation;
  if (evacuation) {
    showZones(evacuation);
    showErrors(links ?? []);
  }
}

/** Draws the error matrix: a row per zone of the proxies, a column per zone of the hosts. */
function showErrors(links) {
  const names = (end) => [...new Set(links.map((link) => localityName(link[end])))].sort();
  const columns = names('to');
  const cell = (from, to) => links.find((link) => localityName(link.from) === from && localityName(link.to) === to);
  const head = h('tr', {}, h('th', { scope: 'col' }, 'From'), ...columns.map((to) => h('th', { scope: 'col', class: 'number' }, to)));
  const rows = names('from').map((from) => h('tr', {}, h('th', { scope: 'row' }, from), ...columns.map((to) => {
    const link = cell(from, to);
    const share = link ? link.failed / Math.max(1, link.requests) : null;
    return h('td', {
      class: 'number',
      'data-level': share >= ILL ? 'far' : null,
      title: link ? `${count(link.failed)} of ${count(link.requests)} requests` : null,
    }, link ? percent(share) : '');
  })));
  byId('errors').replaceChildren(h('thead', {}, head), h('tbody', {}, ...rows));
}

function state(cell, zone) {
  const words = zone.state.replace('_', ' ');
  const part = zone.drained_percent > 0 ? `, ${zone.drained_percent} % of its hosts out of use` : '';
  setAttr(cell, 'data-level', zone.state === 'in_service' ? null : 'above');
  setText(cell, `${words}${part}`);
}

function hosts(cell, zone) {
  setAttr(cell, 'data-value', zone.hosts_in_use);
  setText(cell, `${count(zone.hosts_in_use)} of ${count(zone.hosts)}`);
}

function why(cell, zone) {
  const until = known(zone.until_unix_ms) ? `, returns at ${new Date(zone.until_unix_ms).toLocaleTimeString()}` : '';
  setText(cell, zone.reason ? `${zone.reason}${until}` : '');
}

/** One button: drain a zone that is in use, or return one that is not. */
function change(cell, zone) {
  if (!cell.firstChild) {
    const button = h('button', { type: 'button' });
    button.addEventListener('click', () => (button.zone.out ? giveBack(button.zone.name) : preview(button.zone.name)));
    cell.append(button);
  }
  const button = cell.firstChild;
  const out = zone.state === 'draining' || zone.state === 'out';
  button.zone = { name: out ? zone.ordered_as : zone.zone, out };
  setText(button, out ? 'Return' : 'Drain…');
  setAttr(button, 'aria-label', `${out ? 'Return' : 'Drain'} ${zone.zone}`);
}

/** Asks what a drain would do, and opens the dialog. */
async function preview(zone) {
  try {
    const answer = await post(`${PATH}/drain`, { zone, dry_run: true });
    asked = { zone, answer };
    setText(byId('drain-title'), `Drain ${zone}`);
    byId('drain-reason').value = '';
    byId('drain-partial').checked = false;
    draw();
    byId('drain').returnValue = '';
    byId('drain').showModal();
  } catch (error) {
    announce(error.message);
  }
}

/** Shows the preview: what the check allows, and how full each service would be. */
function draw() {
  const { answer } = asked;
  const partial = byId('drain-partial').checked;
  const allowed = answer.allowed_percent;
  setText(byId('drain-preview'), `${answer.text.charAt(0).toUpperCase()}${answer.text.slice(1)}.`);
  setAttr(byId('drain-preview'), 'data-level', allowed < 100 ? 'above' : null);
  const utilization = (value) => (known(value) ? value.toFixed(2) : 'unknown');
  syncRows(byId('drain-services'), answer.services, (service) => service.cluster, () => h('li'), (item, service) => {
    setText(item, `${service.cluster}: fullest zone ${utilization(service.utilization_now)} now, `
      + `${utilization(service.utilization_without)} without${service.reason ? ` (${service.reason})` : ''}`);
  });
  byId('drain-start').disabled = allowed < 100 && !(partial && allowed > 0);
}

async function drain() {
  const { zone } = asked;
  const time = byId('drain-for').value.trim();
  try {
    const { order } = await post(`${PATH}/drain`, {
      zone,
      reason: byId('drain-reason').value,
      partial: byId('drain-partial').checked,
      ...(time && { for: time }),
    });
    announce(`${zone} drains to ${order.limit_percent} %`);
  } catch (error) {
    announce(error.message);
  }
}

async function giveBack(zone) {
  try {
    await post(`${PATH}/return`, { zone });
    announce(`${zone} returns`);
  } catch (error) {
    announce(error.message);
  }
}
