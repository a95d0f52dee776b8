'use strict';
// The page of an agent: its newest reports first, then those before, then each as it comes.

const fetched = async (path) => {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(path + ': ' + answer.status);
  return (await answer.text()).split('\n').filter(Boolean).map((line) => JSON.parse(line));
};

function showAlerts(list) {
  const words = (alert) => {
    const since = alert.since ? ' since ' + clock(alert.since, new Date().toISOString().slice(0, 10), 8) + ' UTC' : '';
    const items = alert.items.map((item) => [item.item, item.field, count(item.value)].filter(Boolean).join(' '));
    return alert.alert + ' ' + alert.state + since + ' (' + alert.measurement + ')' + (items.length ? ': ' + items.slice(0, 3).join('; ') : '');
  };
  const shown = list.filter((alert) => alert.state !== 'quiet');
  document.getElementById('alerts').replaceChildren(...(shown.length
    ? [make('ul', null, shown.map((alert) => make('li', { class: alert.state, 'data-alert': alert.alert }, words(alert))))] : []));
}

async function follow() {
  const link = document.getElementById('link');
  const state = (words, gone) => { link.textContent = words; link.className = gone ? 'gone' : ''; };
  const status = (text) => {
    const { agent, alerts: list } = JSON.parse(text);
    document.getElementById('agent').textContent = agent;
    document.title = agent + ' – flowgauge';
    showAlerts(list);
  };
  let add;
  try {
    add = page(await fetched('reports/newest'), 0, true);
  } catch {
    state('The agent does not answer. Reload this page when it runs.', true);
    return;
  }
  const events = new EventSource('events');
  events.addEventListener('report', (event) => add(JSON.parse(event.data)));
  events.addEventListener('status', (event) => status(event.data));
  events.addEventListener('open', () => state('live', false));
  events.addEventListener('error', () => state('The agent does not answer since ' + new Date().toISOString().slice(11, 19) + ' UTC; these are its last reports.', true));
  // What came before is not waited for.
  try { add.before(await fetched('reports')); } catch { /* the page goes on with what comes */ }
}
document.addEventListener('DOMContentLoaded', follow);
