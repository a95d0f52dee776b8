'use strict';
// The page of an agent: first the newest reports, then older ones, then each new one.

const byId = (id) => document.getElementById(id);
const fetched = async (path) => {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(path + ': ' + answer.status);
  return answer.text();
};
const reportsAt = async (path) => (await fetched(path)).split('\n').filter(Boolean).map((line) => JSON.parse(line));
// Announces only the change: screen readers read all of it aloud.
function say(element, words, look = '') {
  if (element.textContent !== words) element.textContent = words;
  element.className = look;
}
const today = () => new Date().toISOString().slice(0, 10);

// ---- alerts and health

function showAlerts(list) {
  const words = (alert) => {
    const since = alert.since ? ' since ' + clock(alert.since, today(), 8) + ' UTC' : '';
    const items = alert.items.map((item) => [item.item, item.field, count(item.value)].filter(Boolean).join(' '));
    return alert.alert + ' ' + alert.state + since + ' (' + alert.measurement + ')' + (items.length ? ': ' + items.slice(0, 3).join('; ') : '');
  };
  const shown = list.filter((alert) => alert.state !== 'quiet');
  const alerts = byId('alerts');
  alerts.hidden = !shown.length;
  const texts = shown.map(words);
  if (alerts.dataset.texts === texts.join('\n')) return;
  alerts.dataset.texts = texts.join('\n');
  alerts.replaceChildren(make('ul', null, shown.map((alert, at) => make('li', { class: alert.state, 'data-alert': alert.alert }, texts[at]))));
}

// The last status and its time of arrival; this page's clock adds to its ages.
let standing = null;
let cameAt = 0;
const ageOf = (time) => between(time, standing.now) + (performance.now() - cameAt) / 1000;

function showHealth() {
  if (!standing) return;
  const of = standing.measurements;
  // A lost packet is lost to all measurements.
  const most = (field) => of.reduce((all, one) => Math.max(all, one[field]), 0);
  // An epoch is overdue when it would have ended twice since.
  const isLate = (one) => one.newest_end && ageOf(one.newest_end) > 2 * between(one.newest_start, one.newest_end) + 5;
  const old = (one) => {
    if (!one.newest_end) return 'none yet';
    const age = Math.max(0, Math.floor(ageOf(one.newest_end)));
    return (age < 120 ? age + ' s' : lasting(age)) + ' ago';
  };
  const troubles = [
    standing.problem,
    most('lost') ? count(most('lost')) + ' packets lost before they were read' : null,
    most('dropped') ? count(most('dropped')) + ' packets dropped by slow workers' : null,
    ...standing.sinks.map((one) => one.problem),
    ...standing.sinks.map((one) => one.undelivered ? plural(one.undelivered, 'item') + ' undelivered to ' + one.sink : null),
    standing.alerts_missed ? plural(standing.alerts_missed, 'change') + ' of alerts not announced' : null,
    of.some(isLate) ? 'no new epoch of ' + of.filter(isLate).map((one) => one.measurement).join(', ') + ': no packets come, or the agent is behind' : null,
  ].filter(Boolean);
  say(byId('trouble'), troubles.join('; '), 'note');
  const since = clock(standing.since, today(), 8) + ' UTC';
  const words = 'Since ' + since + (troubles.length ? ': ' + troubles.join('; ') + '.' : ' nothing was lost, dropped or undelivered.');
  const number = (value, isBad) => make('td', { class: isBad && value ? 'number note' : 'number', 'data-value': value }, count(value));
  const rows = of.map((one) => [
    what(one.measurement), make('td', { class: isLate(one) ? 'number note' : 'number', 'data-value': one.newest_end }, old(one)), number(one.epochs), number(one.empty_epochs),
    number(one.packets), number(one.lost, true), number(one.dropped, true), number(one.untracked), number(one.late), number(one.undelivered, true),
  ]);
  const titles = ['measurement', 'newest epoch ended', 'epochs', 'empty epochs', 'packets', 'lost', 'dropped', 'untracked', 'late', 'undelivered reports'];
  const health = byId('health');
  redraw(health, () => health.replaceChildren(make('h2', null, 'Health'), make('p', { class: troubles.length ? 'note' : '' }, words),
    table(titles, rows), about('Late packets are older than their epoch; untracked ones found no room in the summary. Changes of alerts not announced: '
      + count(standing.alerts_missed) + '.')));
}

// ---- the last day

const day = make('section', { class: 'wide', id: 'day' });
const minutes = new Map();
let dayStep = 60;
let drawnDay = '';

// Of two points of one time, the one with more epochs is newer.
function addPoint(name, point) {
  if (!point) return;
  if (!minutes.has(name)) minutes.set(name, []);
  const points = minutes.get(name);
  const last = points.findLastIndex((one) => one.start === point.start);
  if (last < 0) points.push(point);
  else if (point.epochs >= points[last].epochs) points[last] = point;
  const first = milliseconds(point.start) - 864e5;
  while (points.length && milliseconds(points[0].start) <= first) points.shift();
}

