// Opens the console of a running agent and compares what it shows with the agent's own report files; waits for
// a new epoch and an alert to come by themselves, and sees the agent go.
//
// Usage: console.mjs URL REPORTS CHROMIUM SCREENSHOTS AGENT-PID

import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const [url, reports, executablePath, shots, pid] = process.argv.slice(2);
const lines = () => fs.readdirSync(reports).flatMap((name) =>
  fs.readFileSync(path.join(reports, name), 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line)));
const epochs = () => lines().filter((line) => line.type === 'epoch');
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
const context = await browser.newContext({ viewport: { width: 1440, height: 1000 }, permissions: ['clipboard-read', 'clipboard-write'] });
const page = await context.newPage();
let bytes = 0;
const [foreign, errors] = [[], []];
page.on('request', (request) => { if (!request.url().startsWith(url)) foreign.push(request.url()); });
page.on('console', (message) => { if (message.type() === 'error') errors.push(message.text()); });
page.on('pageerror', (error) => errors.push(String(error)));
page.on('response', async (response) => {
  if (!/\/(events|reports|history)$/.test(response.url())) bytes += (await response.body().catch(() => '')).length;
});

let passed = 0;
async function test(name, run) { await run(); passed += 1; console.log('ok: ' + name); }
const until = (test, argument) => page.waitForFunction(test, argument, { timeout: 20000 });
const shot = (name) => page.screenshot({ path: path.join(shots, name + '.png'), fullPage: false });
const rows = (task) => page.$$eval(`[data-task="${task}"] table tbody tr`, (rows) => rows.map((row) => [...row.children].map((cell) => ({ text: cell.textContent, value: cell.dataset.value }))));
const shown = () => page.$eval('#choice p', (element) => element.textContent);
const words = (selector) => page.$eval(selector, (element) => element.textContent);
// The report that the page shows: by its number and start.
function current(text, measurement) {
  const number = Number(/epoch (\d+)/.exec(text)[1]);
  const time = /\d{2}:\d{2}:\d{2}/.exec(text)[0];
  return epochs().find((one) => one.measurement === measurement && one.epoch === number && one.start.includes(time));
}
const view = () => Object.fromEntries(new URLSearchParams(new URL(page.url()).hash.slice(1)));
const settle = () => page.evaluate(() => new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(done)); }));

const axe = fs.readFileSync(fileURLToPath(import.meta.resolve('axe-core')), 'utf8');
async function accessible(name) {
  // The inspector's own script is not under the page's policy.
  const { violations } = await page.evaluate(axe + '; axe.run()');
  const faults = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  assert.deepEqual(faults.map(({ id, nodes }) => id + ': ' + nodes[0].html), [], name);
}

await test('the first page is small and soon there', async () => {
  await page.goto(url);
  await until(() => document.querySelector('#report section'));
  const paint = await page.evaluate(() => performance.getEntriesByType('paint').find((one) => one.name === 'first-contentful-paint').startTime);
  assert.ok(paint < 1000, `first paint after ${paint} ms`);
  assert.ok(bytes < 200 * 1024, `${bytes} bytes`);
  await until(() => document.getElementById('agent').textContent === 'demo');
});

await test('numbers are those of the report', async () => {
  await page.click('.tabs button:text-is("talkers")');
  await until(() => document.querySelector('button[aria-label="Epoch before"]:not(:disabled)'));
  // An epoch that does not move.
  await page.click('button[aria-label="Epoch before"]');
  const text = await shown();
  const report = current(text, 'talkers');
  assert.ok(report, text);
  const found = await rows('top');
  assert.equal(found.length, report.tasks.top.items.length);
  report.tasks.top.items.forEach((item, at) => {
    const values = found[at].map((cell) => Number(cell.value));
    assert.ok(values.includes(item.packets.value) && values.includes(item.bytes.value), JSON.stringify(found[at]));
    assert.ok(found[at].some((cell) => cell.text.includes(item.key.source)), JSON.stringify(found[at]));
  });
  const tiles = await page.$$eval('[data-tile]', (tiles) => tiles.map((tile) => ({ ...tile.dataset })));
  const flows = tiles.find((tile) => tile.tile === 'flows');
  assert.equal(Number(flows.value), report.tasks.cardinality.flows.value);
  const bars = await page.$$eval('[data-task="top"] tbody .bar .line', (bars) => bars.map((bar) => parseFloat(bar.style.width)));
  assert.equal(bars.length, found.length);
  assert.ok(bars.every((width, at) => width > 0 && (at === 0 || width <= bars[at - 1])), String(bars));
});

