// The page of `holdfast serve`. It receives an event for each survey: first the whole survey, then only the changes
// (json.c). Everything from the server is put into the page as text, never as markup.
'use strict';

const $ = id => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';
const STEP = 300;          // rows that are shown at a time
const STUCK_MS = 60000;    // a wait that is longer is stuck, as for `holdfast ls --stuck`
const OLD_PERIODS = 4;     // a view that is older than so many surveys take is said to be old
const LOCK_EVENTS = 500;   // of a lock that are shown

const state = {
  locks: new Map(), clients: new Map(), deadlocks: [], rates: [],
  dead: new Set(),         // 'waiter owner\0lock' of every step of a deadlock
  frame: null, at: 0,      // the latest event, and when it came (performance.now())
  connected: false, lostAt: 0, token: '', shown: STEP, route: { view: 'locks' },
};

// ---- Time -------------------------------------------------------------------------------------------

const serverNow = () => state.frame ? state.frame.now + (performance.now() - state.at) : Date.now();

function duration(ms) {
  if (ms == null || ms < 0) return '–';
  const s = Math.floor(ms / 1000);
  if (s < 60) return s + ' s';
  if (s < 3600) return Math.floor(s / 60) + 'm ' + String(s % 60).padStart(2, '0') + 's';
  if (s < 86400) return Math.floor(s / 3600) + 'h ' + String(Math.floor(s / 60) % 60).padStart(2, '0') + 'm';
  return Math.floor(s / 86400) + 'd ' + Math.floor(s / 3600) % 24 + 'h';
}
const clock = ms => new Date(ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });

// ---- Small tools ------------------------------------------------------------------------------------

function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === 'class') node.className = value;
    else node.setAttribute(key, value);
  }
  node.append(...children.filter(child => child != null));
  return node;
}
function draw(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text != null) node.textContent = text;
  return node;
}
// Writing an unchanged text would make the browser lay it out again.
function setText(node, text) { if (node.textContent !== text) node.textContent = text; }
function setClass(node, text) { if (node.className !== text) node.className = text; }
function setHidden(node, hidden) { if (node.hidden !== hidden) node.hidden = hidden; }
const cut = (text, most) => text.length > most ? text.slice(0, most - 1) + '…' : text;
const plural = (n, one, many) => n + ' ' + (n === 1 ? one : many);
const lockLink = name => '#/lock/' + encodeURIComponent(name);

// An owner without a description is shown by its uuid, shortened; the lock's page has all of it.
const who = party => party.host ? `${party.host} ${party.pid} ${party.program}` : party.owner.replace(/^([0-9a-f]{8})-[0-9a-f-]{27}/, '$1…');
function freeText(lock) { return lock.available == null ? '' : `, ${lock.available} free`; }
function holderOf(lock) { return lock.holders.find(party => party.seen_by_server) || lock.holders[0]; }
function actorOf(owner) {
  const client = state.clients.get(owner.split(':')[0]);
  return client && client.under ? client.under : owner;
}

// ---- What is known of a lock ------------------------------------------------------------------------

// Durations become points in time, so that they advance between surveys.
function take(lock, taken) {
  const before = state.locks.get(lock.name);
  const parties = [...lock.holders, ...lock.waiters];
  for (const party of parties) {
    party.since = party.for_ms == null ? null : taken - party.for_ms;
    party.until = party.remaining_ms == null ? null : taken + party.remaining_ms;
  }
  lock.until = lock.ttl_ms == null ? null : taken + lock.ttl_ms;
  lock.span = Math.max(lock.ttl_ms || 0, before && before.span || 0, 1);
  lock.text = [lock.name, ...parties.map(who), ...parties.map(party => party.owner)].join('\n').toLowerCase();
  lock.row = before && before.row;
  state.locks.set(lock.name, lock);
}

const oldestWait = lock => lock.waiters.reduce((least, party) =>
  party.since != null && party.since < least ? party.since : least, Infinity);
const isDead = lock => lock.waiters.some(party => state.dead.has(party.owner + '\0' + lock.name));
function isStuck(lock, now) {
  return lock.holders.some(party => party.state === 'silent' || party.state === 'gone') ||
    now - oldestWait(lock) >= STUCK_MS;
}
function severity(lock, now) {
  if (isDead(lock)) return 4;
  if (isStuck(lock, now)) return lock.waiting > 0 ? 3 : 2;
  return lock.waiting > 0 ? 1 : 0;
}

// ---- The list of locks ------------------------------------------------------------------------------