function showDay(name, report, width) {
  const points = (minutes.get(name) || []).slice().sort((one, other) => milliseconds(one.start) - milliseconds(other.start));
  // While there are few points, each epoch shows; then each new point.
  const state = [name, width, points.length, points.length < 30 ? points.at(-1)?.epochs : ''].join(' ');
  if (state === drawnDay || !points.length) {
    day.hidden = !points.length;
    return;
  }
  drawnDay = state;
  day.hidden = false;
  const fields = ['flows', 'entropy', 'largest_share', 'distinct'].filter((field) => points.some((point) => point[field]));
  const columns = Math.max(1, Math.min(fields.length === 2 ? 2 : 3, 2 + fields.length, Math.floor(width / 330)));
  const room = Math.floor((width - 16 * (columns - 1)) / columns);
  const bar = (point, value, words, more) => ({
    start: milliseconds(point.start), end: Math.max(milliseconds(point.end), milliseconds(point.start) + 1), value, ...more,
    text: clock(point.start, today(), 5) + ': ' + words, data: { 'data-start': point.start },
  });
  const rates = points.map((point) => {
    const per = (number) => (point.seconds > 0 ? number / point.seconds : 0);
    const lost = per(point.lost);
    return bar(point, per(point.packets), rate(per(point.packets), 'packets/s') + (point.lost ? ', lost ' + rate(lost, 'packets/s') : ''), { lost });
  });
  const bits = points.map((point) => {
    const value = point.seconds > 0 ? (8 * point.bytes) / point.seconds : 0;
    return bar(point, value, rate(value, 'bit/s'));
  });
  const estimates = (field, words, factor = 1) => points.filter((point) => point[field]).map((point) => {
    const { value, low, high } = point[field];
    const bounds = low === value && high === value ? '' : ' (' + words(low) + ' to ' + (high === null ? 'no upper bound' : words(high)) + ')';
    return bar(point, value * factor, words(value) + bounds, { low: low * factor, high: high === null ? null : high * factor });
  });
  const drawn = (plot, unit, bars) => (bars.length ? timePlot(plot, unit, room, bars, null, null, rates) : null);
  const share = (value) => percent(value);
  const plots = [
    drawn('day-packets', 'packets/s' + (points.some((point) => point.lost) ? ', red: lost' : ''), rates),
    drawn('day-bits', 'bits/s', bits),
    drawn('day-flows', keysOf(report) + ' of an epoch', estimates('flows', count)),
    drawn('day-entropy', 'entropy in bits', estimates('entropy', count)),
    drawn('day-share', 'share of the largest ' + wordsOfKey(report)[0] + ' in %', estimates('largest_share', share, 100)),
    drawn('day-distinct', 'distinct peers of the widest address', estimates('distinct', count)),
  ];
  const names = { flows: keysOf(report), entropy: 'entropy', largest_share: 'largest share', distinct: 'distinct peers' };
  // The newest hour as numbers; /history has all of them.
  const rows = points.slice(-60).reverse().map((point) => [
    what(clock(point.start, today(), 8)), cell(count(point.packets), point.packets), cell(bytes(point.bytes), point.bytes), cell(count(point.lost), point.lost),
    ...fields.map((field) => estimate(point[field], field === 'largest_share' ? share : count)),
  ]);
  const begin = standing ? clock(standing.since, today(), 5) : '';
  redraw(day, () => day.replaceChildren(make('h2', null, 'The last day'),
    about('A point for each ' + (dayStep === 60 ? 'minute' : lasting(dayStep)) + ', kept for 24 hours: means of its epochs, with the means of their bounds.'
      + (begin ? ' The agent started, or read its file again, at ' + begin + ' UTC.' : '')),
    make('div', { class: 'days' }, plots), folded(table(['start', 'packets', 'bytes', 'lost', ...fields.map((field) => names[field])], rows))));
}

// ---- a view as a link

const readable = (text) => encodeURIComponent(text).replaceAll('%2F', '/').replaceAll('%3A', ':');
const fragment = (view) => '#' + Object.entries(view).filter(([, value]) => value !== null && value !== '').map(([name, value]) => name + '=' + readable(value)).join('&');
function viewOf(text) {
  const view = new URLSearchParams(text.slice(1));
  const epoch = view.get('epoch');
  return { measurement: view.get('measurement'), epoch: /^\d+$/.test(epoch || '') ? Number(epoch) : null, filter: view.get('filter') || '' };
}

async function copyLink() {
  const button = byId('copy');
  let copied = true;
  try {
    await navigator.clipboard.writeText(location.href);
  } catch {
    // Without TLS a page of another host has no clipboard of this kind.
    const field = make('textarea', null, location.href);
    document.body.append(field);
    field.select();
    copied = document.execCommand('copy');
    field.remove();
    button.focus();
  }
  button.textContent = copied ? 'Copied' : 'Copy the address';
  setTimeout(() => { button.textContent = 'Copy link'; }, 2000);
}

// ---- the page

