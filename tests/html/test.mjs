// Opens pages that flowgauge wrote and compares what they show with the JSON of the same runs: the numbers of
// tables, of the marks of plots, and their text. Then changes a number at a time, and wants it noticed.
//
// Usage: test.mjs FLOWGAUGE CHROMIUM FOLDER

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { chromium } from 'playwright-core';

const [flowgauge, executablePath, folder] = process.argv.slice(2);
const file = (name) => path.join(folder, name);
const run = (...args) => execFileSync(flowgauge, args, { stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 28 });

// ---- what a page shows, gathered inside it

function gather() {
  const cells = (row) => [...row.children].map((cell) => ({
    text: cell.firstChild ? cell.firstChild.textContent : '',
    small: cell.querySelector('small') ? cell.querySelector('small').textContent.replaceAll('\u00a0', ' ') : null,
    ...cell.dataset,
  }));
  const tables = (root) => [...root.querySelectorAll('table')].map((table) => [...table.tBodies[0].rows].map(cells));
  const one = (root) => ({ text: root.innerText, tables: tables(root) });
  const named = (query, field) => Object.fromEntries([...document.querySelectorAll(query)].map((root) => [root.dataset[field], root]));
  const each = (roots, of) => Object.fromEntries(Object.entries(roots).map(([name, root]) => [name, of(root)]));
  const mark = (element) => ({
    ...element.dataset,
    width: Number(element.getAttribute('stroke-width') || element.getAttribute('width')),
    height: Number(element.getAttribute('height')),
    cx: Number(element.getAttribute('cx')),
    cy: Number(element.getAttribute('cy')),
    kind: element.classList[0],
  });
  return {
    title: document.title,
    run: document.getElementById('run').textContent,
    tiles: [...document.querySelectorAll('[data-tile]')].map((tile) => ({ ...tile.dataset, text: tile.querySelector('strong').textContent })),
    findings: [...document.querySelectorAll('.finding')].map((item) => ({ ...item.dataset, text: item.innerText, code: item.querySelector('code') && item.querySelector('code').textContent })),
    tasks: each(named('[data-task]', 'task'), one),
    totals: each(named('[data-total]', 'total'), one),
    plots: each(named('[data-plot]', 'plot'), (root) => ({
      ...one(root),
      marks: [...root.querySelectorAll('svg [data-tip]')].map(mark),
      names: [...root.querySelectorAll('svg text')].map((text) => text.textContent),
    })),
    seen: [...document.querySelectorAll('th')].some((title) => title.textContent === 'first seen'),
    wide: document.documentElement.scrollWidth,
  };
}

// ---- what it should show

let compared = 0;

/** Compares a page with the reports of JSON, and tells the differences. */
class Comparison {
  differences = [];

  same(what, shown, expected) {
    compared += 1;
    if (JSON.stringify(shown) !== JSON.stringify(expected)) {
      this.differences.push(`${what}: shows ${JSON.stringify(shown)} for ${JSON.stringify(expected)}`);
    }
  }

  number(what, shown, expected) {
    this.same(what, shown === undefined ? null : Number(shown), expected);
  }

  /** Whether text such as "5.32 MB" or "8.3 %" is a number, rounded to the digits it has. */
  text(what, text, expected) {
    compared += 1;
    const parts = /^(<?)(-?[\d,]+(?:\.\d+)?)(?: ?([kMGTPE]))?(?: ?(B|%|bits|bit\/s|packets\/s|packets|flows?))?$/.exec(text.trim());
    if (expected === null ? text.trim() === '–' : parts) {
      if (expected === null) return;
      const digits = parts[2].replaceAll(',', '');
      const scale = 1000 ** ' kMGTPE'.indexOf(parts[3] || ' ') / (parts[4] === '%' ? 100 : 1);
      const unit = 10 ** -(digits.split('.')[1] || '').length * scale;
      const value = Number(digits) * scale;
      const fits = parts[1] ? expected > 0 && expected < value : Math.abs(value - expected) <= unit * 0.500001;
      if (fits) return;
    }
    this.differences.push(`${what}: says ${JSON.stringify(text)} for ${expected}`);
  }