const orders = {
  name: () => 0,
  severity: (a, b) => b.rank - a.rank || oldestWait(a) - oldestWait(b) || 0,
  age: (a, b) => ((holderOf(a) || {}).since ?? Infinity) - ((holderOf(b) || {}).since ?? Infinity) || 0,
  ttl: (a, b) => (b.until ?? -1) - (a.until ?? -1),
  waiters: (a, b) => b.waiting - a.waiting,
};

function cell(label, attributes, ...children) {
  return make('td', { role: 'cell', 'data-label': label, ...attributes }, ...children);
}
function ttlBar() {
  const fill = make('i'), bar = make('div', { class: 'bar', 'aria-hidden': 'true' }, fill), text = make('span');
  return { fill, bar, text, box: make('div', { class: 'ttl' }, bar, text) };
}
function makeRow(lock) {
  const row = { tr: make('tr', { role: 'row' }), ttl: ttlBar() };
  row.link = make('a', { href: lockLink(lock.name) }, lock.name);
  row.state = make('span', { class: 'state' });
  row.holder = document.createTextNode('');
  row.held = document.createTextNode('');
  row.number = make('b');
  row.names = document.createTextNode('');
  row.waiting = cell('Waiting', {}, make('span', { class: 'line' }, row.number, row.names));
  row.ttlCell = cell('Time to live', {}, row.ttl.box);
  row.tr.append(cell('Name', {}, row.link), cell('State', {}, row.state), cell('Holder', {}, row.holder),
    cell('Held for', { class: 'num' }, row.held), row.ttlCell, row.waiting);
  return row;
}

function showTtl(ttl, until, span, now) {
  const left = until == null ? null : Math.max(0, until - now);
  setText(ttl.text, left == null ? 'no end' : duration(left));
  const part = left == null ? 1 : Math.min(1, left / span);
  ttl.fill.style.transform = `scaleX(${part.toFixed(2)})`;
  setClass(ttl.bar, part < .2 ? 'bar low' : 'bar');
}
function waitersText(lock) {
  const named = lock.waiters.slice(0, 3).map(who).join(', ');
  const more = lock.waiting - Math.min(3, lock.waiters.length);
  return (named ? '  ' + named : '') + (named && more > 0 ? ` and ${more} more` : '');
}
// The part that changes with the lock, and the part that changes with time.
function fillRow(lock) {
  const row = lock.row, holder = holderOf(lock);
  const word = lock.rank === 4 ? 'deadlock' : holder ? holder.state : 'free';
  setText(row.state, word + (lock.disputed ? ' !' : ''));
  setClass(row.state, 'state ' + (word === 'deadlock' ? 'deadlock-state' : word));
  row.state.title = lock.disputed ? 'The server and the clients disagree' : '';
  const more = lock.holders.length - 1;
  row.holder.data = holder ? who(holder) + (more > 0 ? ` +${more}` : '') + freeText(lock) : '–';
  setText(row.number, lock.waiting ? String(lock.waiting) : '–');
  row.names.data = lock.waiting ? waitersText(lock) : '';
  setClass(row.tr, lock.rank === 4 ? 'dead' : lock.rank >= 2 ? 'stuck' : '');
  setClass(row.waiting, lock.waiting ? '' : 'dim empty-cell');
}
function tickRow(lock, now) {
  const holder = holderOf(lock);
  const held = holder && holder.since != null ? duration(now - holder.since) : '–';
  if (lock.row.held.data !== held) lock.row.held.data = held;
  showTtl(lock.row.ttl, lock.until, lock.span, now);
}

