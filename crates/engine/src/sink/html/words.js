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

// ---- the contents of a report

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
  // Both are 0 for a protocol without ports.
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

// Packets and bytes with a key; estimates behind a sampler.
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
// Weight of each source, destination or host: its own if a task lists it, else that of its listed flows.
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