await test('a filter keeps the items of a prefix, or with the words', async () => {
  const report = current(await shown(), 'talkers');
  const { items } = report.tasks.top;
  const address = items[0].key.source;
  const wide = address.includes(':') ? address.split(':')[0] + '::/16' : address.split('.')[0] + '.0.0.0/8';
  const start = address.includes(':') ? address.split(':')[0] + ':' : address.split('.')[0] + '.';
  const inside = (item) => [item.key.source, item.key.destination].some((one) => one.startsWith(start));
  await page.fill('#filter', wide);
  await settle();
  const lists = Object.values(report.tasks).filter((task) => (task.items || []).some((item) => item.key));
  const [all, left] = [lists.flatMap((task) => task.items), lists.flatMap((task) => task.items.filter(inside))];
  assert.ok(left.length > 0 && left.length < all.length, `${left.length} of ${all.length}`);
  assert.equal(await words('#matches'), `${left.length} of ${all.length} items`);
  assert.equal((await rows('top')).length, items.filter(inside).length);
  assert.ok((await words('[data-task="top"]')).includes(`The filter shows ${items.filter(inside).length} of ${items.length} items.`));
  assert.equal(view().filter, wide);
  const tiles = await page.$$eval('[data-plot="sources"] .tile', (tiles) => tiles.map((tile) => tile.dataset.name));
  assert.deepEqual(tiles.sort(), [...new Set(left.map((item) => item.key.source))].sort());
  await page.fill('#filter', 'udp');
  await settle();
  const udp = items.filter((item) => item.key.protocol === 17).length;
  assert.equal((await rows('top')).length, udp);
  await page.fill('#filter', '10.0.0.0/99');
  await settle();
  assert.equal(await words('#matches'), `0 of ${all.length} items; 10.0.0.0/99 is not a prefix`);
  await page.press('#filter', 'Escape');
  await settle();
  assert.equal((await rows('top')).length, items.length);
  assert.equal(view().filter, undefined);
});

await test('prefixes of both families hold what is in them', async () => {
  const holding = (wide, narrow) => page.evaluate(([wide, narrow]) => holds(prefixOf(wide), prefixOf(narrow)), [wide, narrow]);
  for (const [wide, narrow, isIn] of [
    ['10.0.0.0/8', '10.255.0.1', true], ['10.0.0.0/8', '11.0.0.1', false], ['10.1.0.0/15', '10.0.0.0/16', true],
    ['10.0.0.0/16', '10.0.0.0/8', false], ['0.0.0.0/0', '203.0.113.9', true], ['0.0.0.0/0', '2001:db8::1', false],
    ['2001:db8::/32', '2001:db8:ffff::1', true], ['2001:db8::/33', '2001:db8:8000::1', false], ['::/0', '::1', true],
    ['::ffff:10.0.0.0/104', '::ffff:10.9.9.9', true], ['fe80::/10', 'febf::1', true], ['fe80::/10', 'fec0::1', false],
    ['192.0.2.1', '192.0.2.1', true], ['192.0.2.1', '192.0.2.10', false],
  ]) assert.equal(await holding(wide, narrow), isIn, wide + ' ' + narrow);
  for (const none of ['10.0.0', '10.0.0.256', '1.2.3.4/33', '::1/129', '1:2:3', '1::2::3', ':::', 'cafe', '10.0.0.0/', '1:2:3:4:5:6:7:8:9', 'tcp/443']) {
    assert.equal(await page.evaluate((text) => prefixOf(text), none), null, none);
  }
});

await test('a link opens the same view', async () => {
  await page.fill('#filter', 'udp');
  await settle();
  const { measurement, epoch } = view();
  assert.equal(measurement, 'talkers');
  const text = await shown();
  assert.ok(text.startsWith('epoch ' + epoch + ' '), text);
  await page.click('#copy');
  await until(() => document.getElementById('copy').textContent === 'Copied');
  const link = await page.evaluate(() => navigator.clipboard.readText());
  assert.equal(link, page.url());
  const other = await context.newPage();
  await other.goto(link);
  await other.waitForFunction((text) => document.querySelector('#choice p')?.textContent === text, text, { timeout: 20000 });
  assert.equal(await other.inputValue('#filter'), 'udp');
  // It stays there when epochs come, and obeys another fragment.
  await other.waitForTimeout(2500);
  assert.equal(await other.$eval('#choice p', (element) => element.textContent), text);
  await other.evaluate(() => { location.hash = 'measurement=victims&filter=198.18.0.0/15'; });
  await other.waitForFunction(() => document.querySelector('.tabs [aria-pressed=true]').textContent === 'victims');
  assert.equal(await other.inputValue('#filter'), '198.18.0.0/15');
  await other.evaluate(() => { location.hash = 'measurement=victims&epoch=999999'; });
  await other.waitForFunction(() => document.getElementById('run').textContent.includes('Epoch 999999 of victims is not kept'));
  await other.close();
  await page.fill('#filter', '');
});

