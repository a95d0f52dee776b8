'use strict';
// The parts of a filter: words, addresses and prefixes. An item is shown if it matches all of them.

// An address as a number, with its bits; null where the text is none.
function addressOf(text) {
  if (/^\d{1,3}(\.\d{1,3}){3}$/.test(text)) {
    const octets = text.split('.').map(Number);
    return octets.some((octet) => octet > 255) ? null : { width: 32, value: octets.reduce((sum, octet) => (sum << 8n) | BigInt(octet), 0n) };
  }
  if (!/^[0-9a-f:]+(\d{1,3}(\.\d{1,3}){3})?$/i.test(text) || !text.includes(':')) return null;
  // The last four octets may be written as those of IPv4.
  const tail = text.slice(text.lastIndexOf(':') + 1);
  if (tail.includes('.')) {
    const last = addressOf(tail);
    if (!last) return null;
    text = text.slice(0, -tail.length) + (last.value >> 16n).toString(16) + ':' + (last.value & 0xffffn).toString(16);
  }
  const sides = text.split('::');
  const [head, end] = sides.map((side) => (side ? side.split(':') : []));
  const missing = 8 - head.length - (end ? end.length : 0);
  if (sides.length > 2 || (end ? missing < 1 : missing !== 0)) return null;
  const words = [...head, ...Array(missing).fill('0'), ...(end || [])];
  if (!words.every((word) => /^[0-9a-f]{1,4}$/i.test(word))) return null;
  return { width: 128, value: words.reduce((sum, word) => (sum << 16n) | BigInt('0x' + word), 0n) };
}

// A prefix, or an address as one of all its bits; null where the text is neither.
function prefixOf(text) {
  const [, address, length] = /^([^/]*)(?:\/(\d{1,3}))?$/.exec(text) || [];
  const parsed = address ? addressOf(address) : null;
  const bits = length === undefined ? parsed && parsed.width : Number(length);
  return parsed && bits <= parsed.width ? { ...parsed, bits } : null;
}
const holds = (wide, narrow) => wide.width === narrow.width && wide.bits <= narrow.bits
  && (wide.value ^ narrow.value) >> BigInt(wide.width - wide.bits) === 0n;

const termsOf = (filter) => filter.toLowerCase().split(/\s+/).filter(Boolean).map((word) => ({ word, prefix: prefixOf(word) }));

// Whether a list item matches all terms.
function matches(report, item, terms) {
  const words = item.text || (item.key ? flow(report, item.key) : [item.prefix, item.source, item.destination].filter(Boolean).join(' '));
  const { source, destination, host, prefix } = item.key || item;
  // The text of a finding has its addresses in it.
  const named = item.text ? item.text.split(/[\s,;()]+/).map((word) => word.replace(/[.:]+$/, '')) : [source, destination, host, prefix];
  const all = (words + ' ' + labels(report, item)).toLowerCase();
  return terms.every((term) => (term.prefix
    ? named.some((text) => { const one = text && prefixOf(text); return one && holds(term.prefix, one); })
    : all.includes(term.word)));
}

// The report with only the items that match all terms; `filtered` holds the lengths of its lists before.
function narrowed(report, terms) {
  if (!terms.length) return report;
  const [tasks, filtered] = [{}, {}];
  for (const [name, { complete_to: completeTo, ...task }] of Object.entries(report.tasks)) {
    const first = (task.items || [])[0];
    if (first && (first.key || first.prefix || first.source || first.text)) {
      filtered[name] = task.items.length;
      tasks[name] = { ...task, items: task.items.filter((item) => matches(report, item, terms)) };
    } else {
      tasks[name] = report.tasks[name];
    }
  }
  return { ...report, tasks, filtered };
}
