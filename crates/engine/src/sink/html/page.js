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
// Titles and cells of the columns that tell when and how a flow was seen.
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

// Kinds of list items other than keys.
const HEADS = {
  'top-sources': 'source', 'top-destinations': 'destination', superspreaders: 'source', victims: 'destination', hierarchical: 'prefix',
};
const FIELDS = { distinct: 'distinct peers', q: 'quantile' };

// A task's answer: its numbers, and a table per list.
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
    facts.push(task.complete_to > 1 ? 'The ' + count(task.complete_to) + ' largest are listed; smaller ones may be missing.'
      : task.complete_to ? 'The largest is listed; smaller ones may be missing.' : 'Even the largest may be missing.');
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
    // The sort order of the list.
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

// A section without content says how to get it.
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

// The head of a report.
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
  // A key without directions has hosts; it has sources and destinations only if a task lists them.
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
  // These two are in the head.
  const listed = Object.entries(report.tasks).filter(([name]) => name !== 'findings' && name !== 'size-distribution')
    .map(([name, task]) => answer(report, name, task));
  // Lists come first on an agent's page.
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

// The elements that a reader can open, scroll or focus, by section, kind and place.
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
// Redraws an element, and keeps the reader's place.
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

// Draws these items. An agent's page is live: `live` filters a report (`view`), adds a section (`section`), and
// is told what is shown (`shown`). The result adds and chooses reports.
function page(items, unreadable, live) {
  const totals = items.filter((item) => item.type === 'total');
  const reports = [];
  const names = [];
  const same = (one, other) => one.measurement === other.measurement && one.epoch === other.epoch && one.start === other.start;
  // A later report of an epoch replaces its updates.
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
  // A live page opens at the newest epoch.
  const opening = (name) => ({ name, at: totals.length ? 0 : last(name) });
  // `held` keeps the reader at this epoch when the next one comes.
  const chosen = { ...opening(names[0]), held: false };
  const follows = () => Boolean(live) && chosen.at === last(chosen.name) && !chosen.held;
  // An open list of epochs stays open.
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
      // Older epochs may have been removed.
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
    // Removing it is not a choice of the reader.
    if (list) list.onblur = null;
    redraw(choice, chooser);
  };

  // The mean rates of the epochs around the chosen one.
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
  // A reader of the newest epoch follows to the next one.
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

  // Inserts older reports before the present ones.
  add.before = (older) => {
    const newer = reports.splice(0);
    const at = newer.filter((report) => report.measurement === chosen.name)[chosen.at];
    [...older.filter(isReport), ...newer].forEach(keep);
    if (!reports.length) return;
    const again = at && epochs().findIndex((report) => same(report, at));
    pick(again >= 0 ? { at: again, held: chosen.held } : opening(chosen.name || names[0]));
  };
  // Chooses a measurement and an epoch (default: the newest) by name. Returns whether both exist.
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

// Draws the items of a file.
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
