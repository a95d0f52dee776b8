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
  // The selected mark, kept when the plot is redrawn.
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
// A label, cut to its room.
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
  // The bars between two heights; bars that touch are one shape.
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
// The extent of a plot.
const coverage = (report, items, sum) => 'The ' + items + ', ' + percent(Math.min(1, shareOf(report, sum))) + ' of the ' + report.by;
const weighed = (report, weight) => sized(weight, report.by) + (report.by === 'packets' ? ' packets' : '');
const amount = (report, weight) => weighed(report, weight) + ', ' + percent(shareOf(report, weight));
// The text of a mark.
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

// Rectangles with areas proportional to the weights, close to squares (squarified treemap).
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
