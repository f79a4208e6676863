"use strict";
// Lists, filters and shows the items of a report. The page has the list as `#index` (JSON, gzip, base64); trajectories are in
// chunks, scripts below `data/` that call `lumosChunk`. Texts reach the page as text nodes only.
(() => {
  const holder = document.getElementById("index");
  const section = document.getElementById("items");
  if (!holder || !section) return;

  const OVERSCAN = 10;
  const CHUNKS_KEPT = 12;
  const LOAD_SECONDS = 30;
  const NUMBER = new Intl.NumberFormat("en");
  const WIDE = matchMedia("(min-width: 1100px)");

  // ---- The page's elements ----

  /** Creates an element. A string or a number as child is a text; `undefined` and `null` are skipped. */
  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value === true) made.setAttribute(key, "");
      else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value);
    }
    append(made, children);
    return made;
  }
  function append(parent, children) {
    for (const child of children.flat(Infinity)) {
      if (child === undefined || child === null) continue;
      parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
  }
  const replace = (parent, ...children) => { parent.replaceChildren(); append(parent, children); };
  const swatch = (kind) => {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("class", "swatch");
    svg.setAttribute("viewBox", "0 0 10 10");
    svg.setAttribute("aria-hidden", "true");
    const square = document.createElementNS(space, "rect");
    square.setAttribute("class", kind);
    square.setAttribute("width", "10");
    square.setAttribute("height", "10");
    svg.append(square);
    return svg;
  };

  // ---- Packed data ----

  async function unpack(text) {
    const packed = atob(text.trim());
    const bytes = new Uint8Array(packed.length);
    for (let at = 0; at < packed.length; at += 1) bytes[at] = packed.charCodeAt(at);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  const chunks = new Map();
  const arrived = new Map();
  window.lumosChunk = (name, packed) => {
    const waiting = arrived.get(name);
    if (waiting) waiting.resolve(unpack(packed));
  };
  /** Loads a chunk once. Keeps the latest ones. */
  function chunk(name) {
    const known = chunks.get(name);
    if (known) {
      chunks.delete(name);
      chunks.set(name, known);
      return known;
    }
    const loaded = new Promise((resolve, reject) => {
      const failed = () => reject(new Error(`data/${name}.js cannot be loaded: keep the folder of the report together`));
      const timer = setTimeout(failed, LOAD_SECONDS * 1000);
      arrived.set(name, { resolve: (value) => { clearTimeout(timer); resolve(value); } });
      document.head.append(element("script", { src: `data/${name}.js`, onerror: failed }));
    });
    const kept = loaded.finally(() => arrived.delete(name));
    kept.catch(() => chunks.delete(name));
    chunks.set(name, kept);
    while (chunks.size > CHUNKS_KEPT) chunks.delete(chunks.keys().next().value);
    return kept;
  }

  unpack(holder.textContent).then(start, () => {
    section.append(element("p", { class: "alarm" }, "This browser cannot read the item list. The tables of this page are complete."));
  });

  // ---- The list ----

  function start(index) {
    const { cells, causes, groups, items, rows } = index;
    const count = rows.cell.length;
    const failure = (row) => causes[rows.cause[row]].kind !== "correct";
    const settled = (row) => ["correct", "wrong"].includes(causes[rows.cause[row]].kind);
    const item = (row) => items[cells[rows.cell[row]].items];
    const of = (row, column) => item(row)[column][rows.item[row]];
    const causeText = (row) => {
      const name = causes[rows.cause[row]].name;
      return failure(row) && rows.turn[row] ? `${name}, turn ${rows.turn[row]}` : name;
    };
    const cellName = (cell) => cells[cell].label;
    const groupsOf = (row) => of(row, "group").map((group) => groups[group]);
    /** Row of a unit, or -1. Runs of the same configuration have equal units: `fits` selects among their rows. */
    const rowOfUnit = (unit, fits = () => true) =>
      (unit ? rows.unit.findIndex((one, row) => (one.startsWith(unit) || unit.startsWith(one)) && fits(row)) : -1);
    const ofRun = (run) => (row) => (cells[rows.cell[row]].run ?? 0) === Number(run);
    const NOT_LISTED = `is not in this list (it has ${NUMBER.format(count)} of ${NUMBER.format(count + index.left_out)} units).`;

    /** Row of the same item in another cell, or -1. */
    const twins = new Map();
    const twin = (row, cell) => {
      if (cell === rows.cell[row] || cells[cell].items !== cells[rows.cell[row]].items) return -1;
      if (!twins.has(cell)) {
        const of = new Map();
        for (let other = 0; other < count; other += 1) if (rows.cell[other] === cell) of.set(rows.item[other], other);
        twins.set(cell, of);
      }
      return twins.get(cell).get(rows.item[row]) ?? -1;
    };
    const CHANGES = { wrong: "newly wrong", right: "newly right", both: "correct in both", neither: "wrong in both" };
    const change = (row, cell) => {
      const other = twin(row, cell);
      if (other < 0 || !settled(row) || !settled(other)) return undefined;
      if (failure(row)) return failure(other) ? "neither" : "wrong";
      return failure(other) ? "right" : "both";
    };

    const seconds = (ms) => (ms < 1000 ? `${NUMBER.format(ms)} ms` : `${NUMBER.format(Math.round(ms / 100) / 10)} s`);
    const COLUMNS = [
      { key: "item", title: "item", value: (row) => of(row, "index") },
      { key: "cell", title: "configuration", value: (row) => rows.cell[row], text: (row) => cellName(rows.cell[row]), unless: cells.length < 2 },
      { key: "task", title: "task", value: (row) => of(row, "task"), unless: !count || item(0).task.every((text) => !text) },
      { key: "prediction", title: "prediction", value: (row) => rows.prediction[row] ?? "" },
      { key: "gold", title: "gold", value: (row) => of(row, "gold") },
      { key: "result", title: "result", value: (row) => rows.cause[row] * 1000 + rows.turn[row], text: causeText },
      { key: "score", title: "score", number: true, value: (row) => rows.score[row] ?? -1, text: (row) => rows.score[row] ?? "–",
        unless: rows.score.every((score) => [null, 0, 1].includes(score)) },
      { key: "tokens", title: "tokens", number: true, value: (row) => rows.tokens[row], text: (row) => NUMBER.format(rows.tokens[row]) },
      { key: "ms", title: "time", number: true, value: (row) => rows.ms[row], text: (row) => seconds(rows.ms[row]) },
    ].filter((column) => !column.unless);
    const other = {
      key: "other", title: "compared with", value: (row) => change(row, Number(state.with)) ?? "",
      text: (row) => (twin(row, Number(state.with)) < 0 ? "–" : causeText(twin(row, Number(state.with)))),
    };
    const columns = () => (state.with === "" ? COLUMNS : COLUMNS.flatMap((column) => (column.key === "result" ? [column, other] : [column])));

    // ---- State, which the fragment of the address repeats ----

    const EMPTY = { q: "", cell: "", result: "", cause: "", turn: "", group: "", with: "", change: "", sort: "", dir: "", unit: "", at: "" };
    const state = { ...EMPTY };
    let shown = [];
    let active = -1;
    let opened = -1;
    let saving = 0;

    function read() {
      const hash = decodeHash(location.hash);
      if (!hash) return false;
      Object.assign(state, EMPTY);
      for (const key of Object.keys(EMPTY)) if (hash.has(key)) state[key] = hash.get(key).slice(0, 200);
      for (const key of ["cell", "with"]) if (!cells[state[key]]) state[key] = "";
      if (!causes[state.cause]) state.cause = "";
      if (!groups[state.group]) state.group = "";
      if (!CHANGES[state.change]) state.change = "";
      return true;
    }
    const decodeHash = (hash) => (hash.includes("=") ? new URLSearchParams(hash.slice(1)) : undefined);
    function save() {
      clearTimeout(saving);
      saving = setTimeout(() => {
        const pairs = Object.entries(state).filter(([, value]) => value !== "");
        const hash = new URLSearchParams(pairs).toString();
        if (hash !== location.hash.slice(1)) history.replaceState(null, "", `#${hash}`);
      }, 250);
    }

    // ---- Filters ----

    const haystacks = new Array(count);
    const haystack = (row) => (haystacks[row] ??= [
      of(row, "index"), of(row, "name"), of(row, "task"), of(row, "gold"), rows.prediction[row], rows.unit[row], causeText(row),
    ].join("\n").toLowerCase());
    function matches() {
      const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
      const [cell, cause, turn, group] = [state.cell, state.cause, state.turn, state.group].map((text) => (text === "" ? -1 : Number(text)));
      const compared = state.with === "" ? -1 : Number(state.with);
      const found = [];
      for (let row = 0; row < count; row += 1) {
        const kind = causes[rows.cause[row]].kind;
        if (cell >= 0 && rows.cell[row] !== cell) continue;
        if (cause >= 0 && rows.cause[row] !== cause) continue;
        if (turn >= 0 && rows.turn[row] !== turn) continue;
        if (group >= 0 && !of(row, "group").includes(group)) continue;
        if (state.result === "failure" ? kind === "correct" : state.result && kind !== state.result) continue;
        if (compared >= 0 && rows.cell[row] === compared) continue;
        if (compared >= 0 && state.change && change(row, compared) !== state.change) continue;
        // A word may be a whole unit, of which the list has the first digits.
        if (words.length && !words.every((word) => haystack(row).includes(word) || word.startsWith(rows.unit[row]))) continue;
        found.push(row);
      }
      return found;
    }
    function sorted(found) {
      const column = columns().find((one) => one.key === state.sort);
      if (!column) return found;
      const sign = state.dir === "desc" ? -1 : 1;
      const values = new Map(found.map((row) => [row, column.value(row)]));
      return found.sort((left, right) => {
        const [a, b] = [values.get(left), values.get(right)];
        return (a < b ? -sign : a > b ? sign : 0) || left - right;
      });
    }

    const control = (key, label, choices, wide) => {
      const select = element("select", { id: `filter-${key}`, onchange: () => set({ [key]: select.value }) },
        choices.map(([value, text]) => element("option", { value }, text)));
      return { key, select, label: element("label", wide ? { class: "wide" } : {}, label, select) };
    };
    const numbered = (texts) => texts.map((text, at) => [at, text]);
    const turns = [...new Set(rows.turn)].filter(Boolean).sort((a, b) => a - b);
    const search = element("input", { type: "search", id: "filter-q", autocomplete: "off", spellcheck: "false", oninput: () => set({ q: search.value }), onchange: () => set({ q: search.value }) });
    const present = new Set(rows.cause);
    const kinds = new Set([...present].map((cause) => causes[cause].kind));
    const controls = [
      cells.length > 1 && control("cell", "Configuration", [["", "all"], ...numbered(cells.map((cell) => cell.label))]),
      control("result", "Result", [["", "all"], ["correct", "correct"], ["failure", "not correct"],
        ...["faulted", "outstanding"].filter((kind) => kinds.has(kind)).map((kind) => [kind, kind])]),
      control("cause", "Cause", [["", "all"], ...numbered(causes.map((cause) => cause.name)).filter(([cause]) => present.has(cause))]),
      turns.length > 1 && control("turn", "Failed in turn", [["", "all"], ...turns.map((turn) => [turn, turn])]),
      groups.length > 1 && control("group", "Group", [["", "all"], ...numbered(groups)]),
      cells.length > 1 && control("with", "Compare with", [["", "nothing"], ...numbered(cells.map((cell) => cell.label))]),
      cells.length > 1 && control("change", "Change", [["", "all"], ...Object.entries(CHANGES)]),
    ].filter(Boolean);
    const matched = element("p", { role: "status" });
    const clear = element("button", { type: "button", onclick: () => { set({ ...EMPTY, unit: state.unit, at: state.at, sort: state.sort, dir: state.dir }); search.focus(); } }, "Clear filters");
    const keys = element("details", {}, element("summary", {}, "Keys"), element("p", { class: "quiet" },
      ...[["j", "k"], " next and previous row; ", ["Enter"], " opens it; ", ["n", "p"], " next and previous failure; ",
        ["/"], " search; ", ["Esc"], " closes the item; ", ["?"], " these keys."]
        .flatMap((part) => (Array.isArray(part) ? part.flatMap((key, at) => [at ? " " : "", element("kbd", {}, key)]) : [part]))));

    // ---- The table: only rows in view are elements ----

    const head = element("tr", { "aria-rowindex": 1 });
    const body = element("tbody");
    const table = element("table", { "aria-label": "Items" }, element("thead", {}, head), body);
    const scroller = element("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "List of items" }, table);
    const panel = element("section", { class: "panel", "aria-label": "Item", hidden: true });
    const area = element("div", { class: "items" }, scroller, panel);
    let height = 0;
    let drawn = "";

    function heads() {
      replace(head, ...columns().map((column) => {
        const isSorted = state.sort === column.key;
        const direction = isSorted ? (state.dir === "desc" ? "descending" : "ascending") : undefined;
        const mark = isSorted ? (state.dir === "desc" ? " ▾" : " ▴") : "";
        return element("th", { scope: "col", class: `c-${column.key}${column.number ? " number" : ""}`, "aria-sort": direction },
          element("button", { type: "button", onclick: () => sort(column) }, column.title, mark));
      }));
    }
    function sort(column) {
      const again = state.sort === column.key;
      const first = column.number ? "desc" : "asc";
      const second = first === "desc" ? "asc" : "desc";
      if (!again) set({ sort: column.key, dir: first });
      else if (state.dir === first) set({ dir: second });
      else set({ sort: "", dir: "" });
      for (const button of head.querySelectorAll("button")) if (button.textContent.startsWith(column.title)) button.focus();
    }
    function line(at) {
      const row = shown[at];
      const isActive = at === active;
      const cellsOf = columns().map((column) => {
        const text = column.text ? column.text(row) : column.value(row);
        const kind = `c-${column.key}${column.number ? " number" : ""}`;
        if (column.key === "item") {
          const link = element("a", { href: `#unit=${rows.unit[row]}&at=${rows.cell[row]}`, tabindex: isActive ? 0 : -1, onclick: (event) => {
            if (event.ctrlKey || event.metaKey || event.shiftKey) return;
            event.preventDefault();
            active = at;
            open(row);
          } }, text);
          return element("th", { scope: "row", class: kind }, link);
        }
        if (column.key === "result") return element("td", { class: kind }, element("span", { class: "clamp" }, swatch(causes[rows.cause[row]].class), text));
        return element("td", { class: kind, title: text === "" ? undefined : text }, element("span", { class: "clamp" }, text));
      });
      return element("tr", { "aria-rowindex": at + 2, "data-at": at, "aria-current": row === opened || isActive ? "true" : undefined, onclick: (event) => {
        if (event.target.closest("a") || String(getSelection())) return;
        active = at;
        open(row);
      } }, cellsOf);
    }
    const gap = (rowsLeftOut) => {
      const cell = element("td");
      cell.style.height = `${rowsLeftOut * height}px`;
      return element("tr", { class: "gap", "aria-hidden": "true" }, cell);
    };
    function draw(force) {
      const hadFocus = body.contains(document.activeElement);
      if (!height && shown.length) {
        const top = scroller.scrollTop;
        replace(body, line(0));
        height = body.firstChild.getBoundingClientRect().height || 36;
        // With a single row, the list could not stay where it was.
        replace(body, gap(shown.length));
        scroller.scrollTop = top;
      }
      const first = Math.max(0, Math.floor(scroller.scrollTop / (height || 36)) - OVERSCAN);
      const last = Math.min(shown.length, first + Math.ceil(scroller.clientHeight / (height || 36)) + 2 * OVERSCAN);
      const key = `${first} ${last}`;
      if (!force && key === drawn) return;
      drawn = key;
      const lines = [];
      for (let at = first; at < last; at += 1) lines.push(line(at));
      replace(body, gap(first), ...lines, gap(shown.length - last));
      if (hadFocus) (linkOf(active) ?? scroller).focus({ preventScroll: true });
    }
    const linkOf = (at) => body.querySelector(`tr[data-at="${at}"] a`);
    /** Makes a row the active one and scrolls to it. */
    function activate(at, focus) {
      if (!shown.length) return;
      active = Math.min(Math.max(at, 0), shown.length - 1);
      const top = active * height;
      const view = scroller.clientHeight - head.offsetHeight - height;
      if (top < scroller.scrollTop) scroller.scrollTop = top;
      else if (top > scroller.scrollTop + view) scroller.scrollTop = top - view;
      draw(true);
      const link = focus ? linkOf(active) : undefined;
      link?.focus({ preventScroll: true });
      link?.scrollIntoView({ block: "nearest" });
    }

    function update() {
      for (const { key, select } of controls) select.value = state[key];
      const changes = controls.find((one) => one.key === "change");
      if (changes) changes.select.disabled = state.with === "";
      if (search.value !== state.q) search.value = state.q;
      clear.disabled = !["q", "cell", "result", "cause", "turn", "group", "with", "change"].some((key) => state[key] !== "");
      shown = sorted(matches());
      active = shown.indexOf(opened);
      table.setAttribute("aria-rowcount", shown.length + 1);
      replace(matched, `${NUMBER.format(shown.length)} of ${NUMBER.format(count)} items`);
      area.classList.toggle("compared", state.with !== "");
      heads();
      scroller.scrollTop = 0;
      draw(true);
      if (active >= 0) activate(active);
      save();
    }
    function set(changes) {
      const compared = state.with;
      Object.assign(state, changes);
      if (state.with === "") state.change = "";
      update();
      if (compared !== state.with && opened >= 0) open(opened, true);
    }

    // ---- The panel: one item, or one item in two configurations ----

    async function unit(row) {
      const of = cells[rows.cell[row]];
      const found = of.chunks.find(([first, size]) => first <= row && row < first + size);
      if (!found) return undefined;
      return (await chunk(found[2]))[row - found[0]];
    }
    let asked = 0;
    async function open(row, keepFocus) {
      opened = row;
      state.unit = row < 0 ? "" : rows.unit[row];
      state.at = row < 0 ? "" : String(rows.cell[row]);
      save();
      panel.hidden = row < 0;
      area.classList.toggle("open", row >= 0);
      height = 0;
      draw(true);
      if (row < 0) return;
      const at = shown.indexOf(row);
      if (at >= 0) activate(at);
      const number = (asked += 1);
      const cell = state.with === "" ? rows.cell[row] : Number(state.with);
      const compared = twin(row, cell);
      const sides = [row, compared].filter((one) => one >= 0);
      const title = element("h3", { tabindex: -1 }, `Item ${of(row, "index")}: ${causeText(row)}`);
      const bar = element("div", { class: "bar" },
        step("Previous failure", "p", -1), step("Next failure", "n", 1),
        element("button", { type: "button", onclick: close }, "Close ", element("kbd", {}, "Esc")));
      const contents = element("div", {}, element("p", { class: "quiet" }, "Loading …"));
      replace(panel, title, bar, contents);
      panel.scrollTop = 0;
      if (!keepFocus) {
        title.focus({ preventScroll: true });
        const { top, bottom } = title.getBoundingClientRect();
        if (!WIDE.matches) panel.scrollIntoView({ block: "start" });
        else if (top < 0 || bottom > innerHeight) area.scrollIntoView({ block: "start" });
      }
      let units;
      try {
        units = await Promise.all(sides.map(unit));
      } catch (error) {
        units = error;
      }
      if (number !== asked) return;
      if (units instanceof Error) replace(contents, element("p", { class: "alarm" }, units.message));
      else if (cell !== rows.cell[row] && compared < 0) replace(contents, note(row, cell), trajectories(sides, units));
      else replace(contents, trajectories(sides, units));
    }
    const note = (row, cell) => {
      const number = of(row, "index");
      return element("p", { class: "alarm" }, index.left_out ? `Item ${number} of ${cellName(cell)} ${NOT_LISTED}` : `${cellName(cell)} does not have item ${number}.`);
    };
    const step = (text, key, direction) => element("button", { type: "button", onclick: () => failureFrom(direction) }, `${text} `, element("kbd", {}, key));
    function close() {
      const row = opened;
      open(-1);
      active = shown.indexOf(row);
      if (active >= 0) activate(active, true);
      else scroller.focus();
    }
    /** Opens the next failure in the list, in a direction. */
    function failureFrom(direction) {
      const from = opened >= 0 ? shown.indexOf(opened) : active;
      for (let at = from < 0 && direction < 0 ? shown.length - 1 : from + direction; at >= 0 && at < shown.length; at += direction) {
        if (failure(shown[at])) {
          active = at;
          open(shown[at]);
          return;
        }
      }
      replace(matched, direction > 0 ? "No further failure in the list." : "No earlier failure in the list.");
    }

    function list(entries) {
      return element("dl", {}, entries.filter(([, value]) => value !== undefined && value !== null && value !== "")
        .map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
    }
    const scoreText = (scores) => Object.entries(scores ?? {}).map(([scoring, metrics]) => {
      const texts = Object.entries(metrics).map(([metric, [numerator, denominator]]) => {
        const value = denominator === 1 ? NUMBER.format(numerator) : `${NUMBER.format(numerator)} of ${NUMBER.format(denominator)}`;
        return `${metric} ${value}`;
      });
      return `${scoring}: ${texts.join(", ")}`;
    }).join("\n");
    function heading(row, loaded) {
      const cost = rows.cost[row];
      return element("div", {}, cells.length > 1 ? element("h4", {}, cellName(rows.cell[row])) : undefined, list([
        ["result", causeText(row)],
        ["prediction", loaded?.prediction ?? rows.prediction[row] ?? "–"],
        ["scores", scoreText(loaded?.scores)],
        ["judge", loaded?.judge],
        ["turns", rows.turns[row]],
        ["tokens", NUMBER.format(rows.tokens[row])],
        ["time", seconds(rows.ms[row])],
        ["cost", cost === null ? undefined : `${(cost / 1e9).toPrecision(3)} US dollars`],
        ["unit", loaded?.unit ?? rows.unit[row]],
      ]));
    }
    /** Steps of a record by turn. */
    function turnsOf(record) {
      const byTurn = new Map();
      for (const one of record?.steps ?? []) byTurn.set(one.turn, [...(byTurn.get(one.turn) ?? []), one]);
      return byTurn;
    }
    const essence = (steps) => JSON.stringify((steps ?? []).map((one) => [one.k, one.reply, one.call, one.action, one.observation]));
    function stepOf(one, row, unit) {
      const block = (who, text, kind) => [element("p", { class: "who" }, who), element("pre", { class: kind }, text)];
      const made = element("div", { class: "step" });
      if (one.k === "g") {
        const prompt = element("details", {}, element("summary", {}, `Prompt${one.pt === undefined ? "" : `, ${NUMBER.format(one.pt)} tokens`}`), element("pre", {}, one.prompt));
        const tokens = one.ct === undefined ? "" : `, ${NUMBER.format(one.ct)} tokens`;
        const cut = one.cut ? ", cut off at the limit on new tokens" : "";
        append(made, [block(`${one.role}${tokens}${cut}`, one.reply.trim() === "" ? "(an empty reply)" : one.reply.trim(), "reply"), prompt]);
      } else if (one.k === "c") {
        append(made, [block("tool call", one.call), block("result", one.reply)]);
      } else {
        append(made, [block("action", one.action), block(one.refused ? "refused" : "observation", one.observation, one.refused ? "refused" : undefined)]);
      }
      if (one.shot) made.append(picture(row, unit, one.shot));
      return made;
    }
    const picture = (row, unit, number) => {
      const { run } = cells[rows.cell[row]];
      const folder = run === undefined ? "screenshots" : `screenshots/${run}`;
      const name = String(number).padStart(4, "0");
      return element("img", { src: `${folder}/${unit.unit}/${name}.png`, alt: `Screenshot after step ${number}`, loading: "lazy" });
    };
    function trajectories(sides, units) {
      const first = units.find(Boolean);
      const two = sides.length > 1;
      const grid = (...parts) => element("div", { class: two ? "sides two" : "sides" }, parts);
      const parts = [list([
        ["name", of(sides[0], "name")], ["group", groupsOf(sides[0]).join("\n")],
        ["task", first?.task ?? of(sides[0], "task")], ["gold", first?.gold ?? of(sides[0], "gold")],
      ]), grid(...sides.map((row, side) => heading(row, units[side])))];
      if (!units.some((unit) => unit?.records.length)) {
        parts.push(element("p", { class: "quiet" }, first ? "Outstanding: not recorded yet." : "Trajectories are in the folder report/ of the run."));
        return parts;
      }
      const records = units.map((unit) => unit?.records.at(-1));
      const earlier = units.flatMap((unit, side) => (unit?.records.slice(0, -1) ?? []).map((record) =>
        element("p", { class: "quiet" }, `${two ? `${cellName(rows.cell[sides[side]])}: ` : ""}attempt ${record.attempt} ${record.ending}`)));
      parts.push(...earlier);
      const byTurn = records.map(turnsOf);
      const numbers = [...new Set(byTurn.flatMap((one) => [...one.keys()]))].sort((a, b) => a - b);
      for (const number of numbers) {
        const differs = two && essence(byTurn[0].get(number)) !== essence(byTurn[1].get(number));
        parts.push(element("section", { class: "turn" },
          element("div", { class: "bar" }, element("h4", {}, `Turn ${number}`), differs ? element("span", { class: "differs" }, "differs") : undefined),
          grid(...byTurn.map((steps, side) => element("div", {}, (steps.get(number) ?? []).map((one) => stepOf(one, sides[side], units[side])))))));
      }
      parts.push(element("section", { class: "turn" }, element("h4", {}, "Ending"),
        grid(...records.map((record) => element("p", {}, record ? record.ending : "outstanding")))));
      const left = units.flatMap((unit, side) => (unit?.shots ?? []).map((number) => picture(sides[side], unit, number)));
      if (left.length) parts.push(element("section", { class: "turn" }, element("h4", {}, "Further screenshots"), element("div", { class: "step" }, left)));
      return parts;
    }

    // ---- Keys and links ----

    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
      const target = event.target;
      if (event.key === "Escape" && opened >= 0) {
        close();
        event.preventDefault();
        return;
      }
      if (target.closest?.("input, select, textarea")) return;
      const inList = scroller.contains(target);
      const acts = {
        j: () => activate(active + 1, true), k: () => activate(active - 1, true), n: () => failureFrom(1), p: () => failureFrom(-1),
        "/": () => search.focus(), "?": () => {
          keys.open = !keys.open;
          keys.scrollIntoView({ block: "nearest" });
        },
        ...(inList ? {
          ArrowDown: () => activate(active + 1, true), ArrowUp: () => activate(active - 1, true),
          Home: () => activate(0, true), End: () => activate(shown.length - 1, true),
        } : {}),
        ...(target === scroller ? { Enter: () => active >= 0 && open(shown[active]) } : {}),
      };
      const act = acts[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    for (const link of document.querySelectorAll("a[data-filter]")) {
      link.addEventListener("click", () => {
        const asked = new URLSearchParams(link.dataset.filter);
        const cause = causes.findIndex((one) => one.name === asked.get("cause"));
        set({ ...EMPTY, cell: asked.get("cell") ?? "", cause: cause < 0 ? "" : String(cause), turn: asked.get("turn") ?? "" });
      });
    }
    for (const link of document.querySelectorAll("a[data-unit]")) {
      link.addEventListener("click", (event) => {
        event.preventDefault();
        // A is the first run.
        const compared = rowOfUnit(link.dataset.other, ofRun(0));
        const row = rowOfUnit(link.dataset.unit, ofRun(link.dataset.run));
        if (row >= 0) set({ ...EMPTY, cell: String(rows.cell[row]), with: compared < 0 ? "" : String(rows.cell[compared]) });
        section.scrollIntoView({ block: "start" });
        if (row >= 0) open(row);
        if (row < 0 || compared < 0) replace(matched, `Item ${link.textContent} of ${row < 0 ? "B" : "A"} ${NOT_LISTED}`);
      });
    }
    function load() {
      if (!read()) return false;
      update();
      const row = rowOfUnit(state.unit, (row) => rows.cell[row] === Number(state.at));
      // Addresses of earlier versions have only the unit.
      const found = row < 0 ? rowOfUnit(state.unit) : row;
      if (found >= 0) open(found, true);
      else if (opened >= 0) open(-1);
      return true;
    }
    addEventListener("hashchange", load);
    scroller.addEventListener("scroll", () => draw(false), { passive: true });
    new ResizeObserver(() => {
      height = 0;
      draw(true);
      if (opened >= 0 && active >= 0) activate(active);
    }).observe(scroller);

    const listed = document.getElementById("plain-items");
    const viewer = element("div", { id: "viewer" },
      element("div", { class: "filters", role: "search" }, element("label", { class: "wide" }, "Search", search), ...controls.map((one) => one.label)),
      element("div", { class: "bar" }, matched, clear, keys),
      ...(index.notes ?? []).map((text) => element("p", { class: "quiet" }, text)), area);
    listed ? listed.replaceWith(viewer) : section.append(viewer);
    for (const link of document.querySelectorAll("a[data-unit], a[data-filter]")) link.classList.add("live");
    if (!load()) update();
    document.documentElement.dataset.ready = "true";
  }
})();
