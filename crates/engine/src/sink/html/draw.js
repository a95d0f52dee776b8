'use strict';
// Draws the reports that the page holds as JSON (docs/report.schema.json). Text from a report becomes a text
// node or an attribute, never markup. Every number that is shown carries itself, unrounded, as data-value.

const NODES = 10; // named nodes in a column of the flow diagram
const SHOWN_EPOCHS = 240; // bars of the plot of epochs
const LIVE_EPOCHS = 120; // epochs of a measurement that an agent's page holds
const COLORS = 8; // --c0 to --c7 in the style

// ---- elements

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}
const make = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const draw = (name, attributes, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);

const about = (...words) => make('p', { class: 'about' }, ...words);
const note = (...words) => make('p', { class: 'note' }, ...words);
const what = (...words) => make('td', { class: 'what' }, ...words);

// ---- numbers and times as text

const grouped = (value, digits) =>
  value.toLocaleString('en-US', { minimumFractionDigits: 0, maximumFractionDigits: digits });
function count(value) {
  if (value === null) return '–';
  const size = Math.abs(value);
  return grouped(value, Number.isInteger(value) || size >= 100 ? 0 : size >= 1 ? 3 - String(Math.trunc(size)).length : 3);
}
// Three digits and a prefix of a thousand, such as 5.32 M; below `from` all digits.
const PREFIXES = ['', ' k', ' M', ' G', ' T', ' P', ' E'];
function scaled(value, unit, from = 1e4) {
  if (value === null) return '–';
  if (Math.abs(value) < from) return (count(value) + ' ' + unit).trim();
  let at = 0;
  while (Math.abs(value) >= 999.5 && at < 6) { value /= 1000; at += 1; }
  return value.toPrecision(3) + (PREFIXES[at] || ' ') + unit;
}
// A round number on an axis.
function tick(value) {
  const at = value < 1 ? 0 : Math.min(6, Math.floor(Math.log10(value) / 3 + 1e-9));
  return Number((value / 1000 ** at).toPrecision(6)) + PREFIXES[at];
}
const bytes = (value) => scaled(value, 'B');
const rate = (value, unit) => scaled(value, unit, unit === 'packets/s' ? 1e6 : 1e4);
const sized = (value, by) => (by === 'bytes' ? bytes(value) : count(value));
function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.01) return '<0.01 %';
  return value.toFixed(value >= 99.95 ? 0 : value >= 1 ? 1 : value > 0 ? 2 : 0) + ' %';
}
const plural = (number, word) => count(number) + ' ' + word + (number === 1 ? '' : 's');
const milliseconds = (time) => Date.parse(time.slice(0, 23) + 'Z');
// Seconds between two times of nanoseconds.
const between = (from, to) => (Date.parse(to.slice(0, 19) + 'Z') - Date.parse(from.slice(0, 19) + 'Z')) / 1000 + (to.slice(19, 29) - from.slice(19, 29));
// A time of day, to the millisecond; with its date where `day` is another one.
const clock = (time, day, length = 12) => (time.slice(0, 10) === day ? '' : time.slice(0, 10) + ' ') + time.slice(11, 11 + length);
const clockAt = (time, from, to) => new Date(time).toISOString().slice(from, to);
function lasting(seconds) {
  if (seconds >= 5400) return (seconds / 3600).toFixed(1) + ' h';
  if (seconds >= 120) return (seconds / 60).toFixed(1) + ' min';
  return seconds >= 0.9995 ? seconds.toFixed(1) + ' s' : (1000 * seconds).toPrecision(3) + ' ms';
}
function span(item) {
  if (!item.start) return 'no packets';
  const day = item.start.slice(0, 10);
  return day + ' ' + clock(item.start, day) + ' to ' + clock(item.end, day) + ' UTC · ' + lasting(seconds(item));
}
const seconds = (item) => (item.start ? between(item.start, item.end) : 0);

// ---- what a report says

const PROTOCOLS = { 1: 'icmp', 2: 'igmp', 6: 'tcp', 17: 'udp', 47: 'gre', 50: 'esp', 58: 'icmpv6', 89: 'ospf', 132: 'sctp' };
// One flow of a key, and many.
const KEYS = {
  source: ['source', 'sources'], destination: ['destination', 'destinations'], host: ['host', 'hosts'],
  pair: ['pair', 'pairs'], conversation: ['conversation', 'conversations'], protocol: ['protocol', 'protocols'],
  'source-port': ['source port', 'source ports'], 'destination-port': ['destination port', 'destination ports'],
  vlan: ['VLAN', 'VLANs'], 'tcp-flags': ['set of TCP flags', 'sets of TCP flags'], mac: ['MAC address', 'MAC addresses'],
  'source-mac': ['source MAC address', 'source MAC addresses'],
  'destination-mac': ['destination MAC address', 'destination MAC addresses'],
};
const wordsOfKey = (report) => KEYS[report.key.replace(/\/[0-9,]+/, '')] || ['flow', 'flows'];
const keysOf = (report) => wordsOfKey(report)[1];
const bothWays = (report) => report.key.startsWith('conversation');

function protocol(report, number) {
  const known = report.breakdown && report.breakdown.protocols.find((one) => one.protocol === number);
  return (known && known.name) || PROTOCOLS[number] || 'protocol ' + number;
}
function service(report, port) {
  const known = report.breakdown && report.breakdown.ports.find((one) => one.port === port && one.name);
  return known ? known.name : null;
}
function flow(report, key) {
  const end = (address, port) => {
    if (port === undefined) return address;
    if (address === undefined) return 'port ' + port;
    return (address.includes(':') ? '[' + address + ']' : address) + ':' + port;
  };
  // Of a protocol without ports both are 0.
  const has = key.source_port || key.destination_port;
  const ends = [end(key.source, has ? key.source_port : undefined), end(key.destination, has ? key.destination_port : undefined)];
  const joined = (parts, arrow) => parts.filter((part) => part !== undefined).join(arrow);
  return [
    key.host, joined(ends, bothWays(report) ? ' ↔ ' : ' → '),
    key.protocol === undefined ? null : protocol(report, key.protocol),
    key.mac, joined([key.source_mac, key.destination_mac], ' → '),
    key.vlan === undefined ? null : key.vlan ? 'VLAN ' + key.vlan : 'untagged',
    key.tcp_flags === '' ? 'no TCP flags' : key.tcp_flags,
  ].filter(Boolean).join(' ');
}
// The labels of an item's addresses: names of prefixes, autonomous systems, countries.
function labels(report, item) {
  const { source, destination, host, prefix } = item.key || item;
  const label = (text) => {
    const known = (report.labels || {})[text];
    return known && [known.name, known.as && ['AS' + known.as, known.as_name].filter(Boolean).join(' '), known.country].filter(Boolean).join(', ');
  };
  return [source, destination, host, prefix].map(label).filter(Boolean).join(' → ');
}