  /** A cell of a table: a number, or an estimate. */
  cell(what, cell, expected) {
    if (expected === null || typeof expected !== 'object') {
      this.number(what, cell.value, expected);
      this.text(what, cell.text, expected);
      return;
    }
    for (const field of ['value', 'low', 'high', 'confidence']) {
      this.number(`${what} ${field}`, cell[field], expected[field] ?? null);
    }
    this.text(what, cell.text, expected.value);
    const exact = expected.low === expected.value && expected.high === expected.value;
    this.same(`${what} bounds`, cell.small !== null, !exact);
    if (exact || cell.small === null) return;
    const [, low, high, confidence] = /^(.*) to (.*?)(?: \((.*)\))?$/.exec(cell.small);
    this.text(`${what} low`, low, expected.low);
    if (expected.high === null) this.same(`${what} high`, high, 'no upper bound');
    else this.text(`${what} high`, high, expected.high);
    if (expected.confidence) this.text(`${what} confidence`, confidence, expected.confidence);
  }

  rows(what, rows, expected) {
    this.same(`${what}: rows`, rows.length, expected.length);
    rows.forEach((row, at) => {
      const { words, numbers, seen } = expected[at] || { words: [], numbers: [] };
      const first = words ? 1 : 0;
      if (words) for (const word of words) this.same(`${what} row ${at} has ${word}`, row[0].text.includes(word), true);
      if (seen) this.seen(`${what} row ${at}`, row.splice(first + numbers.length), seen);
      this.same(`${what} row ${at}: cells`, row.length - first, numbers.length);
      numbers.forEach((number, column) => row[first + column] && this.cell(`${what} row ${at}`, row[first + column], number));
    });
  }

  /** When and how a flow was seen. */
  seen(what, cells, seen) {
    const ways = seen.forward ? [seen.forward, seen.back] : [];
    this.same(`${what}: cells of seen`, cells.length, ways.length + 5);
    for (const { packets, bytes } of ways) {
      const { text, small, value, bytes: shown } = cells.shift();
      this.number(`${what} packets of a way`, value, packets);
      this.number(`${what} bytes of a way`, shown, bytes);
      this.text(`${what} packets of a way`, text, packets);
      this.text(`${what} bytes of a way`, small, bytes);
    }
    const [mean, first, last, lasting, flags] = cells;
    this.number(`${what} mean packet`, mean.value, seen.packet_bytes);
    this.text(`${what} mean packet`, mean.text, seen.packet_bytes);
    for (const [time, cell] of [[seen.first, first], [seen.last, last]]) {
      this.same(`${what} time`, cell.value, time);
      this.same(`${what} time as text`, cell.text.split(' ').pop(), time.slice(11, 23));
    }
    this.number(`${what} lasting`, lasting.value, seen.seconds);
    const [number, unit] = lasting.text.split(' ');
    const digit = 10 ** -(number.split('.')[1] || '').length * { ms: 0.001, s: 1, min: 60, h: 3600 }[unit];
    this.same(`${what} lasting ${lasting.text}`, Math.abs(Number(number) * { ms: 0.001, s: 1, min: 60, h: 3600 }[unit] - seen.seconds) <= digit, true);
    this.same(`${what} TCP flags`, [flags.value, flags.text], [seen.tcp_flags, seen.tcp_flags]);
  }

  /** "NAME: 83,150 packets, 8.3 %". */
  tip(what, mark, by, all) {
    const [, amount, share] = /: ([^:]*), ([^,]*)$/.exec(mark.tip) || [];
    this.text(`${what} ${mark.name}`, (amount || '').replace(' packets', ''), Number(mark.value));
    this.text(`${what} ${mark.name} share`, share || '', all ? Number(mark.value) / all : 0);
    if (by === 'bytes') this.same(`${what} unit`, /B$/.test(amount), true);
  }