function chosenLocks(now) {
  const wanted = $('search').value.trim().toLowerCase(), show = $('show').value, order = orders[$('sort').value];
  const chosen = [];
  for (const lock of state.locks.values()) {
    lock.rank = severity(lock, now);
    if (wanted && !lock.text.includes(wanted)) continue;
    if (show === 'waited' && !lock.waiting || show === 'stuck' && lock.rank < 2) continue;
    chosen.push(lock);
  }
  return chosen.sort((a, b) => order(a, b) || (a.name < b.name ? -1 : 1));
}
// Rows stay the same elements, so focus and selection survive. Only rows at a new position are moved.
function place(body, rows) {
  let at = body.firstChild;
  for (const row of rows) {
    if (row === at) at = at.nextSibling;
    else body.insertBefore(row, at);
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}
function showLocks(now) {
  const chosen = chosenLocks(now), visible = chosen.slice(0, state.shown);
  for (const lock of visible) {
    if (!lock.row) lock.row = makeRow(lock);
    if (lock.filled !== lock.rank) { fillRow(lock); lock.filled = lock.rank; }
    tickRow(lock, now);
  }
  place($('locks'), visible.map(lock => lock.row.tr));
  const all = state.locks.size;
  setText($('count'), chosen.length === all ? plural(all, 'lock', 'locks') : `${chosen.length} of ${all}`);
  setHidden($('locks-empty'), chosen.length > 0 || !state.frame || state.frame.taken == null);
  setText($('locks-empty'), all ? 'No lock matches.' : 'No lock is held, and nobody waits for one.');
  setHidden($('more'), chosen.length <= state.shown);
  setText($('more'), `Show more (${chosen.length - visible.length} left)`);
}

// ---- One lock ---------------------------------------------------------------------------------------

function partyItem(party, waits) {
  const fine = [party.owner];
  if (party.count > 1) fine.push(`held ${party.count} times`);
  if (!waits && party.seen_by_client) fine.push(party.renewed ? 'renewed by its client' : 'fixed lease');
  if (!party.seen_by_server && !waits) fine.push('not on the server');
  const item = { party, waits, time: make('span'), ends: document.createTextNode('') };
  const word = make('span', { class: 'state ' + party.state }, party.state);
  item.li = make('li', {}, make('div', {},
    make('div', { class: 'party-head' }, make('span', {}, who(party)), item.time),
    make('div', { class: 'party-fine' }, word, ' · ' + party.kind + ' · ' + fine.join(' · '), item.ends)));
  return item;
}
function tickParty(item, now) {
  const { party } = item;
  setText(item.time, party.since == null ? '–' : duration(now - party.since));
  const ends = item.waits && party.until != null ? ' · gives up in ' + duration(Math.max(0, party.until - now)) : '';
  if (item.ends.data !== ends) item.ends.data = ends;
}
// Rebuilt only when the lock has changed, so that selected text stays selected.
let lockShown = null;
function makeLock(name, lock) {
  lockShown = { name, lock, items: [], ttl: ttlBar() };
  setText($('h-lock'), name);
  setText($('lock-kind'), lock ? lock.kind + freeText(lock) : '');
  setHidden($('lock-kind'), !lock);
  // A name with name_hex cannot be written in a path, and no other lock must be broken instead.
  setHidden($('break'), !(state.frame.allow_break && lock && lock.holders.length && !lock.name_hex));
  setHidden($('lock-note'), !(lock && lock.disputed));
  setText($('lock-note'), 'The server and the clients disagree on who holds it. That is normal for a moment.');
  const holders = (lock ? lock.holders : []).map(party => partyItem(party, false));
  const waiters = (lock ? lock.waiters : []).map(party => partyItem(party, true));
  if (holders.length) holders[0].li.firstChild.append(lockShown.ttl.box);
  lockShown.items = [...holders, ...waiters];
  const nobody = () => make('li', { class: 'none' }, 'Nobody.');
  const unlisted = lock ? lock.waiting - waiters.length : 0;
  const more = unlisted > 0 ? [make('li', { class: 'none' }, `${unlisted} more, without details`)] : [];
  $('lock-holders').replaceChildren(...(holders.length ? holders.map(item => item.li) : [nobody()]));
  $('lock-waiters').replaceChildren(...waiters.map(item => item.li), ...more, ...(waiters.length || more.length ? [] : [nobody()]));
}
function showLock(now) {
  const name = state.route.name, lock = state.locks.get(name);
  if (!lockShown || lockShown.name !== name || lockShown.lock !== lock) makeLock(name, lock);
  for (const item of lockShown.items) tickParty(item, now);
  if (lock && lock.holders.length) showTtl(lockShown.ttl, lock.until, lock.span, now);
  showHistory(name);
}
// ---- What happened to a lock ------------------------------------------------------------------------

const partyName = party => party.who || (party.owner || '').replace(/^([0-9a-f]{8})-[0-9a-f-]{27}/, '$1…') || 'an unknown client';
const held = event => event.for_ms == null ? '' : ' after ' + duration(event.for_ms);
const eventTexts = {
  held: event => `held by ${partyName(event)} when holdfast serve began`,
  acquired: event => event.from ? `handed over from ${partyName(event.from)} to ${partyName(event)}` : `acquired by ${partyName(event)}`,
  released: event => `released by ${partyName(event)}${held(event)}`,
  ended: event => `no longer held by ${partyName(event)}${held(event)}`,
  expired: event => `lease over, was held by ${partyName(event)}`,
  broken: event => event.owner ? `broken, held by ${partyName(event)}` : 'broken',
  lost: event => event.name == null ? `${event.count || 1} lost by ${partyName(event)}: of which lock is not known`
    : `lost by ${partyName(event)}: broken, or its lease ended`,
  long_wait: event => `${partyName(event)} waits for ${duration(event.for_ms)}` + (event.from ? `, held by ${partyName(event.from)}` : ''),
  deadlock: event => 'deadlock: ' + event.text,
  away: event => 'the lock server does not answer: ' + event.text,
  back: () => 'the lock server answers again',
  started: () => 'holdfast serve began',
  stopped: () => 'holdfast serve ended',
};
const eventText = event => (eventTexts[event.event] || (() => event.event))(event) +
  (event.within_ms > 2000 ? `, or up to ${duration(event.within_ms)} earlier` : '');
function eventTime(ms) {
  const day = new Date(ms);
  return (day.toDateString() === new Date(serverNow()).toDateString() ? '' : day.toLocaleDateString() + ' ') + clock(ms);
}

// Read when a lock's page is opened, and again when a survey shows something new of it.
const past = { name: null, events: [], due: false, reading: false };
// A name that is no text can only be written by its bytes.
function historyPath(name) {
  const lock = state.locks.get(name);
  if (lock && /^(..)*?00/.test(lock.name_hex || '')) return null; // no path can have a NUL
  return '/api/history/' + (lock && lock.name_hex ? lock.name_hex.replace(/../g, '%$&') : encodeURIComponent(name));
}
async function readHistory(name) {
  const path = historyPath(name);
  past.due = false;
  if (!path) return;
  past.reading = true;
  try {
    const answer = await fetch(`${path}?limit=${LOCK_EVENTS}`, { headers: headers(), cache: 'no-store' });
    if (answer.ok && past.name === name) past.events = (await answer.json()).history.reverse();
  } catch { past.due = true; }
  past.reading = false;
  if (past.name === name) drawHistory();
}
function drawHistory() {
  $('lock-events').replaceChildren(...(past.events.length ? past.events.map(event => make('li', {},
    make('time', { datetime: event.time }, eventTime(Date.parse(event.time))),
    make('span', {}, eventText(event))))
    : [make('li', { class: 'none' }, make('span', {}, 'None so far.'))]));
}
function showHistory(name) {
  if (past.name !== name) {
    Object.assign(past, { name, events: [], due: true });
    drawHistory();
  }
  if (past.due && !past.reading) readHistory(name);
}

// ---- Who waits for whom -----------------------------------------------------------------------------

// Waiters of the same lock that hold nothing others want share one node.
function buildGraph() {
  const nodes = new Map(), edges = [], wanted = new Set();
  for (const lock of state.locks.values())
    if (lock.waiters.length) for (const party of lock.holders) wanted.add(actorOf(party.owner));
  const node = (key, label, sub) => {
    if (!nodes.has(key)) nodes.set(key, { key, label, sub: sub || '', has: [], out: [], in: [], dead: false });
    return nodes.get(key);
  };
  for (const lock of state.locks.values()) // who holds gives a node its name, and not who waits on its behalf
    if (lock.waiters.length) for (const party of lock.holders.slice(0, 4)) node(actorOf(party.owner), who(party));
  for (const lock of state.locks.values()) {
    if (!lock.waiters.length || !lock.holders.length) continue;
    const holders = lock.holders.slice(0, 4).map(party => node(actorOf(party.owner), who(party)));
    for (const holder of holders) holder.has.push(lock.name);
    const crowd = lock.waiters.filter(party => !wanted.has(actorOf(party.owner)));
    const link = (from, dead) => {
      for (const to of holders) {
        if (from === to) continue;
        const edge = { from, to, lock: lock.name, dead };
        edges.push(edge); from.out.push(edge); to.in.push(edge);
        if (dead) from.dead = to.dead = true;
      }
    };
    for (const party of lock.waiters)
      if (wanted.has(actorOf(party.owner)) || crowd.length === 1)
        link(node(actorOf(party.owner), who(party)), state.dead.has(party.owner + '\0' + lock.name));
    if (crowd.length > 1)
      link(node('crowd\0' + lock.name, plural(crowd.length, 'waiter', 'waiters'), crowd.slice(0, 2).map(who).join(', ') +
        (crowd.length > 2 ? ', …' : '')), false);
  }
  for (const one of nodes.values()) one.sub = one.has.length ? 'holds ' + one.has.join(', ') : one.sub || 'waits';
  return { nodes: [...nodes.values()], edges };
}
// Columns by distance from a holder that does not wait itself; a cycle starts anywhere.
function layOut(graph) {
  const seen = new Set();
  let slot = 0, columns = 0;
  const visit = (node, column) => {
    seen.add(node);
    node.column = column;
    columns = Math.max(columns, column + 1);
    const rows = [];
    for (const edge of node.in)
      if (!seen.has(edge.from)) rows.push(visit(edge.from, column + 1));
    node.row = rows.length ? (rows[0] + rows[rows.length - 1]) / 2 : slot++;
    return node.row;
  };
  const roots = [...graph.nodes].sort((a, b) => b.dead - a.dead || a.out.length - b.out.length || b.in.length - a.in.length);
  const begin = node => {
    visit(node, 0);
    if (node.out.length) slot += .8; // room for what closes the circle
  };
  for (const node of roots) if (!seen.has(node) && (node.dead || !node.out.length)) begin(node);
  for (const node of roots) if (!seen.has(node)) begin(node);
  return { rows: slot, columns };
}
const NODE = { w: 214, h: 48, gapX: 150, gapY: 22, pad: 26 };
function showGraph(graph) {
  const svg = $('graph');
  const few = { nodes: graph.nodes.slice(0, 80), edges: graph.edges.filter(e => graph.nodes.indexOf(e.from) < 80 && graph.nodes.indexOf(e.to) < 80) };
  const { rows, columns } = layOut(few);
  const width = NODE.pad * 2 + columns * NODE.w + (columns - 1) * NODE.gapX;
  const height = NODE.pad * 2 + rows * (NODE.h + NODE.gapY) - NODE.gapY;
  for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) svg.setAttribute(key, value);
  const x = n => NODE.pad + n.column * (NODE.w + NODE.gapX), y = n => NODE.pad + n.row * (NODE.h + NODE.gapY);
  const parts = [];
  for (const edge of few.edges) {
    const kind = edge.dead ? ' dead' : '', ahead = edge.from.column > edge.to.column;
    let path, tip, at;
    if (ahead) {
      const x1 = x(edge.from), y1 = y(edge.from) + NODE.h / 2, x2 = x(edge.to) + NODE.w + 8, y2 = y(edge.to) + NODE.h / 2;
      path = `M${x1} ${y1} C${x1 - 60} ${y1} ${x2 + 60} ${y2} ${x2} ${y2}`;
      tip = `M${x2} ${y2 - 5} L${x2 - 8} ${y2} L${x2} ${y2 + 5} Z`;
      at = [(x1 + x2) / 2, (y1 + y2) / 2 - 6];
    } else {
      const x1 = x(edge.from) + NODE.w / 2, x2 = x(edge.to) + NODE.w / 2, y1 = y(edge.from) + NODE.h, y2 = y(edge.to) + NODE.h + 8;
      path = `M${x1} ${y1} C${x1} ${y1 + 46} ${x2} ${y2 + 46} ${x2} ${y2}`;
      tip = `M${x2 - 5} ${y2} L${x2} ${y2 - 8} L${x2 + 5} ${y2} Z`;
      at = [(x1 + x2) / 2, Math.max(y1, y2) + 26];
    }
    parts.push(draw('path', { class: 'edge' + kind, d: path }), draw('path', { class: 'tip' + kind, d: tip }),
      draw('text', { class: 'edge-name' + kind, x: at[0], y: at[1], 'text-anchor': 'middle' }, cut(edge.lock, 20)));
  }
  for (const n of few.nodes) {
    const group = draw('g', { class: 'node' + (n.dead ? ' dead' : ''), transform: `translate(${x(n)} ${y(n)})` });
    group.append(draw('title', {}, n.label + '\n' + n.sub), draw('rect', { width: NODE.w, height: NODE.h, rx: 9 }),
      draw('text', { x: 13, y: 20 }, cut(n.label, 28)), draw('text', { class: 'sub', x: 13, y: 37 }, cut(n.sub, 28)));
    parts.push(group);
  }
  svg.replaceChildren(...parts);
}
let graphShown = '';
function showWaits() {
  const graph = buildGraph();
  const key = JSON.stringify(graph.edges.map(e => [e.from.key, e.from.label, e.from.sub, e.to.key, e.to.sub, e.lock, e.dead]));
  if (key === graphShown) return;
  graphShown = key;
  setHidden($('graph-box'), !graph.edges.length);
  if (graph.edges.length) showGraph(graph);
  const items = [...graph.edges].sort((a, b) => b.dead - a.dead).slice(0, 300).map(edge => make('li', { class: edge.dead ? 'dead' : '' },
    edge.from.label + (edge.from.key.startsWith('crowd') ? ' wait for ' : ' waits for '), make('a', { href: lockLink(edge.lock) }, edge.lock),
    ', held by ' + edge.to.label + (edge.dead ? ' (deadlock)' : '')));
  $('waits').replaceChildren(...(items.length ? items : [make('li', { class: 'none' }, 'Nobody waits.')]));
}