// Packets and bytes that had a key, where a sampler read a part of them as estimates.
function keyed(report) {
  const account = report.account;
  const packets = report.traffic ? report.traffic.value : account.keyed;
  return { packets, bytes: account.keyed ? (packets * account.keyed_bytes) / account.keyed : 0 };
}
const observed = (report) => seconds(report) * report.coverage;
const weightOf = (report, item) => (item[report.by] ? item[report.by].value : null);
// The flows that tasks list, each once.
function listed(report) {
  const flows = new Map();
  for (const task of ['top', 'heavy-hitters']) {
    for (const item of (report.tasks[task] || { items: [] }).items) {
      if (weightOf(report, item) > 0) flows.set(JSON.stringify(item.key), item);
    }
  }
  return [...flows.values()].sort((one, other) => weightOf(report, other) - weightOf(report, one));
}
// The addresses of a key on this side; of a conversation both endpoints are hosts.
function endsOf(report, key, side) {
  if (!bothWays(report)) return key[side] === undefined ? [] : [key[side]];
  return side === 'host' ? [...new Set([key.source, key.destination])] : [];
}
// Weight of each source, destination or host: its own where a task lists it, else that of its listed flows.
function addresses(report, side) {
  const weights = new Map();
  for (const item of listed(report)) {
    for (const address of endsOf(report, item.key, side)) weights.set(address, (weights.get(address) || 0) + weightOf(report, item));
  }
  for (const item of (report.tasks['top-' + side + 's'] || { items: [] }).items) {
    if (weightOf(report, item) > 0) weights.set(item.key[side], weightOf(report, item));
  }
  const hierarchy = report.tasks.hierarchical;
  if (!weights.size && hierarchy && side === 'source') {
    for (const item of hierarchy.items) if (item.prefix && item.discounted.value > 0) weights.set(item.prefix, item.discounted.value);
  }
  return weights;
}
// The prefixes that hold an address or prefix, from wide to narrow, and itself.
function prefixes(text) {
  const [address, length] = text.split('/');
  const chain = [];
  if (address.includes(':')) {
    const bits = length === undefined ? 128 : Number(length);
    const words = (part) => (part ? part.split(':').flatMap((word) => (word.includes('.') ? ['0', '0'] : [word])) : []);
    const [head, tail] = address.split('::').map(words);
    const all = tail ? [...head, ...Array(8 - head.length - tail.length).fill('0'), ...tail] : head;
    for (const level of [32, 48, 64]) if (level < bits) chain.push(all.slice(0, level / 16).join(':') + '::/' + level);
  } else {
    const bits = length === undefined ? 32 : Number(length);
    const octets = address.split('.');
    for (const level of [8, 16, 24]) if (level < bits) chain.push([...octets.slice(0, level / 8), 0, 0, 0].slice(0, 4).join('.') + '/' + level);
  }
  return [...chain, text];
}

// ---- plots: marks that show their text when pointed at or stepped through by the arrow keys

function plot(label, width, height, marks, ...children) {
  const picture = draw('svg', {
    viewBox: '0 0 ' + width + ' ' + height, width, height, role: 'img', tabindex: 0,
    'aria-label': label + '. Arrow keys step through the marks; the table below has the numbers.'
  }, ...children);
  const tip = document.getElementById('tip');
  let current = null;
  const show = (mark) => {
    if (current) current.classList.remove('on');
    current = mark;
    tip.hidden = !mark;
    if (!mark) return;
    mark.classList.add('on');
    tip.textContent = mark.dataset.tip;
    const [box, page] = [mark.getBoundingClientRect(), document.documentElement];
    const left = Math.min(box.left + box.width / 2 - tip.offsetWidth / 2, page.clientWidth - tip.offsetWidth - 4);
    tip.style.left = Math.max(4, left) + 'px';
    tip.style.top = (box.top > tip.offsetHeight + 8 ? box.top - tip.offsetHeight - 6 : box.bottom + 6) + 'px';
  };
  const nearest = (event) => {
    const under = event.target.closest('[data-tip]');
    if (under || !picture.classList.contains('dots')) return under;
    const box = picture.getBoundingClientRect();
    const [x, y] = [((event.clientX - box.left) * width) / box.width, ((event.clientY - box.top) * height) / box.height];
    const away = (mark) => Math.hypot(mark.cx.baseVal.value - x, mark.cy.baseVal.value - y);
    return marks.reduce((best, mark) => (!best || away(mark) < away(best) ? mark : best), null);
  };
  // The mark that is shown, for the plot that is drawn in place of this one.
  picture.shownAt = () => marks.indexOf(current);
  picture.showAt = (at) => show(marks[Math.min(at, marks.length - 1)] || null);
  picture.addEventListener('pointermove', (event) => show(nearest(event)));
  picture.addEventListener('pointerdown', (event) => show(nearest(event)));
  picture.addEventListener('pointerleave', () => show(null));
  picture.addEventListener('blur', () => show(null));
  picture.addEventListener('keydown', (event) => {
    const at = marks.indexOf(current);
    const to = {
      ArrowRight: at + 1, ArrowDown: at + 1,
      ArrowLeft: at < 0 ? marks.length - 1 : at - 1, ArrowUp: at - 1,
      Home: 0, End: marks.length - 1
    }[event.key];
    if (event.key === 'Escape') show(null);
    if (to === undefined) return;
    event.preventDefault();
    show(marks[Math.max(0, Math.min(to, marks.length - 1))]);
  });
  return picture;
}
const text = (x, y, words, look, anchor) => draw('text', { x, y, class: look, 'text-anchor': anchor }, words);
const line = (x1, x2, y1, y2) => draw('line', { class: 'grid', x1, x2, y1, y2 });
const rect = (look, { x, y, width, height }, more) => draw('rect', { class: look, x, y, width, height, ...more });
// A label that ends where its room does.
function label(x, y, words, room, look, anchor) {
  const fits = Math.floor(room / 6.1);
  if (fits < 3) return null;
  return text(x, y, words.length > fits ? words.slice(0, fits - 1) + '…' : words, look, anchor);
}
// Round steps of an axis up to `most`.
function ticks(most, wanted) {
  if (!(most > 0)) return [0];
  const raw = most / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, at) => at * step);
}

// Bars over time: each of `bars` has a start and an end in milliseconds, a value, and a text. What was lost
// stands on the value; an estimate has its bounds `low` and `high` around it (`high` is null without one). The
// axis is from the first bar to the last, or those of `range`.
function timePlot(name, unit, width, bars, shades, pick, range = bars) {
  const [height, left, bottom, top] = [150, 62, 20, 10];
  const [from, to] = [range[0].start, range[range.length - 1].end];
  const most = bars.reduce((most, bar) => Math.max(most, bar.value + (bar.lost || 0), bar.high || 0), 0);
  const x = (time) => left + ((width - left - 8) * (time - from)) / (to - from || 1);
  const y = (value) => height - bottom - ((height - bottom - top) * value) / (most || 1);
  const grid = ticks(most, 4).flatMap((value) => [
    line(left, width - 8, y(value), y(value)),
    text(left - 6, y(value) + 4, tick(value), 'axis', 'end'),
  ]);
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5];
  const step = steps.find((one) => (to - from) / one <= width / 140) || Math.ceil((to - from) / 5);
  const times = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
    const place = x(time) > width - 44 ? 'end' : x(time) < left + 30 ? 'start' : 'middle';
    const words = step < 864e5 ? clockAt(time, 11, step < 1000 ? 23 : step < 6e4 ? 19 : 16) : clockAt(time, 0, 10);
    times.push(text(x(time), height - 5, words, 'axis', place));
    times.push(line(x(time), x(time), height - bottom, height - bottom + 4));
  }
  const column = (one, other) => ({
    x: x(Math.max(from, one)), y: top,
    width: Math.max(0.5, x(Math.min(to, other)) - x(Math.max(from, one))), height: height - bottom - top
  });
  const spans = (shades || []).map((shade) => rect('shade', column(shade.start, shade.end)));
  // The bars between two heights, those that touch as one shape.
  const outline = (shown, low, high) => {
    let [path, back] = ['', ''];
    shown.forEach((bar, at) => {
      const joins = at > 0 && bar.start <= shown[at - 1].end;
      if (!joins) [path, back] = [path + back + (at ? 'Z' : '') + 'M' + x(bar.start) + ' ' + y(low(bar)), ''];
      path += 'V' + y(high(bar)) + 'H' + x(bar.end);
      back = 'V' + y(low(bar)) + 'H' + x(bar.start) + back;
    });
    return path + back + 'Z';
  };
  const shape = (look, shown, low, high) => (shown.length ? draw('path', { class: look, d: outline(shown, low, high) }) : null);
  const bounded = bars.filter((bar) => bar.low !== undefined);
  const value = (bar) => bar.value;
  const shapes = [
    bounded.length ? shape('bounds', bounded, (bar) => bar.low, (bar) => (bar.high === null ? most : bar.high)) : null,
    bounded.length ? shape('value', bars, value, value) : shape('area', bars, () => 0, value),
    shape('lost', bars.filter((bar) => bar.lost), value, (bar) => bar.value + bar.lost),
  ].filter(Boolean);
  const marks = bars.map((bar) => {
    const box = column(bar.start, bar.end);
    if (bar.found) spans.push(rect('flag', { ...box, y: height - bottom, height: 3 }));
    const mark = rect('step ' + (bar.look || ''), box, { 'data-tip': bar.text, 'data-value': bar.value, ...bar.data });
    if (pick) mark.addEventListener('click', () => pick(bar));
    return mark;
  });
  return make('div', { class: 'panel', 'data-plot': name }, make('h3', null, unit),
    plot(unit + ' over time', width, height, marks, grid, spans, shapes, times, marks));
}