await test('the last day has a point for each minute, and its sums are those of the reports', async () => {
  const { measurements, step_seconds: step } = await page.evaluate(async () => (await fetch('history')).json());
  assert.equal(step, 60);
  assert.deepEqual(measurements.map((one) => one.measurement), ['talkers', 'victims']);
  const [point] = measurements[0].points;
  // The file has them all when it has the next one.
  let all = [];
  for (let tries = 0; tries < 50 && !all.some((one) => one.start >= point.end); tries += 1) {
    await page.waitForTimeout(200);
    all = epochs().filter((one) => one.measurement === 'talkers');
  }
  const of = all.filter((one) => one.start >= point.start && one.end <= point.end);
  assert.equal(point.epochs, of.length);
  const sum = (number) => of.reduce((all, one) => all + number(one), 0);
  assert.equal(point.packets, sum((one) => one.account.keyed));
  assert.equal(point.bytes, sum((one) => one.account.keyed_bytes));
  assert.equal(point.lost, sum((one) => one.account.lost + one.account.dropped));
  const near = (one, other) => assert.ok(Math.abs(one - other) < 1e-9 * Math.abs(other), `${one} ${other}`);
  near(point.flows.value, sum((one) => one.tasks.cardinality.flows.value) / of.length);
  near(point.entropy.low, sum((one) => one.tasks.entropy.bits.low) / of.length);
  near(point.largest_share.value, sum((one) => one.tasks.top.items[0].share) / of.length);
  await until(() => document.querySelector('[data-plot="day-packets"] [data-value]'));
  const drawn = await page.$eval('[data-plot="day-packets"] .step', (mark) => ({ ...mark.dataset }));
  assert.equal(drawn.start, point.start);
  assert.deepEqual(await page.$$eval('#day [data-plot]', (plots) => plots.map((plot) => plot.dataset.plot)),
    ['day-packets', 'day-bits', 'day-flows', 'day-entropy', 'day-share']);
});

await test('losses stand on the rate, and bounds around an estimate', async () => {
  const paths = await page.evaluate(() => {
    const bar = (start, more) => ({ start, end: start + 1000, value: 10, text: '', ...more });
    const drawn = (...bars) => Object.fromEntries([...timePlot('x', 'x', 470, bars).querySelectorAll('path')].map((path) => [path.getAttribute('class'), path.getAttribute('d')]));
    return [drawn(bar(0), bar(1000, { lost: 5 }), bar(3000)), drawn(bar(0, { low: 5, high: 15 }), bar(1000, { low: 10, high: null }))];
  });
  // 120 pixels are the largest value, from 130 up; 100 are a second of the first, 200 of the other.
  assert.deepEqual(paths, [
    { area: 'M62 130V50H162V50H262V130H162V130H62ZM362 130V50H462V130H362Z', lost: 'M162 50V10H262V50H162Z' },
    { bounds: 'M62 90V10H262V10H462V50H262V90H62Z', value: 'M62 50V50H262V50H462V50H262V50H62Z' },
  ]);
});

await test('a new epoch comes by itself to a reader of the newest', async () => {
  await page.click('.tabs button:text-is("victims")');
  const before = await shown();
  await until((before) => document.querySelector('#choice p').textContent !== before, before);
  const after = await shown();
  assert.equal(current(after, 'victims').epoch, current(before, 'victims').epoch + 1);
  assert.deepEqual(view(), { measurement: 'victims' });
});