  report(page, json) {
    const { by, account, tasks, breakdown, series } = json;
    const packets = json.traffic ? json.traffic.value : account.keyed;
    const bytes = account.keyed ? (packets * account.keyed_bytes) / account.keyed : 0;
    const all = by === 'packets' ? packets : bytes;
    this.tiles(page, json, packets, bytes);
    for (const [name, task] of Object.entries(tasks)) this.task(page, name, task);
    if (tasks.findings) {
      const { items } = tasks.findings;
      this.same('findings', page.findings.length, items.length);
      page.findings.forEach((shown, at) => {
        this.same('finding', shown.kind, items[at].kind);
        this.number('finding share', shown.value, items[at].share);
        this.same('finding text', shown.text.replace(/\s+/g, ' ').toLowerCase().startsWith(items[at].text.replace(': ', ' ').toLowerCase()), true);
        this.same('finding filter', shown.code, items[at].filter && `flowgauge analyze --filter '${items[at].filter}' FILE`);
      });
    }
    if (breakdown) {
      const row = (words) => (one) => ({ words: words(one), numbers: [one.packets, one.bytes, packets ? one.packets / packets : 0] });
      this.rows('protocols', page.tasks.protocols.tables[0], breakdown.protocols.map(row((one) => [one.name || String(one.protocol)])));
      this.rows('ports', page.tasks.ports.tables[0], breakdown.ports.map(row((one) => [`/${one.port}`, one.name || ''])));
    }
    this.account('account', page.tasks.account.tables[0], account);
    this.series(page, series);
    const flows = new Map();
    for (const task of ['top', 'heavy-hitters']) {
      for (const item of tasks[task]?.items || []) if (item[by]?.value > 0) flows.set(JSON.stringify(item.key), { key: item.key, weight: item[by].value });
    }
    this.sizes(page, tasks, [...flows.values()]);
    for (const side of ['source', 'destination', 'host']) this.treemap(page, side, json, [...flows.values()], all);
    this.paths(page, [...flows.values()], by, all);
    this.same('columns of when flows were seen', page.seen, Object.values(tasks).some((task) => task.items?.some((item) => item.seen)));
  }

  tiles(page, json, packets, bytes) {
    const seconds = json.start ? (json.coverage * (Date.parse(json.end) - Date.parse(json.start))) / 1000 : 0;
    for (const tile of page.tiles) {
      const value = Number(tile.value);
      this.text(`tile ${tile.tile}`, tile.text, value);
      const expected = { packets, bytes, entropy: json.tasks.entropy?.bits.value }[tile.tile];
      if (tile.tile.endsWith('/s')) {
        // Dates are of milliseconds here, and of nanoseconds there.
        const rate = tile.tile === 'packets/s' ? packets / seconds : (8 * bytes) / seconds;
        this.same(`tile ${tile.tile}`, Math.abs(value / rate - 1) < 0.002 / seconds, true);
      } else {
        this.number(`tile ${tile.tile}`, tile.value, expected ?? json.tasks.cardinality.flows.value);
      }
    }
    const expected = 2 + (seconds >= 0.1 ? 2 : 0) + (json.tasks.cardinality ? 1 : 0) + (json.tasks.entropy ? 1 : 0);
    if (seconds >= 0.11 || packets < 1000) this.same('tiles', page.tiles.length, expected);
  }

  task(page, name, task) {
    if (name === 'findings' || name === 'size-distribution') return;
    const shown = page.tasks[name];
    if (!shown) return this.same(`task ${name}`, null, 'shown');
    const tables = [...shown.tables];
    const single = ['flows', 'bits', 'normalized'].filter((field) => task[field] !== undefined);
    if (single.length) this.rows(name, tables.shift(), single.map((field) => ({ words: [''], numbers: [task[field]] })));
    for (const list of ['items', 'keys']) {
      if (!task[list]?.length) continue;
      const fields = Object.keys(task[list][0]).filter((field) => !['key', 'prefix', 'source', 'destination', 'seen'].includes(field) && task[list].some((item) => item[field] !== null));
      this.rows(name, tables.shift() || [], task[list].map((item) => {
        const { source_port: from, destination_port: to, protocol, vlan, tcp_flags: flags, ...ends } = item.key || {};
        const words = [...Object.values(ends), item.prefix, item.source, item.destination].filter((word) => word !== undefined);
        if (from || to) words.push(...[from, to].filter((port) => port !== undefined).map(String));
        if (protocol === 6) words.push('tcp');
        if (vlan !== undefined) words.push(vlan ? `VLAN ${vlan}` : 'untagged');
        if (flags !== undefined) words.push(flags || 'no TCP flags');
        const named = item.key || item.prefix || item.source;
        return { words: named ? words : null, numbers: fields.map((field) => item[field]), seen: item.seen };
      }));
    }
    this.same(`${name}: tables`, tables.length, 0);
    if (task.truncated) this.same(`${name} truncated`, shown.text.includes(`${task.truncated.toLocaleString('en-US')} more are not listed`), true);
  }

