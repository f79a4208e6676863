'use strict';
// The live page: receives the state of a run, or of the list of runs, as server-sent events, and shows it.
// Texts of models and workers are only ever set as text.

const run = (location.pathname.match(/^\/runs\/([0-9a-f]+)\/$/) || [])[1];
const main = document.getElementById('main');
const connection = document.getElementById('connection');
// A worker that was not seen for this long is marked. In milliseconds; notices are written every two seconds.
const LATE = 6000;

let fields = {};
// The clock of the server minus the clock of this browser.
let offset = 0;
let updated = null;
let status = 'connecting';

const STATES = {
  running: 'Running', silent: 'No status from its coordinator', complete: 'Complete',
  cancelled: 'Cancelled', incomplete: 'Not complete',
};
const now = () => Date.now() + offset;
const thousands = (number) => number.toLocaleString('en-US');
const percent = (part, whole) => (whole === 0 ? '100.0' : (100 * part / whole).toFixed(1));
const settled = (ledger) => ledger.answered + ledger.gave_up;

function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, '0')} s`;
  if (whole < 172800) return `${Math.floor(whole / 3600)} h ${String(Math.floor(whole % 3600 / 60)).padStart(2, '0')} min`;
  return `${thousands(Math.floor(whole / 86400))} days`;
}

function rate(value) {
  if (value >= 10000) return `${(value / 1000).toFixed(1)} k`;
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}

// Creates an element with a class and children: elements, texts or nothing.
function element(name, className, ...children) {
  const created = document.createElement(name);
  if (className) created.className = className;
  created.append(...children.filter((child) => child !== null && child !== undefined));
  return created;
}

function link(address, text) {
  const created = element('a', '', text);
  created.href = address;
  return created;
}

// The sections of the page, by id. A section keeps its elements, so that scrolling and focus survive updates.
const sections = new Map();

function section(id, title) {
  if (!sections.has(id)) {
    const heading = element('h2', '', title);
    heading.id = id;
    const body = element('div', '');
    const created = element('section', '', heading, body);
    created.setAttribute('aria-labelledby', id);
    sections.set(id, { created, body, tables: new Map() });
    main.append(created);
  }
  return sections.get(id);
}

// Shows rows in a table that is created once. Columns: [header, kind], where kind is '', 'number', 'name' or 'long'.
function table(within, caption, columns, rows, marked = () => false) {
  if (!within.tables.has(caption)) {
    const head = element('tr', '', ...columns.map(([title, kind]) => {
      const cell = element('th', kind, title);
      cell.scope = 'col';
      return cell;
    }));
    const body = element('tbody', '');
    const scroll = element('div', 'scroll',
      element('table', '', element('caption', '', caption), element('thead', '', head), body));
    scroll.tabIndex = 0;
    scroll.setAttribute('role', 'group');
    scroll.setAttribute('aria-label', caption);
    within.body.append(scroll);
    within.tables.set(caption, { scroll, body });
  }
  const { scroll, body } = within.tables.get(caption);
  scroll.hidden = rows.length === 0;
  body.replaceChildren(...rows.map((row) => {
    const cells = row.map((value, index) => {
      const cell = element(index === 0 ? 'th' : 'td', columns[index][1], value);
      if (index === 0) cell.scope = 'row';
      return cell;
    });
    return element('tr', marked(row) ? 'late' : '', ...cells);
  }));
}

const SVG = 'http://www.w3.org/2000/svg';
const PARTS = [['answered', 'answered'], ['gave_up', 'gave up'], ['faulted', 'faulted'],
  ['in_flight', 'in progress'], ['outstanding', 'outstanding']];
/** With a queue, assigned units are those that wait in it and those that workers hold. */
const QUEUED = 'queued or in progress';

function bar(ledger, inFlight, queued) {
  const progress = Math.min(inFlight, ledger.outstanding);
  const counts = { ...ledger, in_flight: progress, outstanding: ledger.outstanding - progress };
  const named = PARTS.map(([part, name]) => [part, queued && part === 'in_flight' ? QUEUED : name]);
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 1000 20');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', named.map(([part, name]) => `${thousands(counts[part])} ${name}`).join(', '));
  let left = 0;
  for (const [part] of PARTS) {
    const width = ledger.planned === 0 ? 0 : 1000 * counts[part] / ledger.planned;
    const rectangle = document.createElementNS(SVG, 'rect');
    rectangle.setAttribute('class', part);
    rectangle.setAttribute('x', left.toFixed(2));
    rectangle.setAttribute('width', width.toFixed(2));
    rectangle.setAttribute('height', '20');
    svg.append(rectangle);
    left += width;
  }
  const legend = element('ul', 'legend', ...named.map(([part, name]) => {
    const swatch = document.createElementNS(SVG, 'svg');
    swatch.setAttribute('class', 'swatch');
    swatch.setAttribute('viewBox', '0 0 10 10');
    swatch.setAttribute('aria-hidden', 'true');
    const square = document.createElementNS(SVG, 'rect');
    square.setAttribute('class', part);
    square.setAttribute('width', '10');
    square.setAttribute('height', '10');
    swatch.append(square);
    return element('li', '', swatch, `${thousands(counts[part])} ${name}`);
  }));
  return [element('div', 'bar', svg), legend];
}

function figures(pairs) {
  const items = pairs.filter(([, value]) => value !== null).map(([name, value, note]) =>
    element('div', '', element('dt', '', name), element('dd', '', value, note ? element('small', '', note) : null)));
  return element('dl', 'figures', ...items);
}

function score(found) {
  if (found === null) return ['–', '–', '–', '0'];
  const isPercent = found.unit === 'percent';
  const number = (value) => (isPercent ? (100 * value).toFixed(1) : value.toFixed(2));
  const unit = isPercent ? ' %' : ` ${found.unit}`;
  const interval = found.interval === null ? '–' : `${number(found.interval[0])} to ${number(found.interval[1])}`;
  return [found.metric, number(found.value) + unit, interval, thousands(found.items)];
}

function workers(list) {
  const within = section('workers', 'Workers');
  const rows = list.map((worker) => {
    const age = Math.max(0, now() - worker.last_seen_ms);
    const notes = [`${duration(age / 1000)} ago`];
    if (worker.draining) notes.push('draining');
    if (worker.unsent > 0) notes.push(`${thousands(worker.unsent)} outcomes unsent`);
    const known = worker.concurrency > 0;
    return [worker.name, notes.join(', '), worker.device || '–', worker.models.join(', ') || '–',
      known ? `${thousands(worker.in_use)}/${thousands(worker.concurrency)}` : '–',
      known ? rate(worker.units_per_second) : '–', known ? rate(worker.tokens_per_second) : '–',
      thousands(worker.finished)];
  });
  const late = new Set(list.filter((worker) => worker.concurrency > 0 && now() - worker.last_seen_ms > LATE)
    .map((worker) => worker.name));
  table(within, 'Heartbeat: time since the latest notice or record',
    [['worker', 'name'], ['heartbeat', ''], ['device', ''], ['models', 'name'], ['slots', 'number'],
      ['items/s', 'number'], ['tokens/s', 'number'], ['finished', 'number']], rows, (row) => late.has(row[0]));
  const refusals = list.flatMap((worker) => worker.refusals.map((refusal) => `${worker.name}: ${refusal}`));
  notes(within, list.length === 0 ? ['no workers'] : refusals);
}

// Shows texts below the tables of a section.
function notes(within, texts) {
  if (!within.notes) {
    within.notes = element('div', 'quiet');
    within.body.append(within.notes);
  }
  within.notes.replaceChildren(...texts.map((text) => element('p', '', text)));
}

function showRun() {
  const { ledger } = fields;
  document.title = `${percent(settled(ledger), ledger.planned)} % ${fields.name} – lumos`;
  document.getElementById('name').textContent = fields.name;
  document.getElementById('state').textContent = STATES[fields.state] || fields.state;
  const running = fields.state === 'running';
  const details = [`${thousands(settled(ledger))} of ${thousands(ledger.planned)} units settled`];
  if (running && fields.started_ms !== null) {
    details.push(`session started ${duration((now() - fields.started_ms) / 1000)} ago`);
  }
  if (fields.duplicates > 0) details.push(`${thousands(fields.duplicates)} duplicate outcomes dropped`);
  if (fields.requeued > 0) details.push(`${thousands(fields.requeued)} units requeued`);
  document.getElementById('details').textContent = `· ${details.join(' · ')}`;

  showReport();

  const progress = section('progress', 'Progress');
  const { oldest, queue } = fields;
  progress.body.replaceChildren(
    ...(fields.problem ? [element('p', 'alarm', fields.problem)] : []),
    ...bar(ledger, running ? fields.in_flight : 0, queue !== null),
    figures([
      ['settled', `${percent(settled(ledger), ledger.planned)} %`],
      ['rate', `${rate(fields.units_per_second)} items/s`, `${rate(fields.tokens_per_second)} tokens/s`],
      ['remaining time', fields.seconds_left === null ? '–' : duration(fields.seconds_left), 'at this rate'],
      [queue === null ? 'in progress' : QUEUED, thousands(fields.in_flight)],
      ['oldest unit', oldest === null ? '–' : duration((now() - oldest.since_ms) / 1000),
        oldest === null ? null : `${oldest.unit} on ${oldest.worker}`],
      ['queue', queue === null ? null : `${thousands(queue.pending)} waiting`,
        queue === null ? null : `${thousands(queue.unacknowledged)} held by workers`],
    ]));

  const scores = section('scores', 'Scores so far');
  table(scores, 'Over the units settled so far. Quick units finish first: this does not predict the result.',
    [['configuration', 'name'], ['metric', ''], ['value', 'number'], ['95 % interval', 'number'], ['items', 'number']],
    fields.configurations.map((one) => [one.label, ...score(one.score)]));
  table(scores, 'Ledger: planned = answered + gave up + faulted + outstanding',
    [['configuration', 'name'], ['planned', 'number'], ['answered', 'number'], ['gave up', 'number'],
      ['faulted', 'number'], ['outstanding', 'number']],
    fields.configurations.map(({ label, ledger: one }) => [label,
      ...[one.planned, one.answered, one.gave_up, one.faulted, one.outstanding].map(thousands)]));

  workers(fields.workers);

  const faults = section('faults', 'Faults');
  const kinds = Object.entries(fields.faults);
  table(faults, 'Faulted attempts by what failed', [['kind', ''], ['attempts', 'number']],
    kinds.map(([kind, count]) => [kind, thousands(count)]));
  table(faults, 'Latest faults',
    [['unit', ''], ['attempt', 'number'], ['worker', 'name'], ['fault', 'long'], ['when', 'number']],
    fields.recent_faults.map((fault) => [fault.unit, thousands(fault.attempt), fault.worker, fault.message,
      `${duration((now() - fault.at_ms) / 1000)} ago`]));
  notes(faults, kinds.length === 0 && fields.recent_faults.length === 0 ? ['no faults'] : []);
}

function showList() {
  document.title = 'Runs – lumos';
  document.getElementById('name').textContent = 'Runs';
  const within = section('runs', 'Runs and progress');
  table(within, 'Runs of this server, then runs on the queue, the newest first',
    [['run', 'name'], ['state', ''], ['settled', 'number'], ['%', 'number'], ['faulted', 'number'],
      ['items/s', 'number'], ['remaining', 'number']],
    fields.runs.map((one) => [link(`/runs/${one.key}/`, one.name || one.key), STATES[one.state] || one.state,
      `${thousands(settled(one.ledger))} of ${thousands(one.ledger.planned)}`,
      percent(settled(one.ledger), one.ledger.planned), thousands(one.ledger.faulted), rate(one.units_per_second),
      one.seconds_left === null ? '–' : duration(one.seconds_left)]));
  notes(within, fields.runs.length === 0 ? ['no runs'] : []);
  if (fields.workers.length > 0) workers(fields.workers);
}

function show() {
  if (updated === null) return;
  if (run) showRun(); else showList();
}

function showConnection() {
  const age = updated === null ? '' : `, last change ${duration((Date.now() - updated) / 1000)} ago`;
  const text = {
    connecting: 'Connecting …',
    connected: 'Connected: this page follows the run.',
    disconnected: `Disconnected${age}. Reconnecting …`,
    refused: `Disconnected${age}. Reload the page to connect again.`,
    ended: 'The run is complete.',
  }[status];
  // An unchanged text is not announced again.
  if (connection.textContent !== text) connection.textContent = text;
}

// Shows a link to the report of the run as soon as there is one.
function showReport() {
  if (!fields.report || document.getElementById('report')) return;
  const report = link('report/', 'Report');
  report.id = 'report';
  document.getElementById('back').append(' · ', report);
}

function receive(event) {
  const { now_ms: nowMs, fields: changed } = JSON.parse(event.data);
  offset = nowMs - Date.now();
  updated = Date.now();
  fields = event.type === 'snapshot' ? changed : { ...fields, ...changed };
  status = 'connected';
  show();
  showConnection();
}

const source = new EventSource(`/events?run=${run || ''}`);
source.addEventListener('snapshot', receive);
source.addEventListener('delta', receive);
source.addEventListener('end', () => {
  source.close();
  status = 'ended';
  showConnection();
});
source.onerror = () => {
  if (status !== 'ended') status = source.readyState === EventSource.CLOSED ? 'refused' : 'disconnected';
  showConnection();
};
// Ages of heartbeats and of the oldest unit grow without events.
setInterval(() => {
  if (status !== 'ended') show();
  showConnection();
}, 1000);
document.getElementById('back').hidden = !run;