await test('all of it is in reach of the keyboard', async () => {
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('/');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'filter');
  await page.keyboard.type('1p?');
  assert.equal(await page.inputValue('#filter'), '1p?');
  await page.keyboard.press('Escape');
  assert.equal(await page.inputValue('#filter'), '');
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('1');
  await until(() => document.querySelector('.tabs [aria-pressed=true]').textContent === 'talkers');
  await page.keyboard.press('p');
  const held = await shown();
  assert.equal(await words('#hold'), 'Go live');
  const epoch = Number(view().epoch);
  await page.waitForTimeout(3000);
  assert.equal(await shown(), held);
  await page.keyboard.press('ArrowLeft');
  assert.equal(Number(view().epoch), epoch - 1);
  await page.keyboard.press('ArrowRight');
  assert.equal(Number(view().epoch), epoch);
  await page.keyboard.press('p');
  assert.equal(view().epoch, undefined);
  await page.keyboard.press('?');
  assert.ok(await page.$eval('#keys', (keys) => keys.open));
  await page.keyboard.press('Escape');
  assert.ok(!await page.$eval('#keys', (keys) => keys.open));
  // Tab reaches each kind of thing, whose focus shows and outlives the next epochs.
  await page.keyboard.press('p');
  await page.evaluate(() => document.activeElement.blur());
  const reached = new Set();
  for (let at = 0; at < 80; at += 1) {
    await page.keyboard.press('Tab');
    const { name, outline } = await page.evaluate(() => {
      const element = document.activeElement;
      return { name: element.id || element.localName, outline: getComputedStyle(element).outlineStyle };
    });
    if (name === 'body') break;
    assert.notEqual(outline, 'none', name);
    reached.add(name);
  }
  for (const name of ['copy', 'help', 'button', 'epoch', 'hold', 'filter', 'svg', 'summary', 'div']) assert.ok(reached.has(name), name + ' of ' + [...reached]);
  await page.keyboard.press('p');
  await page.click('.tabs button:text-is("victims")');
  await page.focus('[data-plot="epochs"] svg');
  await page.keyboard.press('End');
  const newest = await shown();
  await until((before) => document.querySelector('#choice p').textContent !== before, newest);
  assert.equal(await page.evaluate(() => document.activeElement.localName), 'svg');
  assert.ok(await page.isVisible('#tip'));
  await page.keyboard.press('Escape');
});

await test('the flood is an alert, and its victim a row', async () => {
  await until(() => document.querySelector('#alerts li.firing'));
  const alert = await words('#alerts li.firing');
  assert.match(alert, /^flood firing since .* UTC \(victims\): 198\.18\.0\.0 /);
  await until(() => [...document.querySelectorAll('[data-task="victims"] td')].some((cell) => cell.textContent.includes('198.18.0.0')));
  await page.evaluate(() => { document.activeElement.blur(); window.scrollTo(0, 0); });
  await shot('flood');
});

await test('health is that of the status', async () => {
  await until(() => document.querySelector('#health tbody tr'));
  const { status, cells } = await page.evaluate(async () => ({
    status: await (await fetch('status')).json(),
    cells: [...document.querySelectorAll('#health tbody tr')].map((row) => [...row.children].map((cell) => cell.dataset.value || cell.textContent)),
  }));
  assert.deepEqual(cells.map(([name]) => name), ['talkers', 'victims']);
  cells.forEach((row, at) => {
    const one = status.measurements[at];
    // Fields that only losses move.
    assert.deepEqual(row.slice(5, 7).concat(row[9]).map(Number), [one.lost, one.dropped, one.undelivered]);
    assert.ok(Number(row[2]) <= one.epochs && Number(row[2]) >= one.epochs - 2, `${row[2]} of ${one.epochs}`);
  });
  assert.equal(status.problem, null);
});

await test('it fits a telephone, is dark where the reader wants that, and axe finds no serious fault', async () => {
  await page.click('.tabs button:text-is("talkers")');
  // The screenshots do not begin at a half-drawn epoch.
  await page.keyboard.press('p');
  for (const [look, colorScheme] of [['light', 'light'], ['dark', 'dark']]) {
    await page.emulateMedia({ colorScheme });
    for (const [size, width, height] of [['', 1440, 1000], ['-narrow', 360, 740]]) {
      await page.setViewportSize({ width, height });
      await page.waitForTimeout(1000);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= width, `${wide} pixels wide`);
      await page.evaluate(() => { document.activeElement.blur(); window.scrollTo(0, 0); });
      await shot(look + size);
      await page.$$eval('details', (all) => all.forEach((one) => { one.open = true; }));
      await accessible(look + size);
      await page.$$eval('details', (all) => all.forEach((one) => { one.open = false; }));
      await page.keyboard.press('?');
      await accessible(look + size + ' keys');
      await page.keyboard.press('Escape');
    }
  }
  await page.setViewportSize({ width: 1440, height: 1000 });
  await page.keyboard.press('p');
});

await test('nothing is asked of another host, and nothing fails', async () => {
  assert.deepEqual(foreign, []);
  assert.deepEqual(errors, []);
});

await test('the page of an agent that ended says so', async () => {
  process.kill(Number(pid), 'SIGTERM');
  await until(() => document.getElementById('link').className === 'gone');
  assert.match(await words('#link'), /^The agent does not answer since/);
  await shot('gone');
});

await browser.close();
console.log(`${passed} passed, 0 failed`);