  /** Each count that is not zero, with its reasons. */
  account(what, rows, account) {
    const expected = [];
    for (const field of ['read', 'skipped', 'filtered', 'malformed', 'no_key', 'keyed', 'untracked', 'dropped', 'lost', 'saturated', 'late', 'backwards', 'jumps', 'irregular']) {
      if (account[field] || field === 'read' || field === 'keyed') expected.push([account[field], account[`${field}_bytes`]]);
      expected.push(...Object.values(account[`${field}_reasons`] || {}).map((packets) => [packets, undefined]));
    }
    this.same(`${what}: rows`, rows.length, expected.length);
    rows.forEach((row, at) => {
      const [packets, bytes] = expected[at] || [];
      this.cell(`${what} ${row[0].text}`, row[1], packets);
      if (bytes !== undefined) this.cell(`${what} ${row[0].text} bytes`, row[2], bytes);
      else this.same(`${what} ${row[0].text} bytes`, row[2].text, '');
    });
  }

  series(page, series) {
    const shown = page.plots.packets;
    this.same('series shown', Boolean(shown), Boolean(series?.packets.length));
    if (!shown) return;
    for (const [field, factor] of [['packets', 1], ['bytes', 8]]) {
      const { marks } = page.plots[field];
      this.same(`series ${field}`, marks.map((mark) => Number(mark.count)), series[field]);
      for (const mark of marks) {
        const value = (Number(mark.count) * factor) / series.step_seconds;
        this.number(`rate of ${field}`, mark.value, value);
        this.text(`rate of ${field}`, mark.tip.split(' ').slice(1).join(' '), value);
      }
    }
    this.rows('series', page.seriesTable, series.packets.map((packets, at) => ({ words: [''], numbers: [packets, series.bytes[at]] })));
  }

  sizes(page, tasks, flows) {
    const shown = page.plots.sizes;
    const bins = tasks['size-distribution']?.bins || [];
    const points = bins.length
      ? bins.map((bin) => [bin.size, bin.flows.value]).filter(([size, flows]) => size > 0 && flows > 0)
      : flows.map((flow) => flow.weight).sort((one, other) => other - one).map((weight, at) => [at + 1, weight]);
    this.same('sizes shown', Boolean(shown), points.length > 0);
    if (!shown) return;
    this.same('sizes', shown.marks.map((mark) => [Number(mark.x), Number(mark.value)]), points);
    const [first, last] = [shown.marks[0], shown.marks.at(-1)];
    for (const [place, of] of [['cx', 'x'], ['cy', 'value']]) {
      const log = (mark) => Math.log10(Number(mark[of]));
      const slope = (last[place] - first[place]) / (log(last) - log(first) || 1);
      for (const mark of shown.marks) this.same(`place of ${mark.tip}`, Math.abs(mark[place] - first[place] - slope * (log(mark) - log(first))) < 0.01, true);
    }
    const atLeast = (from) => bins.slice(from).reduceRight((sum, bin) => sum + bin.flows.value, 0);
    this.rows('sizes', shown.tables[0], bins.length
      ? bins.map((bin, at) => ({ words: null, numbers: [bin.size, bin.flows, atLeast(at)] }))
      : points.map((point) => ({ words: null, numbers: point })));
  }