// ---- Clients ----------------------------------------------------------------------------------------

function showClients(now) {
  const holds = new Map(), waits = new Map();
  const count = (map, party) => { if (party.client) map.set(party.client, (map.get(party.client) || 0) + 1); };
  for (const lock of state.locks.values()) {
    lock.holders.forEach(party => count(holds, party));
    lock.waiters.forEach(party => count(waits, party));
  }
  const all = [...state.clients.values()].sort((a, b) => (a.host || '~') < (b.host || '~') ? -1 :
    (a.host || '~') > (b.host || '~') ? 1 : (a.pid || 0) - (b.pid || 0) || (a.id < b.id ? -1 : 1));
  const visible = all.slice(0, STEP);
  for (const client of visible) {
    if (!client.row) {
      client.row = { tr: make('tr', { role: 'row' }), cells: [] };
      for (const label of ['Client', 'State', 'Uptime', 'Holds', 'Waits', 'Acquired', 'Contended', 'Timed out', 'Lost', 'Renewals failed'])
        client.row.cells.push(cell(label, label === 'Client' || label === 'State' ? {} : { class: 'num' }));
      client.row.cells[1].append(make('span', { class: 'state ' + client.state }, client.state));
      client.row.tr.title = client.id + (client.version ? ', holdfast ' + client.version : '');
      client.row.tr.append(...client.row.cells);
    }
    const name = client.host ? `${client.host} ${client.pid} ${client.program}` : client.id;
    const numbers = ['acquired', 'contended', 'timed_out', 'losses', 'renew_failures'].map(key => client[key] == null ? '–' : String(client[key]));
    const texts = [name + (client.id === state.frame.self ? ' (this page)' : ''), null, duration(client.since == null ? null : now - client.since),
      String(holds.get(client.id) || 0), String(waits.get(client.id) || 0), ...numbers];
    texts.forEach((text, i) => { if (text != null) setText(client.row.cells[i], text); });
  }
  place($('clients'), visible.map(client => client.row.tr));
  setHidden($('clients-empty'), all.length <= visible.length && all.length > 0);
  setText($('clients-empty'), all.length ? `and ${all.length - visible.length} more` : 'No clients.');
}