async function follow() {
  const [link, input] = [byId('link'), byId('filter')];
  const tell = (words, isGone) => say(link, words, isGone ? 'gone' : '');
  const view = viewOf(location.hash);
  input.value = view.filter;
  let terms = termsOf(view.filter);
  let shown = null;

  const showMatches = (report) => {
    if (!terms.length) return say(byId('matches'), '');
    const items = Object.entries(report.filtered);
    const all = items.reduce((sum, [, number]) => sum + number, 0);
    const left = items.reduce((sum, [name]) => sum + report.tasks[name].items.length, 0);
    const wrong = terms.find((term) => !term.prefix && term.word.includes('/') && /^[0-9a-f.:]+\//.test(term.word));
    say(byId('matches'), count(left) + ' of ' + plural(all, 'item') + (wrong ? '; ' + wrong.word + ' is not a prefix' : ''));
  };
  const live = {
    section: day,
    view: (report) => {
      const narrow = narrowed(report, terms);
      showMatches(narrow);
      return narrow;
    },
    shown: (report, isNewest, width) => {
      shown = { report, width };
      const to = fragment({ measurement: report.measurement, epoch: isNewest ? null : report.epoch, filter: input.value.trim() });
      try {
        if (to !== location.hash) history.replaceState(null, '', to);
      } catch { /* browsers limit how often; the next one is taken */ }
      showDay(report.measurement, report, width);
    },
  };
  let add;
  try {
    add = page(await reportsAt('reports/newest'), 0, live);
  } catch {
    tell('The agent does not answer. Reload this page when it runs.', true);
    return;
  }
  const open = ({ measurement, epoch }) => {
    if (add.choose(measurement, epoch) || !shown) return;
    const isKnown = measurement === null || add.names.includes(measurement);
    say(byId('run'), isKnown ? 'Epoch ' + epoch + ' of ' + shown.report.measurement + ' is not kept any more; this is the newest.'
      : 'There are no reports of ' + measurement + '.', 'note');
  };
  if (!add.choose(view.measurement, null)) add.render();

  input.addEventListener('input', () => {
    terms = termsOf(input.value);
    add.render();
  });
  window.addEventListener('hashchange', () => {
    const next = viewOf(location.hash);
    input.value = next.filter;
    terms = termsOf(next.filter);
    say(byId('run'), '');
    open(next);
  });
  byId('copy').addEventListener('click', copyLink);
  byId('help').addEventListener('click', () => byId('keys').showModal());
  const keys = {
    '/': () => { input.focus(); input.select(); },
    ArrowLeft: () => add.step(-1),
    ArrowRight: () => add.step(1),
    p: add.hold,
    c: copyLink,
    '?': () => byId('keys').showModal(),
  };
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented || byId('keys').open) return;
    const within = event.target;
    if (within === input && event.key === 'Escape') {
      input.value = '';
      input.dispatchEvent(new Event('input'));
      return;
    }
    // Elements with arrow keys of their own keep them.
    if (within.matches('input, select') || (event.key.startsWith('Arrow') && within.matches('svg, .scroll'))) return;
    const measurement = /^[1-9]$/.test(event.key) ? add.names[Number(event.key) - 1] : null;
    const act = measurement ? () => add.choose(measurement, null) : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  const showStatus = (text) => {
    standing = JSON.parse(text);
    cameAt = performance.now();
    byId('agent').textContent = standing.agent;
    document.title = standing.agent + ' – flowgauge';
    standing.measurements.forEach((one) => addPoint(one.measurement, one.point));
    showAlerts(standing.alerts);
    showHealth();
    if (shown) showDay(shown.report.measurement, shown.report, shown.width);
  };
  const before = async () => {
    try {
      add.before(await reportsAt('reports'));
      const { step_seconds: step, measurements } = JSON.parse(await fetched('history'));
      dayStep = step;
      for (const { measurement, points } of measurements) {
        const newer = minutes.get(measurement) || [];
        minutes.set(measurement, []);
        [...points, ...newer].forEach((point) => addPoint(measurement, point));
      }
      drawnDay = '';
      if (shown) showDay(shown.report.measurement, shown.report, shown.width);
    } catch { /* the page goes on with what comes */ }
  };
  const events = new EventSource('events');
  events.addEventListener('report', (event) => add(JSON.parse(event.data)));
  events.addEventListener('status', (event) => showStatus(event.data));
  events.addEventListener('open', () => {
    // Fetch the reports of the time without a connection.
    if (link.className === 'gone') before();
    tell('live', false);
  });
  events.addEventListener('error', () => tell('The agent does not answer since ' + new Date().toISOString().slice(11, 19) + ' UTC; these are its last reports.', true));
  setInterval(showHealth, 1000);
  // Without the end of an epoch no status arrives.
  setInterval(() => { if (link.className !== 'gone') fetched('status').then(showStatus, () => {}); }, 10000);
  // Do not wait for older reports.
  await before();
  if (view.epoch !== null || view.measurement !== null) open(view);
}
document.addEventListener('DOMContentLoaded', follow);