  treemap(page, side, json, flows, all) {
    const weights = new Map();
    const both = json.key.startsWith('conversation');
    const ends = (key) => (both ? (side === 'host' ? new Set([key.source, key.destination]) : []) : [key[side]].filter(Boolean));
    for (const { key, weight } of flows) for (const end of ends(key)) weights.set(end, (weights.get(end) || 0) + weight);
    for (const item of json.tasks[`top-${side}s`]?.items || []) if (item[json.by]?.value > 0) weights.set(item.key[side], item[json.by].value);
    const hierarchy = side === 'source' && !weights.size ? json.tasks.hierarchical?.items || [] : [];
    for (const item of hierarchy) if (item.prefix && item.discounted.value > 0) weights.set(item.prefix, item.discounted.value);
    const shown = page.plots[`${side}s`];
    this.same(`${side}s shown`, Boolean(shown), weights.size > 0);
    if (!shown) return;
    const sum = [...weights.values()].reduce((one, other) => one + other, 0);
    const leaves = Object.fromEntries(shown.marks.map((mark) => [mark.name, mark]));
    const rest = side !== 'host' && all - sum > all * 1e-9;
    // A listed prefix that holds others shows what it has besides them.
    const listed = (name) => name.replace('other in ', '');
    this.same(`${side}s: tiles`, Object.keys(leaves).map(listed).sort(), [...weights.keys(), ...(rest ? ['not listed'] : [])].sort());
    const close = (shown, expected) => Math.abs(shown - expected) <= 1e-9 * all;
    for (const mark of shown.marks) {
      const expected = mark.name === 'not listed' ? all - sum : weights.get(listed(mark.name));
      this.same(`tile ${mark.name}`, close(Number(mark.value), expected), true);
      this.tip(`tile of a ${side}`, mark, json.by, all);
    }
    for (const [name, amount, share] of shown.tables[0]) {
      const prefix = name.text.replaceAll('\u00a0', '');
      const [, address, length] = /^(.*)\/(\d+)$/.exec(prefix) || [];
      let expected = prefix === 'not listed' ? all - sum : weights.get(listed(prefix));
      if (!leaves[prefix]) {
        const family = net.isIPv6(address) ? 'ipv6' : 'ipv4';
        const block = new net.BlockList();
        block.addSubnet(address, Number(length), family);
        const inside = [...weights].filter(([one]) => net.isIPv6(one.split('/')[0]) === (family === 'ipv6') && block.check(one.split('/')[0], family));
        expected = inside.reduce((all, [, weight]) => all + weight, 0);
      }
      this.same(`prefix ${prefix}`, close(Number(amount.value), expected), true);
      this.text(`prefix ${prefix}`, amount.text, Number(amount.value));
      this.text(`prefix ${prefix} share`, share.text, all ? expected / all : 0);
    }
    if (side === 'host') return this.same('hosts count twice', shown.text.includes('a packet counts for both of its hosts'), true);
    const covered = /(\d[\d.,]*|<0.01) % of the/.exec(shown.text);
    this.text(`${side}s covered`, `${covered[1]} %`, all ? Math.min(1, sum / all) : 0);
  }

  paths(page, flows, by, all) {
    const usable = flows.filter(({ key }) => key.source !== undefined && key.destination !== undefined && key.destination_port !== undefined);
    const shown = page.plots.paths;
    this.same('paths shown', Boolean(shown), usable.length > 0);
    if (!shown) return;
    const total = usable.reduce((sum, flow) => sum + flow.weight, 0);
    const sum = (of) => usable.filter(of).reduce((sum, flow) => sum + flow.weight, 0);
    const port = ({ key }) => (key.source_port === undefined ? key.destination_port : Math.min(key.source_port, key.destination_port));
    const nodes = shown.marks.filter((mark) => mark.kind === 'node');
    const bands = shown.marks.filter((mark) => mark.kind === 'band');
    const close = (one, other) => Math.abs(one - other) <= 1e-9 * total;
    const others = (name) => name.startsWith('other ');
    for (const node of nodes) {
      if (others(node.name)) continue;
      const number = /\/(\d+)( |$)|^port (\d+)/.exec(node.name);
      const expected = net.isIP(node.name.split('/')[0]) ? null : number && Number(number[1] || number[3]);
      if (expected !== null) this.same(`port ${node.name}`, Number(node.value) <= sum((flow) => port(flow) === expected) + 1e-9 * total, true);
    }
    this.same('sum of nodes', close(nodes.reduce((sum, node) => sum + Number(node.value), 0), 3 * total), true);
    this.same('sum of bands', close(bands.reduce((sum, band) => sum + Number(band.value), 0), 2 * total), true);
    const scale = Number(nodes[0].value) / nodes[0].height;
    for (const mark of [...nodes, ...bands]) {
      this.tip('path', mark, by, all);
      const length = mark.kind === 'node' ? mark.height : mark.width;
      if (length > 1) this.same(`width of ${mark.name}`, Math.abs(Number(mark.value) / length / scale - 1) < 1e-6, true);
    }
    // Bands from a source to anything, and from anything to a destination, are its flows.
    const ends = (at) => {
      const sums = new Map();
      for (const band of bands) {
        const end = band.name.split(' → ')[at];
        if (net.isIP(end.split('/')[0])) sums.set(end, (sums.get(end) || 0) + Number(band.value));
      }
      return sums;
    };
    for (const [side, at] of [['source', 0], ['destination', 1]]) {
      for (const [end, weight] of ends(at)) this.same(`${side} ${end}`, close(weight, sum(({ key }) => key[side] === end)), true);
    }
    const rows = new Map(shown.tables[0].map(([name, amount, share]) => [name.text, { amount, share }]));
    this.same('paths: rows', rows.size, bands.length);
    for (const band of bands) {
      const { amount, share } = rows.get(band.name) || { amount: { text: '' }, share: { text: '' } };
      this.cell(`path ${band.name}`, amount, Number(band.value));
      this.text(`path ${band.name}`, share.text, Number(band.value) / all);
    }
  }
}