// ---- The summary above all views --------------------------------------------------------------------

function showAlerts() {
  const key = JSON.stringify(state.deadlocks.map(steps => steps.map(step => [step.lock, step.waiter.owner])));
  if (key === showAlerts.key) return;
  showAlerts.key = key;
  $('alerts').replaceChildren(...state.deadlocks.slice(0, 5).map(steps => make('div', { class: 'deadlock' },
    make('b', {}, 'Deadlock: these owners wait for each other and cannot continue. End one of them.'),
    make('ol', {}, ...steps.map(step => make('li', {}, step.waiter.who + ' waits for ', make('a', { href: lockLink(step.lock) }, step.lock),
      ', held by ' + step.holder.who))))));
}
function showTiles(now) {
  let held = 0, waiting = 0, stuck = 0;
  for (const lock of state.locks.values()) {
    if (lock.holders.length) held++;
    waiting += lock.waiting;
    if (severity(lock, now) >= 2) stuck++;
  }
  const known = state.frame && state.frame.taken != null;
  setText($('n-held'), known ? String(held) : '–');
  setText($('n-waiting'), known ? String(waiting) : '–');
  setText($('n-stuck'), known ? String(stuck) : '–');
  setText($('n-deadlocks'), known ? String(state.deadlocks.length) : '–');
  setClass($('tile-stuck'), stuck ? 'tile warn' : 'tile');
  setClass($('tile-deadlocks'), state.deadlocks.length ? 'tile bad' : 'tile');
}
// A bar for each second of the last minute; a second without a survey has none.
function showRates(now) {
  const rate = r => Math.max(r.seen, r.counted);
  const recent = state.rates.filter(r => now - r.at < 5.5 * (state.frame ? state.frame.every_ms : 1000));
  const mean = recent.reduce((sum, r) => sum + rate(r), 0) / recent.length;
  setText($('n-rate'), recent.length ? mean < 10 ? mean.toFixed(1) : String(Math.round(mean)) : '–');
  const most = Math.max(1, ...state.rates.map(rate));
  const bars = [draw('line', { class: 'spark-base', x1: 0, x2: 240, y1: 43.5, y2: 43.5 })];
  for (const r of state.rates) {
    const ago = Math.round((now - r.at) / 1000), high = rate(r) / most * 41;
    if (ago < 60 && high > 0)
      bars.push(draw('rect', { class: 'spark-bar', x: (59 - ago) * 4, width: 3, y: 43 - Math.max(1.5, high), height: Math.max(1.5, high) }));
  }
  $('spark').replaceChildren(...bars);
  $('spark').setAttribute('aria-label', `Hand-overs per second in the last minute, ${Math.round(most)} at most`);
}
function showState(now) {
  const frame = state.frame, live = $('live'), note = $('note');
  const age = frame && frame.taken != null ? now - frame.taken : null;
  let text = 'live', kind = 'live good', words = '';
  if (!state.connected && state.lostAt) {
    text = frame && frame.taken ? 'stale since ' + clock(frame.taken) : 'no data';
    kind = 'live old';
    words = state.refusal ? `holdfast serve refuses: ${state.refusal}` : 'holdfast serve no longer answers; retrying.';
  } else if (frame && frame.error) {
    text = frame.taken != null ? 'stale since ' + clock(frame.taken) : 'no data';
    kind = 'live old';
    words = `The lock server has not answered since ${clock(frame.failed)}: ${frame.error}`;
  } else if (age == null) {
    text = 'asking…'; kind = 'live';
  } else if (age > OLD_PERIODS * frame.every_ms) {
    text = 'stale since ' + clock(frame.taken); kind = 'live old';
  }
  if (!words && frame && frame.missing) words = 'Incomplete: ' + frame.missing;
  setText(live, text);
  setClass(live, kind);
  setText(note, words);
  setHidden(note, !words);
  setClass($('main'), kind === 'live old' ? 'stale' : '');
  if (frame) setText($('server'), frame.server);
  const sign = state.deadlocks.length ? '⛔ ' : kind === 'live old' ? '⚠ ' : '';
  const title = sign + (state.route.name ? state.route.name + ' · ' : '') + 'holdfast';
  if (document.title !== title) document.title = title;
}

