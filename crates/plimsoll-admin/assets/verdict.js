// The verdict: what is wrong, why, and what to do, with links to what an operator looks at next.

import { byId, h, setAttr, setText, syncRows } from './dom.js';
import { localityName } from './format.js';
import { clusterKey } from './store.js';
import { explain } from './zones.js';

/** Sections of the page by the path of the API that has the same. */
const SECTIONS = {
  '/api/v1/nodes': { text: 'Nodes', href: '#nodes-card' },
  '/api/v1/replicas': { text: 'Replicas', href: '#replicas-card' },
  '/api/v1/audit': { text: 'Events', href: '#events-card' },
};
/** Starts a sentence, but leaves names such as r1/zone-a alone. */
const capital = (text) => (/^[a-z]+[\s:,]/.test(text) ? `${text.charAt(0).toUpperCase()}${text.slice(1)}` : text);

/** Shows the verdict; `select(key)` shows another cluster. */
export function show(state, select) {
  const { verdict } = state;
  byId('verdict').hidden = !verdict;
  if (!verdict) {
    return;
  }
  setAttr(byId('verdict'), 'data-severity', verdict.severity);
  setText(byId('verdict-what'), `${capital(verdict.what)}.`);
  const others = verdict.others ? ` ${verdict.others} other ${verdict.others === 1 ? 'problem' : 'problems'}.` : '';
  const rest = [verdict.why, verdict.remedy].filter(Boolean).map((part) => `${capital(part)}.`);
  setText(byId('verdict-why'), `${rest.join(' ')}${others}`);
  byId('verdict-why').hidden = rest.length === 0 && !others;
  syncRows(byId('verdict-links'), links(state, verdict, select), (link) => link.text,
    () => h('a', { href: '#main' }), (element, link) => {
      setText(element, link.text);
      setAttr(element, 'href', link.href);
      element.onclick = link.open ?? null;
    });
  byId('verdict-links').hidden = !byId('verdict-links').firstChild;
}

/** Returns what an operator looks at next. */
function links(state, verdict, select) {
  const section = SECTIONS[verdict.see];
  const all = section ? [section] : [];
  const key = verdict.cluster && clusterKey(verdict);
  const cluster = key && state.clusters.get(key);
  if (!cluster) {
    return all;
  }
  const open = () => select(key);
  if (state.explain && verdict.locality) {
    const name = localityName(verdict.locality);
    const explained = (event) => {
      event.preventDefault();
      open();
      explain(cluster, verdict.locality, name);
    };
    all.push({ text: `Explain ${name}`, href: '#routing-card', open: explained });
  }
  if (cluster.enforce && (cluster.mode !== 'ENFORCE' || cluster.ramp_percent < 100)) {
    all.push({ text: 'Compare with ENFORCE', href: '#compare-card', open });
  }
  if (state.what_if) {
    all.push({ text: 'What if', href: '#whatif-card', open });
  }
  return all;
}