const shareOf = (report, weight) => weight / keyed(report)[report.by] || 0;
// What a plot covers.
const coverage = (report, items, sum) => 'The ' + items + ', ' + percent(Math.min(1, shareOf(report, sum))) + ' of the ' + report.by;
const weighed = (report, weight) => sized(weight, report.by) + (report.by === 'packets' ? ' packets' : '');
const amount = (report, weight) => weighed(report, weight) + ', ' + percent(shareOf(report, weight));
// What a mark tells.
const data = (report, name, weight) => ({ 'data-tip': name + ': ' + amount(report, weight), 'data-name': name, 'data-value': weight });
const amountRow = (report, name, weight) => [what(name), cell(sized(weight, report.by), weight), shareCell(shareOf(report, weight))];

// Bins of equal sizes and, summed from the right, flows of at least a size; both axes by powers of ten.
function sizePlot(report, width) {
  const distribution = report.tasks['size-distribution'];
  const [height, left, bottom, top] = [300, 62, 38, 12];
  let points;
  let titles;
  let covered;
  let more = null;
  if (distribution && distribution.bins.length) {
    let sum = 0;
    points = distribution.bins.map((bin) => ({ x: bin.size, y: bin.flows.value }));
    more = points.slice().reverse().map((point) => ({ x: point.x, y: (sum += point.y) })).reverse();
    titles = ['packets of a flow', 'flows'];
  } else {
    points = listed(report).map((item, at) => ({ x: at + 1, y: weightOf(report, item) }));
    titles = ['rank of a listed flow', report.by];
    covered = coverage(report, plural(points.length, 'listed flow'), points.reduce((sum, point) => sum + point.y, 0))
      + ', by rank. The task size-distribution gives the number of flows of each size.';
  }
  points = points.filter((point) => point.x > 0 && point.y > 0);
  if (!points.length) return null;
  const all = more ? [...points, ...more.filter((point) => point.x > 0 && point.y > 0)] : points;
  const decade = (pick, floor) => {
    const values = all.map((point) => Math.log10(pick(point)));
    const low = Math.floor(values.reduce((one, other) => Math.min(one, other)));
    return [Math.min(low, floor), Math.max(low + 1, Math.ceil(values.reduce((one, other) => Math.max(one, other)) + 1e-9))];
  };
  const [x0, x1] = decade((point) => point.x, 0);
  const [y0, y1] = decade((point) => point.y, more ? 0 : Infinity);
  const x = (value) => left + ((width - left - 14) * (Math.log10(value) - x0)) / (x1 - x0);
  const y = (value) => height - bottom - ((height - bottom - top) * (Math.log10(value) - y0)) / (y1 - y0);
  const grid = [];
  for (let power = x0; power <= x1; power += 1) {
    grid.push(line(x(10 ** power), x(10 ** power), top, height - bottom));
    grid.push(text(x(10 ** power), height - bottom + 14, tick(10 ** power), 'axis', 'middle'));
  }
  for (let power = y0; power <= y1; power += 1) {
    grid.push(line(left, width - 14, y(10 ** power), y(10 ** power)));
    grid.push(text(left - 6, y(10 ** power) + 4, tick(10 ** power), 'axis', 'end'));
  }
  const tail = more && draw('path', { class: 'tail', d:
    more.filter((point) => point.y > 0).map((point, at) => (at ? 'L' : 'M') + x(point.x) + ' ' + y(point.y)).join('') });
  const marks = points.map((point) => draw('circle', {
    class: 'dot', cx: x(point.x), cy: y(point.y), r: 2.6, 'data-x': point.x, 'data-value': point.y,
    'data-tip': more ? plural(point.y, 'flow') + ' of ' + plural(point.x, 'packet') : 'rank ' + count(point.x) + ': ' + weighed(report, point.y),
  }));
  const axis = text((left + width) / 2, height - 6, titles[0], 'axis', 'middle');
  const picture = plot(titles[1] + ' by ' + titles[0] + ', both axes logarithmic', width, height, marks, grid, tail, axis, marks);
  picture.classList.add('dots');
  const entry = (look, words) => make('span', null, make('i', { class: 'key ' + look }), words);
  const legend = make('p', { class: 'legend' }, more ? [entry('', 'flows of exactly this size'), entry('c1', 'flows of at least this size')] : covered);
  const numbers = more
    ? table(['packets', 'flows', 'flows of at least this size'],
      distribution.bins.map((bin, at) =>
        [cell(count(bin.size), bin.size), estimate(bin.flows, count), cell(count(more[at].y), more[at].y)]))
    : table(titles, points.map((point) => [cell(count(point.x), point.x), cell(sized(point.y, report.by), point.y)]));
  return make('div', { 'data-plot': 'sizes' }, legend, picture, folded(numbers));
}

// Rectangles of areas as the weights, none much longer than wide (squarified treemap).
function squarify(items, box, place) {
  let { x, y, width, height } = box;
  let rest = items.reduce((sum, item) => sum + item.weight, 0);
  let at = 0;
  while (at < items.length && rest > 0) {
    const short = Math.min(width, height);
    const scale = (width * height) / rest;
    let [end, sum, best] = [at, 0, Infinity];
    while (end < items.length) {
      const grown = sum + items[end].weight;
      const thick = (grown * scale) / short;
      const worst = [items[at], items[end]].reduce((most, item) => {
        const long = (item.weight * scale) / thick;
        return Math.max(most, long / thick, thick / long);
      }, 0);
      if (worst > best) break;
      [sum, best, end] = [grown, worst, end + 1];
    }
    const thick = (sum * scale) / short;
    let along = 0;
    for (const item of items.slice(at, end)) {
      const long = (item.weight * scale) / thick;
      place(item, width >= height ? { x, y: y + along, width: thick, height: long } : { x: x + along, y, width: long, height: thick });
      along += long;
    }
    if (width >= height) { x += thick; width -= thick; } else { y += thick; height -= thick; }
    rest -= sum;
    at = end;
  }
}