// ---- pages

const browser = await chromium.launch({
  executablePath,
  headless: true,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});

async function open(html, width = 1280, colorScheme = 'light') {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
  const page = await context.newPage();
  const troubles = [];
  page.on('console', (message) => troubles.push(`console: ${message.text()}`));
  page.on('pageerror', (error) => troubles.push(`error: ${error.stack}`));
  page.on('dialog', (dialog) => { troubles.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  const address = `file://${html}`;
  page.on('request', (request) => request.url() !== address && troubles.push(`request: ${request.url()}`));
  await page.goto(address);
  return { page, troubles, close: () => context.close() };
}

/** Compares every epoch of every measurement of a page; tells the differences. */
async function compare(html, json, width) {
  const lines = fs.readFileSync(json, 'utf8').trim().split('\n').map((line) => JSON.parse(line));
  const opened = await open(html, width);
  const { page } = opened;
  const comparison = new Comparison();
  const measurements = [...new Set(lines.filter((line) => line.type === 'epoch').map((line) => line.measurement))];
  for (const name of measurements) {
    if (measurements.length > 1) await page.locator('.tabs button', { hasText: name }).click();
    const epochs = lines.filter((line) => line.type === 'epoch' && line.measurement === name);
    const options = await page.locator('#epoch option').count();
    comparison.same('epochs to choose from', options, epochs.length > 1 ? epochs.length : 0);
    for (const [at, epoch] of epochs.entries()) {
      if (at > 0) await page.locator('#epoch').selectOption(String(at));
      const shown = await page.evaluate(gather);
      // The table of both plots over time stands beside them.
      shown.seriesTable = await page.evaluate(() => {
        const panel = document.querySelector('[data-plot=bytes]');
        const rows = panel ? [...panel.parentElement.querySelector('tbody').rows] : [];
        return rows.map((row) => [...row.children].map((cell) => ({ text: cell.textContent, ...cell.dataset })));
      });
      comparison.report(shown, epoch);
      comparison.same('page is as wide as the window', shown.wide <= width, true);
      if (epochs.length > 1) {
        const rates = epochs.map((one) => (one.start && Date.parse(one.end) > Date.parse(one.start) ? (one.traffic?.value ?? one.account.keyed) / ((one.coverage * (Date.parse(one.end) - Date.parse(one.start))) / 1000) : 0));
        const { marks } = shown.plots.epochs;
        comparison.same('bars of epochs', marks.map((mark) => Number(mark.epoch)), epochs.map((one) => one.epoch));
        marks.forEach((mark, bar) => comparison.same(`rate of epoch ${mark.epoch}`, Math.abs(Number(mark.value) - rates[bar]) <= 0.01 * rates[bar], true));
      }
    }
    const total = lines.find((line) => line.type === 'total' && line.measurement === name);
    const { totals } = await page.evaluate(gather);
    comparison.same('total', Boolean(totals[name]), Boolean(total));
    if (total && totals[name]) {
      if (total.epochs !== 1 || total.account.irregular) comparison.account('total', totals[name].tables[0], total.account);
      for (const input of total.files) comparison.same('input', totals[name].text.includes(input), true);
    }
  }
  comparison.differences.push(...opened.troubles);
  await opened.close();
  return comparison.differences;
}

let passed = 0;
async function test(name, body) {
  try {
    await body();
  } catch (error) {
    console.error(`failed: ${name}`);
    await browser.close();
    throw error;
  }
  passed += 1;
  console.log(`ok: ${name}`);
}

const planted = file('planted.pcap');
run('generate', '--packets', '300000', '--rate', '20000', '--ipv6', '0.2', '--size', 'imix', '--seed', '7',
  '--plant', 'flood:sources=2000,packets=40000,start=0.4,end=0.6', '--plant', 'scan:destinations=400', '-o', planted);
const real = path.resolve('tests/captures/var-services-std-ports.pcap');

/** Both forms of one run. */
function pages(name, ...args) {
  const [html, json] = [file(`${name}.html`), file(`${name}.json`)];
  run(...args, '--sink', `json:${json}`, '--sink', `html:${html}`);
  return [html, json];
}
const analyze = (name, ...args) => pages(name, 'analyze', '--seed', '1', ...args);

const cases = {
  'a planted capture': () => analyze('planted', planted),
  'a real capture': () => analyze('real', real),
  'several epochs': () => analyze('epochs', '--epoch', '4s', '--top', '60', '--task', 'findings,top,top-sources,top-destinations,heavy-hitters,changes,cardinality,entropy,size-distribution', planted),
  'bytes': () => analyze('bytes', '--preset', 'overview', '--by', 'bytes', '--top', '40', planted),
  'several measurements': () => analyze('several', '--measure', 'flows: task=top,size-distribution', '--measure', 'scanners: key=pair task=superspreaders,victims spread=20', '--measure', 'prefixes: key=source task=hierarchical', planted),
  'bounds of a sketch': () => analyze('sketch', '--algorithm', 'count-min:columns=1024', '--task', 'heavy-hitters', planted),
  'a sample': () => analyze('sample', '--accelerator', 'uniform:sample=10,before=headers', '--algorithm', 'space-saving', planted),
  'updates that an epoch replaces': () => analyze('updates', '--epoch', '5s', '--updates', '1s', '--task', 'top,cardinality', planted),
  'prefixes and a port': () => analyze('ports', '--key', 'source/24,48+destination+destination-port', '--top', '30', real),
  'both directions as one': () => analyze('conversation', '--key', 'conversation', '--top', '30', real),
  'hosts by bytes': () => analyze('host', '--key', 'host', '--by', 'bytes', '--top', '30', planted),
  'frames and flags': () => analyze('frames', '--key', 'source+protocol+source-mac+vlan+tcp-flags', real),
  'MAC addresses': () => analyze('mac', '--key', 'mac', real),
};

for (const [name, write] of Object.entries(cases)) {
  await test(name, async () => {
    const [html, json] = write();
    for (const width of [1280, 400]) assert.deepEqual((await compare(html, json, width)).slice(0, 10), []);
  });
}

await test('snapshots that query reads', async () => {
  fs.mkdirSync(file('kept'));
  fs.writeFileSync(file('seed'), 'a seed of a test', { mode: 0o600 });
  const seed = ['--seed-file', file('seed')];
  run('analyze', ...seed, '--epoch', '5s', '--save', file('kept'), '-q', '-o', file('kept.txt'), planted);
  const kept = fs.readdirSync(file('kept')).map((name) => path.join(file('kept'), name));
  const [html, json] = [file('query.html'), file('query.json')];
  for (const out of [html, json]) run('query', ...seed, '--format', path.extname(out).slice(1), '-o', out, ...kept);
  assert.deepEqual((await compare(html, json, 1280)).slice(0, 10), []);
});

await test('hostile names are text', async () => {
  const name = 'a<img src=x onerror=alert(1)>\'"<!--<script>alert(2)<script>.pcap';
  fs.copyFileSync(real, file(name));
  const [html, json] = analyze('hostile', file(name));
  assert.deepEqual(await compare(html, json, 1280), []);
  const { page, close } = await open(html);
  assert.ok((await page.locator('#run').textContent()).includes(name));
  assert.equal(await page.locator('img').count(), 0);
  await close();
});

await test('marks tell their numbers to the pointer and to the keyboard', async () => {
  const { page, troubles, close } = await open(file('planted.html'));
  for (const plot of ['packets', 'sources', 'paths', 'sizes']) {
    const svg = page.locator(`[data-plot=${plot}] svg`);
    const tips = await svg.evaluate((svg) => [...svg.querySelectorAll('[data-tip]')].map((mark) => mark.dataset.tip));
    await svg.focus();
    await page.keyboard.press('ArrowRight');
    const first = await page.locator('#tip').textContent();
    await page.keyboard.press('ArrowRight');
    const second = await page.locator('#tip').textContent();
    assert.ok(tips.includes(first) && tips.includes(second) && first !== second, `${plot}: ${first}; ${second}`);
    await page.keyboard.press('Escape');
    assert.ok(await page.locator('#tip').isHidden());
    await svg.locator('[data-tip]').last().hover();
    assert.ok(await page.locator('#tip').isVisible(), plot);
    assert.ok(tips.includes(await page.locator('#tip').textContent()));
  }
  assert.deepEqual(troubles, []);
  await close();
});

await test('epochs open by a click and by buttons', async () => {
  const { page, close } = await open(file('epochs.html'));
  await page.locator('[data-plot=epochs] .step').nth(2).click();
  assert.equal(await page.locator('#epoch').inputValue(), '2');
  await page.getByLabel('Next epoch').click();
  assert.equal(await page.locator('#epoch').inputValue(), '3');
  assert.ok(await page.getByLabel('Next epoch').isDisabled());
  await close();
});

await test('a changed number is noticed', async () => {
  const more = (_, before, number) => before + (Number(number) + 1);
  const changes = [
    ['a size', /("top":\{"items":\[\{"key":\{[^}]*\},"packets":\{[^}]*"value":)(\d+)/, more],
    ['a bound', /("top":\{"items":\[\{"key":\{[^}]*\},"packets":\{[^}]*"low":)(\d+)/, more],
    ['a step', /("series":\{.*?"packets":\[)(\d+)/, more],
    ['a bin', /("bins":\[\{[^{]*\{[^}]*"value":)(\d+)/, more],
    ['the account', /("keyed":)(\d+)/, more],
    ['a port', /("ports":\[\{[^}]*"packets":)(\d+)/, more],
    ['text of bytes', "const bytes = (value) => scaled(value, 'B')", "const bytes = (value) => scaled(1.01 * value, 'B')"],
    ['text of shares', 'const value = 100 * share;', 'const value = 101 * share;'],
    ['text of bounds', 'whole(words(value.low)', 'whole(words(value.low + 1)', 'sketch'],
    ['the packets of a way', /("back":\{"packets":)(\d+)/, more, 'conversation'],
    ['the bytes of a way', /("back":\{"packets":\d+,"bytes":)(\d+)/, more, 'conversation'],
    ['when a flow was seen', /("seen":\{[^}]*"first":"[^"]*?)(\d)(?=\d{6}Z")/, (_, before, digit) => before + ((Number(digit) + 1) % 10), 'conversation'],
    ['the flags of a flow', /("tcp_flags":")(SYN)/, '$1RST', 'conversation'],
    ['the width of bands', 'Math.max(0.75, thick)', 'Math.max(0.75, 1.01 * thick)'],
    ['the scale of sizes', '(Math.log10(value) - x0)', '(value - x0)'],
  ];
  for (const [what, from, to, name = 'planted'] of changes) {
    const good = fs.readFileSync(file(`${name}.html`), 'utf8');
    const bad = good.replace(from, to);
    assert.notEqual(bad, good, `${what} is not there to change`);
    fs.writeFileSync(file('bad.html'), bad);
    assert.notDeepEqual(await compare(file('bad.html'), file(`${name}.json`), 1280), [], `${what} was not noticed`);
  }
});

await browser.close();
console.log(`${compared.toLocaleString('en-US')} comparisons`);
console.log(`${passed} passed, 0 failed`);