function show() {
  const now = serverNow();
  showState(now);
  if (!state.frame) return;
  showAlerts();
  showTiles(now);
  showRates(now);
  if (state.route.view === 'locks') showLocks(now);
  else if (state.route.view === 'lock') showLock(now);
  else if (state.route.view === 'waits') showWaits();
  else showClients(now);
}

// ---- Events -----------------------------------------------------------------------------------------

function takeFrame(frame) {
  state.frame = frame;
  state.at = performance.now();
  const taken = frame.taken ?? frame.now;
  if (frame.full) {
    const names = new Set(frame.locks.map(lock => lock.name)), ids = new Set(frame.clients.map(client => client.id));
    for (const name of [...state.locks.keys()]) if (!names.has(name)) state.locks.delete(name);
    for (const id of [...state.clients.keys()]) if (!ids.has(id)) state.clients.delete(id);
    state.rates = [];
    past.due = true;
  }
  for (const name of frame.gone || []) state.locks.delete(name);
  for (const id of frame.clients_gone || []) state.clients.delete(id);
  for (const client of frame.clients) {
    client.since = client.up_ms == null ? null : taken - client.up_ms;
    state.clients.set(client.id, client);
  }
  for (const lock of frame.locks) take(lock, taken);
  state.deadlocks = frame.deadlocks;
  state.dead = new Set(frame.deadlocks.flat().map(step => step.waiter.owner + '\0' + step.lock));
  if (frame.history.some(event => event.name == null || event.name === past.name)) past.due = true;
  state.rates = state.rates.concat(frame.rates).slice(-60);
  show();
}

