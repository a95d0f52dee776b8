// Opens the console of a running agent and compares what it shows with the agent's own report files; waits for
// a new epoch and an alert to come by themselves, and sees the agent go.
//
// Usage: console.mjs URL REPORTS CHROMIUM SCREENSHOTS AGENT-PID

import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { chromium } from 'playwright-core';

const [url, reports, executablePath, shots, pid] = process.argv.slice(2);
const lines = () => fs.readdirSync(reports).flatMap((name) =>
  fs.readFileSync(path.join(reports, name), 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line)));
const epochs = () => lines().filter((line) => line.type === 'epoch');
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
const context = await browser.newContext({ viewport: { width: 1440, height: 1000 } });
const page = await context.newPage();
let bytes = 0;
const [foreign, errors] = [[], []];
page.on('request', (request) => { if (!request.url().startsWith(url)) foreign.push(request.url()); });
page.on('console', (message) => { if (message.type() === 'error') errors.push(message.text()); });
page.on('pageerror', (error) => errors.push(String(error)));
page.on('response', async (response) => {
  if (!/\/(events|reports)$/.test(response.url())) bytes += (await response.body().catch(() => '')).length;
});

let passed = 0;
async function test(name, run) { await run(); passed += 1; console.log('ok: ' + name); }
const until = (test, argument) => page.waitForFunction(test, argument, { timeout: 20000 });
const shot = (name) => page.screenshot({ path: path.join(shots, name + '.png'), fullPage: false });
const rows = (task) => page.$$eval(`[data-task="${task}"] table tbody tr`, (rows) => rows.map((row) => [...row.children].map((cell) => ({ text: cell.textContent, value: cell.dataset.value }))));
const shown = () => page.$eval('#choice p', (element) => element.textContent);
// The report that the page shows: by its number and start.
function current(text, measurement) {
  const number = Number(/epoch (\d+)/.exec(text)[1]);
  const time = /\d{2}:\d{2}:\d{2}/.exec(text)[0];
  return epochs().find((one) => one.measurement === measurement && one.epoch === number && one.start.includes(time));
}

await test('the first page is small and soon there', async () => {
  await page.goto(url);
  await until(() => document.querySelector('#report section'));
  const paint = await page.evaluate(() => performance.getEntriesByType('paint').find((one) => one.name === 'first-contentful-paint').startTime);
  assert.ok(paint < 1000, `first paint after ${paint} ms`);
  assert.ok(bytes < 200 * 1024, `${bytes} bytes`);
  assert.equal(await page.$eval('#agent', (element) => element.textContent), 'demo');
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
  await shot('light');
});

await test('a new epoch comes by itself to a reader of the newest', async () => {
  await page.click('.tabs button:text-is("victims")');
  const before = await shown();
  await until((before) => document.querySelector('#choice p').textContent !== before, before);
  const after = await shown();
  assert.equal(current(after, 'victims').epoch, current(before, 'victims').epoch + 1);
});

await test('the flood is an alert, and its victim a row', async () => {
  await until(() => document.querySelector('#alerts li.firing'));
  const alert = await page.$eval('#alerts li.firing', (item) => item.textContent);
  assert.match(alert, /^flood firing since .* UTC \(victims\): 198\.18\.0\.0 /);
  await until(() => [...document.querySelectorAll('[data-task="victims"] td')].some((cell) => cell.textContent.includes('198.18.0.0')));
  await shot('flood');
});

await test('it fits a telephone, and is dark where the reader wants that', async () => {
  await page.emulateMedia({ colorScheme: 'dark' });
  await shot('dark');
  await page.setViewportSize({ width: 360, height: 740 });
  await page.waitForTimeout(1500);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 360, `${wide} pixels wide`);
  await shot('narrow');
  await page.setViewportSize({ width: 1440, height: 1000 });
});

await test('nothing is asked of another host, and nothing fails', async () => {
  assert.deepEqual(foreign, []);
  assert.deepEqual(errors, []);
});

await test('the page of an agent that ended says so', async () => {
  process.kill(Number(pid), 'SIGTERM');
  await until(() => document.getElementById('link').className === 'gone');
  assert.match(await page.$eval('#link', (element) => element.textContent), /^The agent does not answer since/);
  await shot('gone');
});

await browser.close();
console.log(`${passed} passed, 0 failed`);