function treemap(report, side, width) {
  const weights = addresses(report, side);
  if (!weights.size) return null;
  const total = keyed(report)[report.by];
  const sum = [...weights.values()].reduce((one, other) => one + other, 0);
  const root = { children: new Map() };
  const nodes = new Set();
  for (const [address, weight] of weights) {
    let node = root;
    for (const name of prefixes(address)) {
      if (!node.children.has(name)) node.children.set(name, { name, weight: 0, children: new Map() });
      node = node.children.get(name);
      node.weight += weight;
    }
    node.own = weight;
    nodes.add(node);
  }
  // A prefix that is listed beside longer ones has its own weight as a tile among them.
  for (const node of nodes) {
    if (node.children.size) node.children.set('', { name: 'other in ' + node.name, weight: node.own, children: new Map() });
  }
  // A packet counts for both of its hosts: neither prefixes nor the rest have a sum. A filter leaves the rest out.
  const rest = side === 'host' || report.filtered ? 0 : Math.max(0, total - sum);
  const [marks, shapes, rows] = [[], [], []];
  const sorted = (nodes) => [...nodes].sort((one, other) => other.weight - one.weight);
  const tile = (node, box, look) => {
    const mark = rect('tile ' + look, box, data(report, node.name, node.weight));
    marks.push(mark);
    shapes.push(mark);
    if (box.height >= 16) shapes.push(label(box.x + 4, box.y + 13, node.name, box.width - 6, 'name'));
    if (box.height >= 32) shapes.push(label(box.x + 4, box.y + 28, percent(shareOf(report, node.weight)), box.width - 6, 'axis'));
  };
  const place = (node, box, look) => {
    while (node.children.size === 1) node = [...node.children.values()][0];
    if (!node.children.size) return tile(node, box, look);
    shapes.push(rect('group', box));
    const titled = box.height > 48 && box.width > 70;
    const words = side === 'host' ? node.name : node.name + ': ' + amount(report, node.weight);
    if (titled) shapes.push(label(box.x + 4, box.y + 12, words, box.width - 6, 'axis'));
    const edge = Math.min(2, box.width / 8, box.height / 8);
    const head = titled ? 16 : edge;
    const inner = { x: box.x + edge, y: box.y + head, width: box.width - 2 * edge, height: box.height - edge - head };
    squarify(sorted(node.children.values()), inner, (child, at) => place(child, at, look));
  };
  const height = Math.min(360, Math.max(220, width * 0.6));
  const groups = sorted(root.children.values());
  groups.forEach((group, at) => { group.look = 'f' + (at % COLORS); });
  const tops = rest > total * 1e-9 ? [...groups, { name: 'not listed', weight: rest, children: new Map(), look: 'rest' }] : groups;
  squarify(sorted(tops), { x: 0, y: 0, width, height }, (node, box) => place(node, box, node.look));
  const walk = (node, depth) => {
    while (node.children.size === 1) node = [...node.children.values()][0];
    if (side !== 'host' || !node.children.size) rows.push(amountRow(report, '\u00a0'.repeat(2 * depth) + node.name, node.weight));
    sorted(node.children.values()).forEach((child) => walk(child, depth + 1));
  };
  sorted(tops).forEach((node) => walk(node, 0));
  const option = document.documentElement.dataset.live ? 'top' : '--top';
  const more = rest > total / 100 ? ' Grey is the rest; a larger ' + option + ' lists more.' : '';
  const words = plural(weights.size, (report.filtered ? 'shown ' : 'listed ') + side);
  const covered = side === 'host' ? 'The ' + words + '; a packet counts for both of its hosts.' : coverage(report, words, sum) + '.';
  return make('div', { 'data-plot': side + 's' }, about(covered + more),
    plot(side + 's by prefix', width, height, marks, shapes), folded(table(['prefix or ' + side, report.by, 'share'], rows)));
}

// Source, port and destination of the listed flows, as bands as wide as their weight.
function sankey(report, width) {
  const flows = listed(report).filter(({ key }) => key.source !== undefined && key.destination !== undefined && key.destination_port !== undefined);
  if (!flows.length) return null;
  const port = (key) => {
    const number = key.source_port === undefined ? key.destination_port : Math.min(key.source_port, key.destination_port);
    const name = service(report, number);
    if (!number && key.protocol !== undefined) return protocol(report, key.protocol);
    return (key.protocol === undefined ? 'port ' : protocol(report, key.protocol) + '/') + number + (name ? ' ' + name : '');
  };
  const kinds = { source: ({ key }) => key.source, port: ({ key }) => port(key), destination: ({ key }) => key.destination };
  const columns = Object.entries(kinds).map(([kind, nameOf]) => {
    const nodes = new Map();
    for (const item of flows) nodes.set(nameOf(item), (nodes.get(nameOf(item)) || 0) + weightOf(report, item));
    const order = [...nodes].sort((one, other) => other[1] - one[1]);
    const kept = new Set(order.slice(0, order.length > NODES ? NODES - 1 : NODES).map(([name]) => name));
    const others = 'other ' + kind + 's (' + count(order.length - kept.size) + ')';
    return { nameOf: (item) => (kept.has(nameOf(item)) ? nameOf(item) : others), nodes: new Map() };
  });
  const bands = [new Map(), new Map()];
  const name = (band) => band.from.name + ' → ' + band.to.name;
  const add = (map, name, make, weight) => {
    if (!map.has(name)) map.set(name, make());
    map.get(name).weight += weight;
    return map.get(name);
  };
  for (const item of flows) {
    const weight = weightOf(report, item);
    const ends = columns.map((column) => add(column.nodes, column.nameOf(item), () => ({ name: column.nameOf(item), weight: 0, in: 0, out: 0 }), weight));
    bands.forEach((map, at) => add(map, JSON.stringify([ends[at].name, ends[at + 1].name]), () => ({ from: ends[at], to: ends[at + 1], weight: 0 }), weight));
  }
  const sum = flows.reduce((all, item) => all + weightOf(report, item), 0);
  const gap = 16;
  const most = Math.max(...columns.map((column) => column.nodes.size));
  const height = Math.max(220, most * 34);
  const scale = (height - most * gap) / sum;
  const bar = 12;
  const [marks, shapes] = [[], []];
  columns.forEach((column, at) => {
    let y = gap - 2;
    column.x = [0, (width - bar) / 2, width - bar][at];
    const order = [...column.nodes.values()].sort((one, other) => one.name.startsWith('other ') - other.name.startsWith('other ') || other.weight - one.weight);
    order.forEach((node, rank) => {
      Object.assign(node, { y, look: node.name.startsWith('other ') ? 'rest' : 'f' + (rank % COLORS) });
      node.mark = rect('node ' + node.look, { x: column.x, y, width: bar, height: Math.max(1, node.weight * scale) }, data(report, node.name, node.weight));
      y += node.weight * scale + gap;
    });
    column.order = order;
  });
  bands.forEach((map, at) => {
    const order = [...map.values()].sort((one, other) => one.from.y - other.from.y || one.to.y - other.to.y);
    for (const band of order) {
      const thick = band.weight * scale;
      const [x0, x1] = [columns[at].x + bar, columns[at + 1].x];
      const [y0, y1] = [band.from.y + band.from.out + thick / 2, band.to.y + band.to.in + thick / 2];
      band.from.out += thick;
      band.to.in += thick;
      const middle = (x0 + x1) / 2;
      const mark = draw('path', {
        class: 'band s' + (at ? band.from.look : band.to.look),
        d: 'M' + x0 + ' ' + y0 + 'C' + middle + ' ' + y0 + ' ' + middle + ' ' + y1 + ' ' + x1 + ' ' + y1,
        'stroke-width': Math.max(0.75, thick),
        ...data(report, name(band), band.weight)
      });
      marks.push(mark);
      shapes.push(mark);
    }
  });
  columns.forEach((column, at) => column.order.forEach((node) => {
    marks.push(node.mark);
    const anchor = ['start', 'middle', 'end'][at];
    shapes.push(node.mark, label(column.x + [0, bar / 2, bar][at], node.y - 3, node.name, width / 3, 'name', anchor));
  }));
  const rows = [...bands[0].values(), ...bands[1].values()].sort((one, other) => other.weight - one.weight)
    .map((band) => amountRow(report, name(band), band.weight));
  const lower = (flows[0].key.source_port === undefined ? '' : ' The port is the lower of both, as that of a service.')
    + (bothWays(report) ? ' The lower endpoint of a conversation is on the left.' : '');
  return make('div', { 'data-plot': 'paths' }, about(coverage(report, plural(flows.length, report.filtered ? 'shown flow' : 'listed flow'), sum) + '.' + lower),
    plot('flows from sources by ports to destinations', width, height, marks, shapes), folded(table(['from → to', report.by, 'share'], rows)));
}