let stream = null;
const headers = () => state.token ? { Authorization: 'Bearer ' + state.token } : {};

async function readStream(abort) {
  const answer = await fetch('/api/events', { headers: headers(), signal: abort.signal, cache: 'no-store' });
  if (answer.status === 401) throw Object.assign(new Error('token'), { wantsToken: true });
  if (!answer.ok) throw Object.assign(new Error('refused'), { words: (await answer.json()).error });
  state.connected = true;
  state.refusal = '';
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ''; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2))
      if (text.startsWith('data: ')) takeFrame(JSON.parse(text.slice(6, end)));
  }
}
// Reads one event after the other, for ever; a hidden page requests nothing.
async function keepStream() {
  if (stream) return;
  stream = new AbortController();
  const mine = stream;
  for (let pause = 500; !mine.signal.aborted; pause = Math.min(pause * 2, 5000)) {
    try {
      await readStream(mine);
      pause = 500;
    } catch (error) {
      state.refusal = error.words || '';
      if (error.wantsToken && !mine.signal.aborted) await askForReading();
    }
    if (mine.signal.aborted) break;
    if (state.connected || !state.lostAt) state.lostAt = Date.now();
    state.connected = false;
    show();
    await new Promise(done => setTimeout(done, pause));
  }
}
function stopStream() {
  if (stream) stream.abort();
  stream = null;
}
let hiddenTimer = 0;
document.addEventListener('visibilitychange', () => {
  clearTimeout(hiddenTimer);
  if (document.hidden) hiddenTimer = setTimeout(stopStream, 15000);
  else keepStream();
});