// ---- tables

const cell = (words, value) => make('td', { class: 'number', 'data-value': value }, words);
function shareCell(share) {
  const line = make('i', { class: 'line' });
  line.style.width = 100 * Math.min(1, share) + '%';
  return make('td', { class: 'number share', 'data-value': share }, percent(share), line);
}
// A bar as long as a number, with its bounds, on a scale up to `most`.
function errorBar(value, most) {
  const at = (number) => 100 * Math.max(0, Math.min(1, number / most)) + '%';
  const line = make('i', { class: 'line' });
  line.style.width = at(value.value);
  const isExact = value.low === value.value && value.high === value.value;
  const error = isExact ? null : make('i', { class: value.high === null ? 'error open' : 'error' });
  if (error) {
    error.style.left = at(value.low);
    error.style.right = 'calc(100% - ' + at(value.high === null ? most : value.high) + ')';
  }
  return make('span', { class: 'bar' }, line, error);
}
// A number, its bounds where they are not the number, and their confidence; a bar where there is a scale.
function estimate(value, words, most) {
  if (!value) return make('td', { class: 'number' }, '–');
  const one = make('td', {
    class: 'number', 'data-value': value.value, 'data-low': value.low,
    'data-high': value.high, 'data-confidence': value.confidence
  }, words(value.value));
  if (value.low !== value.value || value.high !== value.value) {
    const high = value.high === null ? 'no upper bound' : words(value.high);
    const whole = (words) => words.replaceAll(' ', '\u00a0');
    one.append(make('small', null, whole(words(value.low) + ' to ' + high), value.confidence ? ' (' + whole(percent(value.confidence)) + ')' : null));
  }
  if (most > 0) one.append(errorBar(value, most));
  return one;
}
// When and how a flow was seen: titles of columns, and its cells.
function seenTitles(seen) {
  return [...(seen.forward ? ['forward', 'back'] : []), 'mean packet', 'first seen', 'last seen', 'lasting', 'TCP flags'];
}
function seenCells(report, seen) {
  const day = report.start.slice(0, 10);
  const way = ({ packets, bytes: size }) =>
    make('td', { class: 'number', 'data-value': packets, 'data-bytes': size }, count(packets), make('small', null, bytes(size)));
  return [
    ...(seen.forward ? [way(seen.forward), way(seen.back)] : []),
    cell(seen.packet_bytes === null ? '–' : bytes(Math.round(seen.packet_bytes)), seen.packet_bytes),
    ...[seen.first, seen.last].map((time) => make('td', { class: 'time', 'data-value': time }, clock(time, day))),
    cell(lasting(seen.seconds), seen.seconds),
    make('td', { class: 'flags', 'data-value': seen.tcp_flags }, seen.tcp_flags),
  ];
}
function table(titles, rows) {
  const isNumber = (at) => rows.length && rows[0][at].classList.contains('number');
  const head = make('tr', null, titles.map((title, at) => make('th', { scope: 'col', class: isNumber(at) ? 'number' : null }, title)));
  const body = make('tbody', null, rows.map((row) => make('tr', null, row)));
  return make('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'Table with ' + plural(rows.length, 'row') }, make('table', null, make('thead', null, head), body));
}
const folded = (content) => make('details', null, make('summary', null, 'As a table'), content);

const TITLES = {
  'top-sources': 'Top sources', 'top-destinations': 'Top destinations', 'heavy-hitters': 'Heavy hitters',
  'flow-size': 'Sizes of given flows', superspreaders: 'Superspreaders', victims: 'Victims',
  changes: 'Changes', cardinality: 'Number of flows', entropy: 'Entropy',
  quantiles: 'Quantiles', 'key-quantiles': 'Key quantiles', hierarchical: 'Hierarchical heavy hitters',
};

// What the items of a list are, where they are not keys.
const HEADS = {
  'top-sources': 'source', 'top-destinations': 'destination', superspreaders: 'source', victims: 'destination', hierarchical: 'prefix',
};
const FIELDS = { distinct: 'distinct peers', q: 'quantile' };

// The answer of any task: its numbers, and a table of each of its lists.
function answer(report, name, task) {
  const by = report.by;
  const wordsOf = (field) => (field === 'bytes' || (by === 'bytes' && ['before', 'forecast', 'now', 'discounted'].includes(field)) ? bytes : count);
  let wide = false;
  const parts = [make('h2', null, name === 'top' ? 'Top ' + keysOf(report) + ' by ' + by : TITLES[name] || name)];
  const facts = [];
  if (task.threshold) {
    const peers = () => count(task.threshold) + ' distinct ' + task.of + (task.of === 'address' ? 'es' : 's');
    facts.push('More than ' + (task.of ? peers() : weighed(report, task.threshold)) + ' each.');
  }
  if (name === 'changes' && task.threshold === null) facts.push('No forecast yet: changes need an epoch before this one.');
  if (task.truncated) facts.push(count(task.truncated) + ' more are not listed; --limit lists more.');
  if (task.complete_to !== undefined && task.complete_to < task.items.length) {
    facts.push(task.complete_to ? 'Ranks up to ' + count(task.complete_to) + ' are certain; below, some may be missing or out of order.'
      : 'No rank is certain: some may be missing or out of order.');
  }
  if (report.filtered && report.filtered[name]) {
    facts.push('The filter shows ' + count(task.items.length) + ' of ' + plural(report.filtered[name], 'item') + '.');
  }
  if (facts.length) parts.push(about(facts.join(' ')));
  const single = Object.entries(task).filter(([field, value]) => value !== null && (field === 'normalized' || value.low !== undefined));
  if (single.length) {
    parts.push(table(['', ''], single.map(([field, value]) => [
      what({ flows: keysOf(report), bits: 'entropy in bits', normalized: 'share of the maximum for this number of flows' }[field] || field),
      typeof value === 'number' ? shareCell(value) : estimate(value, count),
    ])));
  }
  for (const [list, items] of Object.entries(task).filter(([, value]) => Array.isArray(value))) {
    if (!items.length) {
      if (list === 'items' && !report.filtered) parts.push(make('p', null, 'None.'));
      continue;
    }
    const named = items[0].key || items[0].prefix || items[0].source;
    const fields = Object.keys(items[0])
      .filter((field) => !['key', 'prefix', 'source', 'destination', 'seen'].includes(field) && items.some((item) => item[field] !== null));
    // What the list is sorted by.
    const sorted = ['discounted', 'distinct', by].find((field) => fields.includes(field));
    const most = items.reduce((most, item) => Math.max(most, sorted && item[sorted] ? item[sorted].high || item[sorted].value : 0), 0);
    const { seen } = items[0];
    wide ||= Boolean(seen);
    const rows = items.map((item) => {
      const words = item.key ? flow(report, item.key) : item.prefix || item.source + ' → ' + item.destination;
      const known = labels(report, item);
      return [...(named ? [what(known ? words + ' (' + known + ')' : words)] : []), ...fields.map((field) => {
        const value = item[field];
        if (field === 'share' || field === 'q') return shareCell(value);
        return value === null || typeof value === 'object' ? estimate(value, wordsOf(field), field === sorted ? most : 0) : cell(count(value), value);
      }), ...(seen ? seenCells(report, item.seen) : [])];
    });
    const head = HEADS[name] || wordsOfKey(report)[0];
    const titles = [...(named ? [head] : []), ...fields.map((field) => FIELDS[field] || field), ...(seen ? seenTitles(seen) : [])];
    parts.push(table(titles, rows));
  }
  return make('section', { 'data-task': name, class: wide ? 'wide' : null }, parts);
}

const ACCOUNT = {
  read: 'read', skipped: 'skipped by the sampler', filtered: 'rejected by the filter',
  malformed: 'malformed', no_key: 'without a key', keyed: 'measured',
  untracked: 'of flows that the summary does not hold', dropped: 'dropped, because the workers were too slow',
  lost: 'lost before they were read', saturated: 'lost to full counters',
  late: 'late, counted in the open epoch', backwards: 'older than the packet before them',
  jumps: 'over an hour newer than the packet before them', irregular: 'in irregular records',
};
function account(counts) {
  const rows = [];
  const row = (words, packets, size) => {
    const last = size === undefined ? make('td', { class: 'number' }) : cell(bytes(size), size);
    rows.push([what(words), cell(count(packets), packets), last]);
  };
  for (const [field, words] of Object.entries(ACCOUNT)) {
    if (counts[field] || field === 'read' || field === 'keyed') row(words, counts[field], counts[field + '_bytes']);
    for (const [reason, packets] of Object.entries(counts[field + '_reasons'] || {})) row('\u00a0\u00a0' + reason, packets);
  }
  return table(['packets', 'number', 'bytes'], rows);
}
const pairs = (entries) => make('dl', null, entries.flatMap(([name, value]) => [make('dt', null, name), make('dd', null, String(value))]));
function lines(title, list) {
  if (!list.length) return null;
  return make('section', null, make('h2', null, title), make('ul', null, list.map((line) => make('li', null, line))));
}

// ---- the page

function finding(item) {
  const facts = [];
  if (item.start) {
    const day = item.start.slice(0, 10);
    const times = clock(item.start, day) + ' to ' + clock(item.end, day) + ' UTC (' + lasting(seconds(item)) + ')';
    facts.push((item.exact_times ? 'from ' : 'from about ') + times);
  }
  if (item.tcp_flags) facts.push('TCP ' + item.tcp_flags);
  const at = item.text.indexOf(': ');
  return make('li', { class: 'finding', 'data-kind': item.kind, 'data-value': item.share },
    make('p', null, make('b', null, item.text.slice(0, at)), item.text.slice(at + 1)),
    facts.length ? about(facts.join(' · ')) : null,
    item.filter ? make('code', null, "flowgauge analyze --filter '" + item.filter + "' FILE") : null);
}

function tiles(report) {
  const { packets, bytes: size } = keyed(report);
  const time = observed(report);
  const tile = (name, value, words, small) => make('div', { class: 'card', 'data-tile': name, 'data-value': value },
    make('span', null, name), make('strong', null, words), small ? make('small', null, small) : null);
  const all = [tile('packets', packets, scaled(packets, '', 1e6)), tile('bytes', size, bytes(size))];
  if (time >= 0.1 || (time > 0 && packets >= 1000)) {
    all.push(tile('packets/s', packets / time, scaled(packets / time, '', 1e6)), tile('bits/s', (8 * size) / time, scaled((8 * size) / time, '')));
  }
  const number = report.tasks.cardinality && report.tasks.cardinality.flows;
  if (number) {
    const bounds = number.low === number.high ? null : count(number.low) + ' to ' + (number.high === null ? 'any' : count(number.high));
    all.push(tile(keysOf(report), number.value, scaled(number.value, '', 1e6), bounds));
  }
  const entropy = report.tasks.entropy;
  if (entropy) all.push(tile('entropy', entropy.bits.value, count(entropy.bits.value) + ' bits', percent(entropy.normalized) + ' of the maximum'));
  return make('div', { class: 'cards' }, all);
}

// Where there is no content, a report says how to get it.
function section(title, content, missing, wide) {
  if (!content && document.documentElement.dataset.live) return null;
  return make('section', { class: wide ? 'wide' : null }, make('h2', null, title), content || make('p', { class: 'about missing' }, missing));
}

function overTime(report, width) {
  const { series } = report;
  if (!series || !series.packets.length) return null;
  const [start, step] = [milliseconds(series.start), 1000 * series.step_seconds];
  const found = (report.tasks.findings || { items: [] }).items.filter((item) => item.start && seconds(item) < 0.9 * seconds(report));
  const shades = found.slice(0, 3).map((item) => ({ start: milliseconds(item.start), end: milliseconds(item.end) }));
  const bars = (field, factor, unit) => series[field].map((number, at) => {
    const value = (number * factor) / series.step_seconds;
    const from = start + at * step;
    return { start: from, end: from + step, value, text: clockAt(from, 11, step < 1000 ? 23 : 19) + ' ' + rate(value, unit), data: { 'data-count': number } };
  });
  const rows = series.packets.map((packets, at) => {
    const size = series.bytes[at];
    return [what(clockAt(start + at * step, 11, 23)), cell(count(packets), packets), cell(bytes(size), size)];
  });
  return make('div', null, about('In steps of ' + lasting(series.step_seconds) + ', UTC.' + (shades.length ? ' Shaded: when something stood out.' : '')),
    timePlot('packets', 'packets/s', width, bars('packets', 1, 'packets/s'), shades),
    timePlot('bytes', 'bits/s', width, bars('bytes', 8, 'bit/s'), shades),
    folded(table(['start of the step', 'packets', 'bytes'], rows)));
}

// What stands above all else of a report.
function heading(report) {
  const parts = [];
  if (report.coverage < 1) parts.push(note(percent(report.coverage) + ' of this epoch was observed.'));
  if (report.undelivered) parts.push(note(plural(report.undelivered, 'report') + ' before this one could not be written in time.'));
  parts.push(tiles(report));
  return parts;
}

function show(report, width, live) {
  const half = width > 760 ? (width - 56) / 2 : width;
  const parts = [];
  const { findings } = report.tasks;
  if (findings) {
    const list = findings.items.length ? make('ul', { class: 'findings' }, findings.items.map(finding)) : make('p', null, 'Nothing stands out.');
    parts.push(make('section', { class: 'wide', 'data-task': 'findings' }, make('h2', null, 'What stands out'), list,
      findings.truncated ? make('p', null, 'And ' + count(findings.truncated) + ' more.') : null));
  }
  const listing = (side) => 'No list has ' + side + 's: the task top-' + side + 's gives them, or a key that has the ' + side + '.';
  // A key without directions has hosts; sources and destinations only where a task lists them.
  const hosts = treemap(report, 'host', half);
  const side = (title, map, side) => (map || !hosts ? section(title, map, listing(side)) : null);
  const plots = () => [
    section('Traffic over time', overTime(report, width), 'The task findings gives packets over time; the default preset has it.', true),
    hosts && section('Hosts by prefix', hosts),
    side('Sources by prefix', treemap(report, 'source', half), 'source'),
    side('Destinations by prefix', treemap(report, 'destination', half), 'destination'),
    section('Source → port → destination', sankey(report, half),
      'The task top or heavy-hitters gives this plot, with a key that has source, destination and destination port, such as five-tuple.'),
    section('Flow sizes', sizePlot(report, half), 'The task size-distribution gives the number of flows of each size.')];
  const drawn = report.account.keyed ? plots() : [section('Traffic', null, 'No packet was measured.', true)];
  // These two stand above.
  const listed = Object.entries(report.tasks).filter(([name]) => name !== 'findings' && name !== 'size-distribution')
    .map(([name, task]) => answer(report, name, task));
  // Who watches an agent reads the lists first.
  parts.push(...(live ? [...listed, ...drawn] : [...drawn, ...listed]));
  if (report.breakdown) {
    const { protocols, ports } = report.breakdown;
    const all = keyed(report).packets;
    const list = (task, title, head, items, nameOf) => {
      const rows = items.map((one) => {
        const share = all ? one.packets / all : 0;
        return [what(nameOf(one)), cell(count(one.packets), one.packets), cell(bytes(one.bytes), one.bytes), shareCell(share)];
      });
      parts.push(make('section', { 'data-task': task }, make('h2', null, title), table([head, 'packets', 'bytes', 'share'], rows)));
    };
    list('protocols', 'Protocols', 'protocol', protocols, (one) => one.name || 'protocol ' + one.protocol);
    list('ports', 'Service ports', 'port', ports, (one) => protocol(report, one.protocol) + '/' + one.port + (one.name ? ' ' + one.name : ''));
  }
  parts.push(make('section', { 'data-task': 'account' }, make('h2', null, 'Account of packets'), account(report.account)));
  const { summary, seed } = report;
  parts.push(make('section', null, make('h2', null, 'How it was measured'), pairs([
    ['key', report.key], ['by', report.by], ['algorithm', summary.algorithm], ['accelerator', summary.accelerator],
    ['memory', grouped(summary.memory_bytes / 2 ** 20, 1) + ' MiB'], ...Object.entries(summary.parameters),
    ['seed', seed.kind + ' ' + seed.id + (seed.kind === 'number' ? ' (known: bounds hold unless senders craft colliding packets)' : '')]])));
  const { audit } = report;
  if (audit) {
    const error = (value) => sized(value, report.by) + (report.by === 'packets' ? ' packets' : '');
    parts.push(make('section', { 'data-task': 'audit' }, make('h2', null, 'Audit of 1 flow in ' + count(audit.one_in)), pairs([
      ['compared with an exact count', plural(audit.flows, 'flow') + ', ' + error(audit.weight)],
      ['mean error (bias)', error(audit.bias)], ['root mean square error', error(audit.rmse)],
      ['outside their bounds', percent(audit.violated) + ' of the flows (allowed: ' + percent(audit.allowed) + ')']])));
  }
  parts.push(lines('Notes', report.notes));
  return parts.filter(Boolean);
}

function ending(totals) {
  return totals.flatMap((total) => [
    make('section', { 'data-total': total.measurement }, make('h2', null, 'Whole run' + (totals.length > 1 ? ': ' + total.measurement : '')),
      make('p', null, span(total) + ' · ' + plural(total.epochs, 'epoch')), total.epochs === 1 && !total.account.irregular ? null : account(total.account),
      pairs([...total.files.map((file, at) => ['input ' + (at + 1), file]), ...Object.entries(total.counters).map(([name, number]) => [name, count(number)])]),
      total.undelivered ? note(plural(total.undelivered, 'report') + ' could not be written in time.') : null),
    lines('Problems', total.problems), lines('Notes of the run', total.notes)]).filter(Boolean);
}

// What a reader can open, scroll or focus below an element, by its section, kind and place.
function places(root) {
  const [found, number] = [new Map(), new Map()];
  for (const element of root.querySelectorAll('details, summary, .scroll, svg, button, select')) {
    const title = element.closest('section')?.querySelector('h2');
    const kind = (title ? title.textContent : '') + ' ' + element.localName;
    number.set(kind, (number.get(kind) || 0) + 1);
    found.set(kind + ' ' + number.get(kind), element);
  }
  return found;
}
// Draws below an element again, and leaves a reader where they are.
function redraw(root, change) {
  const before = [...places(root)].map(([name, element]) => [name, {
    open: element.open, top: element.scrollTop, left: element.scrollLeft,
    at: element.shownAt ? element.shownAt() : -1, focused: element === document.activeElement
  }]);
  change();
  const after = places(root);
  for (const [name, { open, top, left, at, focused }] of before) {
    const element = after.get(name);
    if (!element) continue;
    if (open) element.open = true;
    if (top || left) [element.scrollTop, element.scrollLeft] = [top, left];
    if (focused) element.focus({ preventScroll: true });
    if (at >= 0) element.showAt(at);
  }
}

// Draws these items. The page of an agent goes on: `live` gives what it shows of a report (`view`) and a
// section of its own (`section`), and hears what is shown (`shown`). What is returned adds and chooses reports.
function page(items, unreadable, live) {
  const totals = items.filter((item) => item.type === 'total');
  const reports = [];
  const names = [];
  const same = (one, other) => one.measurement === other.measurement && one.epoch === other.epoch && one.start === other.start;
  // The next report of an epoch has all that an update of it has.
  const keep = (report) => {
    const before = reports.findLastIndex((one) => same(one, report));
    if (before >= 0) reports[before] = report; else reports.push(report);
    if (!names.includes(report.measurement)) names.push(report.measurement);
  };
  const isReport = (item) => item.type === 'epoch' || item.type === 'update';
  items.filter(isReport).forEach(keep);
  const files = [...new Set(totals.flatMap((total) => total.files))];
  const run = document.getElementById('run');
  run.append(files.slice(0, 3).join(', ') + (files.length > 3 ? ' and ' + count(files.length - 3) + ' more' : ''));
  if (files.length) document.title = files[0] + ' – traffic report';
  if (unreadable) run.append(make('span', { class: 'note' }, ' ' + plural(unreadable, 'report') + ' in this page cannot be read.'));
  const main = document.getElementById('report');
  const choice = document.getElementById('choice');
  const epochs = () => reports.filter((report) => report.measurement === chosen.name);
  const last = (name) => reports.filter((report) => report.measurement === name).length - 1;
  // The page of a run that goes on opens at its newest epoch.
  const opening = (name) => ({ name, at: totals.length ? 0 : last(name) });
  // `held` keeps a reader of the newest epoch at it when the next one comes.
  const chosen = { ...opening(names[0]), held: false };
  const follows = () => Boolean(live) && chosen.at === last(chosen.name) && !chosen.held;
  // An open list of epochs is not pulled away.
  const isChoosing = () => document.activeElement !== null && document.activeElement.id === 'epoch';
  const name = (report) => 'epoch ' + report.epoch + (report.type === 'update' ? ' so far' : '');
  const option = (report) => name(report) + (report.start ? ' · ' + clock(report.start, (reports[reports.length - 1].start || '').slice(0, 10), 8) : '');
  const pick = (change) => { Object.assign(chosen, { held: false }, change); render(); };
  const step = (by) => {
    const to = chosen.at + by;
    if (to >= 0 && to <= last(chosen.name)) pick({ at: to });
  };
  const hold = () => (follows() ? pick({ held: true }) : pick(opening(chosen.name)));

  function chooser() {
    const all = epochs();
    const parts = [];
    if (names.length > 1) {
      parts.push(make('div', { class: 'tabs' }, names.map((name) => {
        const button = make('button', { type: 'button', 'aria-pressed': name === chosen.name }, name);
        button.addEventListener('click', () => pick(opening(name)));
        return button;
      })));
    }
    if (all.length > 1) {
      const select = make('select', { id: 'epoch', 'aria-label': 'Epoch' }, all.map((report, at) => make('option', { value: at }, option(report))));
      select.value = chosen.at;
      // Older epochs may have gone since.
      select.addEventListener('change', () => pick({ at: Math.max(0, epochs().indexOf(all[Number(select.value)])), held: Boolean(live) }));
      if (follows()) select.onblur = () => pick(opening(chosen.name));
      const button = (words, by, name) => {
        const button = make('button', { type: 'button', 'aria-label': name }, words);
        button.disabled = chosen.at + by < 0 || chosen.at + by >= all.length;
        button.addEventListener('click', () => step(by));
        return button;
      };
      const pause = live && make('button', { type: 'button', id: 'hold' }, follows() ? 'Pause' : 'Go live');
      if (pause) pause.addEventListener('click', hold);
      parts.push(make('div', { class: 'epochs' }, button('‹', -1, 'Epoch before'), select, button('›', 1, 'Next epoch'), pause));
    }
    parts.push(make('p', null, name(all[chosen.at]) + ' · ' + span(all[chosen.at])));
    choice.replaceChildren(...parts);
  }

  const rechoose = () => {
    const list = document.getElementById('epoch');
    // That it goes is no choice.
    if (list) list.onblur = null;
    redraw(choice, chooser);
  };

  // The mean rate of each epoch, around the chosen one.
  function strip(width) {
    const all = epochs();
    if (all.length < 2) return null;
    const first = Math.max(0, Math.min(chosen.at - SHOWN_EPOCHS / 2, all.length - SHOWN_EPOCHS));
    const bars = all.slice(first, first + SHOWN_EPOCHS).flatMap((report, offset) => {
      if (!report.start) return [];
      const time = observed(report);
      const value = time > 0 ? keyed(report).packets / time : 0;
      const lost = time > 0 ? (report.account.lost + report.account.dropped) / time : 0;
      const found = report.tasks.findings ? report.tasks.findings.items.length : 0;
      return [{
        at: first + offset, start: milliseconds(report.start), end: milliseconds(report.end), value, lost, found,
        data: { 'data-epoch': report.epoch }, look: first + offset === chosen.at ? 'chosen' : '',
        text: 'epoch ' + report.epoch + ': ' + rate(value, 'packets/s') + (lost ? ', lost ' + rate(lost, 'packets/s') : '') + (found ? ', ' + plural(found, 'finding') : ''),
      }];
    });
    if (!bars.length) return null;
    const bar = timePlot('epochs', 'packets/s', width, bars, null, (bar) => pick({ at: bar.at }));
    const red = [bars.some((one) => one.lost) ? 'Red on top: lost packets.' : '', bars.some((one) => one.found) ? 'Red below: something stood out.' : ''];
    return section('Epochs', make('div', null, about(['Mean rate of each epoch; a click opens it.', ...red].filter(Boolean).join(' ')), bar), '', true);
  }

  function render() {
    if (!reports.length) {
      main.replaceChildren(make('p', null, live ? 'No epoch has ended yet.' : 'The page holds no report of an epoch.'));
      return;
    }
    const width = Math.max(280, Math.floor(main.clientWidth - 2 * (main.clientWidth > 560 ? 20 : 12)));
    document.getElementById('tip').hidden = true;
    rechoose();
    const whole = epochs()[chosen.at];
    const report = live ? live.view(whole) : whole;
    const own = live ? live.section : null;
    redraw(main, () => {
      const above = [strip(width), ...heading(report)].filter(Boolean);
      const below = show(report, width, live);
      for (const child of [...main.children]) if (child !== own) child.remove();
      main.prepend(...above);
      if (own && own.parentNode !== main) main.append(own);
      main.append(...below);
    });
    if (live) live.shown(whole, follows(), width);
  }
  // A reader who looks at the newest epoch is taken along.
  function add(report) {
    if (!isReport(report)) return;
    const isFirst = !reports.length;
    const followed = follows();
    keep(report);
    const own = reports.filter((one) => one.measurement === report.measurement);
    if (own.length > LIVE_EPOCHS) {
      reports.splice(reports.indexOf(own[0]), 1);
      if (chosen.name === report.measurement && chosen.at > 0) chosen.at -= 1;
    }
    if (isFirst) pick(opening(names[0]));
    else if (isChoosing()) return;
    else if (chosen.name === report.measurement && followed) pick({ at: last(chosen.name) });
    else if (own.length === 1 || chosen.name === report.measurement) rechoose();
  }

  // Puts older reports before those that are there.
  add.before = (older) => {
    const newer = reports.splice(0);
    const at = newer.filter((report) => report.measurement === chosen.name)[chosen.at];
    [...older.filter(isReport), ...newer].forEach(keep);
    if (!reports.length) return;
    const again = at && epochs().findIndex((report) => same(report, at));
    pick(again >= 0 ? { at: again, held: chosen.held } : opening(chosen.name || names[0]));
  };
  // Chooses a measurement and an epoch by their names; without an epoch the newest. Says whether they are there.
  add.choose = (measurement, epoch) => {
    if (!reports.length) return false;
    const isThere = measurement === null || names.includes(measurement);
    if (isThere) chosen.name = measurement || chosen.name || names[0];
    const at = epoch === null || !isThere ? -1 : epochs().findLastIndex((report) => report.epoch === epoch);
    pick(at >= 0 ? { at, held: true } : opening(chosen.name));
    return isThere && (epoch === null || at >= 0);
  };
  Object.assign(add, { step, hold, render, names });

  if (!live) render();
  document.getElementById('end').append(...ending(totals), about(document.querySelector('meta[name=generator]').content));
  let drawn = main.clientWidth;
  window.addEventListener('resize', () => {
    if (main.clientWidth !== drawn) { drawn = main.clientWidth; render(); }
  });
  return add;
}

// Draws the items that a file holds.
function start() {
  const items = [];
  let unreadable = 0;
  for (const element of document.querySelectorAll('script.item')) {
    try { items.push(JSON.parse(element.textContent)); } catch { unreadable += 1; }
  }
  page(items, unreadable, false);
}
// An agent's page gets its items from the agent.
if (!document.documentElement.dataset.live) document.addEventListener('DOMContentLoaded', start);