// The browser may keep a page that was left for the back button, with its open connections.
window.addEventListener('pagehide', stopStream);
window.addEventListener('pageshow', () => keepStream());

// ---- The token, and breaking a lock -----------------------------------------------------------------

const WRONG_TOKEN = 'Wrong token.';
// Asks for the token and tries it with `attempt`, which returns an error text; repeats until there is none.
function ask(title, words, button, danger, attempt) {
  return new Promise(done => {
    const dialog = $('ask');
    setText($('ask-title'), title);
    setText($('ask-words'), words);
    setText($('ask-yes'), button);
    setText($('ask-error'), '');
    setClass($('ask-yes'), danger ? 'danger' : '');
    $('ask-token').value = state.token;
    $('ask-no').onclick = () => dialog.close();
    dialog.onclose = done;
    $('ask-form').onsubmit = async event => {
      event.preventDefault();
      state.token = $('ask-token').value;
      $('ask-yes').disabled = true;
      const wrong = await attempt().catch(error => String(error.message));
      $('ask-yes').disabled = false;
      if (wrong) { setText($('ask-error'), wrong); if (wrong === WRONG_TOKEN) state.token = ''; } else dialog.close();
    };
    dialog.showModal();
    $('ask-token').focus();
  });
}
const askForReading = () => ask('This page requires the token', 'It is the first line of the --token-file of holdfast serve.', 'Show',
  false, async () => {
    const answer = await fetch('/api/clients', { headers: headers(), cache: 'no-store' });
    return answer.status === 401 ? WRONG_TOKEN : '';
  });
function askForBreak() {
  const name = state.route.name, lock = state.locks.get(name), holder = lock && holderOf(lock);
  ask(`Break ${name}?`, (holder ? `${who(holder)} holds it. ` : '') +
    'If the holder is still working, two owners will be inside. Break a lock only if its holder has stopped.', 'Break it', true, async () => {
    const answer = await fetch('/api/locks/' + encodeURIComponent(name),
      { method: 'DELETE', headers: { ...headers(), 'X-Holdfast-Break': 'yes' }, cache: 'no-store' });
    if (answer.ok) return (await answer.json()).broken ? '' : 'Nobody held it: nothing was broken.';
    return answer.status === 401 ? WRONG_TOKEN : (await answer.json()).error;
  });
}

// ---- Where we are, and the keyboard -----------------------------------------------------------------

function goTo() {
  const hash = location.hash;
  const wanted = /^#\/lock\/(.+)$/s.exec(hash);
  let name = null;
  try { name = wanted && decodeURIComponent(wanted[1]); } catch { name = null; }
  const view = name != null ? 'lock' : hash.startsWith('#/waits') ? 'waits' : hash.startsWith('#/clients') ? 'clients' : 'locks';
  const moved = state.route.view !== view || state.route.name !== (name ?? undefined);
  state.route = name != null ? { view, name } : { view };
  for (const one of ['locks', 'lock', 'waits', 'clients']) setHidden($('view-' + one), one !== view);
  for (const one of ['locks', 'waits', 'clients'])
    if (one === view || one === 'locks' && view === 'lock') $('tab-' + one).setAttribute('aria-current', 'page');
    else $('tab-' + one).removeAttribute('aria-current');
  graphShown = '';
  past.name = null;
  lockShown = null;
  show();
  if (moved) { scrollTo(0, 0); (view === 'lock' ? $('h-lock') : $('main')).focus({ preventScroll: true }); }
}
function moveRow(step) {
  const links = [...$('locks').querySelectorAll('a')];
  const at = links.indexOf(document.activeElement);
  const next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + step))];
  if (next) next.focus();
}
document.addEventListener('keydown', event => {
  if ($('ask').open || event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
  if (event.key === '/' && !typing) {
    if (state.route.view !== 'locks') location.hash = '#/';
    setTimeout(() => $('search').focus());
    event.preventDefault();
  } else if (event.key === 'Escape') {
    if (document.activeElement === $('search') && $('search').value) { $('search').value = ''; show(); }
    else if (state.route.view !== 'locks') location.hash = '#/';
    else document.activeElement.blur();
  } else if ((event.key === 'ArrowDown' || event.key === 'ArrowUp') && state.route.view === 'locks' &&
             (!typing || document.activeElement === $('search'))) {
    moveRow(event.key === 'ArrowDown' ? 1 : -1);
    event.preventDefault();
  }
});

for (const id of ['search', 'show', 'sort']) $(id).addEventListener('input', () => { state.shown = STEP; show(); });
$('more').addEventListener('click', () => { state.shown += STEP; show(); });
$('break').addEventListener('click', askForBreak);
window.addEventListener('hashchange', goTo);
setInterval(show, 1000);
goTo();
keepStream();
