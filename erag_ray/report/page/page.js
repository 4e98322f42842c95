"use strict";
// Texts come from corpora and models: they are only set as textContent, and nothing is evaluated.
(() => {
  const ROWS = 25, QUESTIONS_A_PAGE = 50, RUNS_IN_LIST = 6, RUNS_BESIDE = 3, RUNS_IN_OUTCOMES = 12, SHARDS_KEPT = 4;
  const NO_PASSAGES = "no_passages", GOLD_PASSAGES = "gold_passages";
  const REFERENCES = { [NO_PASSAGES]: "closed book", [GOLD_PASSAGES]: "gold passages" };
  const MISSING = "–";
  const cellOf = name => {
    const [words, meaning] = about.cells[name] ?? [name, null];
    return el("span", { class: `cell ${name}`, title: meaning }, words);
  };
  const $ = id => document.getElementById(id);

  /** An element; children are elements or texts, `on` holds listeners, other properties are attributes. */
  function el(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name === "on") for (const [event, listen] of Object.entries(value)) element.addEventListener(event, listen);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
    return element;
  }

  /** Text of unknown direction, isolated from the text around it. */
  const isolated = (text, properties = {}) => el("bdi", { dir: "auto", ...properties }, String(text));

  /** A name; one with a long word wraps inside it. */
  const named = text => isolated(text, { class: /\S{25}/.test(text) ? "long" : null });

  async function unpackText(text) {
    const bytes = Uint8Array.from(atob(text.trim()), character => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return await new Response(stream).text();
  }
  const unpack = async text => JSON.parse(await unpackText(text));

  function fail(message) {
    $("failure").textContent = message;
    $("failure").hidden = false;
  }

  // --- state: all of it is in the URL hash, so that links and the back button restore it ---

  const stateOf = hash => new URLSearchParams(hash.replace(/^#/, ""));
  let state = stateOf(location.hash);
  const hashOf = changes => {
    const next = new URLSearchParams(state);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === undefined || value === "") next.delete(name);
      else next.set(name, value);
    }
    return `#${next}`;
  };
  const go = changes => { location.hash = hashOf(changes); };
  /** Change the state without a new history entry. */
  function replace(changes) {
    location.replace(hashOf(changes));
  }

  // --- values ---

  const score = value => value === null || value === undefined ? MISSING
    : Number.isInteger(value) ? String(value) : Math.abs(value) < 0.0005 ? value.toPrecision(2) : value.toFixed(3);
  const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
  const collator = new Intl.Collator(undefined, { numeric: true });
  /** Compare numbers by value and texts alphabetically; missing values come last in both directions. */
  function compare(a, b, direction) {
    const lacks = [a, b].map(value => value === null || value === undefined || value === "");
    if (lacks[0] || lacks[1]) return lacks[0] - lacks[1];
    const both = typeof a === "number" && typeof b === "number";
    return direction * (both ? a - b : collator.compare(String(a), String(b)));
  }
  const sorted = (rows, key, direction) => rows
    .map((row, position) => [row, key(row), position])
    .sort((a, b) => compare(a[1], b[1], direction) || a[2] - b[2])
    .map(entry => entry[0]);

  // --- tables ---

  const valueOf = cell => cell === null ? null : typeof cell === "string" ? cell : cell.v ?? null;
  /** What a cell is sorted by: a text that is an interval by its lower end. */
  const keyOf = cell => {
    const value = valueOf(cell), low = /^\[(-?[\d.]+), /.exec(value);
    return low ? Number(low[1]) : value;
  };
  const textOf = cell => cell === null ? "" : typeof cell === "string" ? cell : [cell.t, cell.i, cell.n].filter(Boolean).join(" ");

  /** A field of a CSV file; a text that a spreadsheet would take for a formula gets a ' before it. */
  function csvField(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  /** Rows as CSV: each column's value, and its interval and note in columns of their own where it has any. */
  function csvOf(columns, rows) {
    const parts = columns.map((_, number) => ["i", "n"].filter(part => rows.some(row => row[number]?.[part])));
    const names = { i: "interval", n: "note" };
    const head = columns.flatMap((column, number) => [column.name, ...parts[number].map(part => `${column.name} ${names[part]}`)]);
    const lines = rows.map(row => row.flatMap((cell, number) => [valueOf(cell), ...parts[number].map(part => cell?.[part])]));
    return [head, ...lines].map(line => line.map(csvField).join(",")).join("\r\n") + "\r\n";
  }

  function save(name, text) {
    const url = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" }));
    const link = el("a", { href: url, download: `${name}.csv` });
    link.click();
    URL.revokeObjectURL(url);
  }

  class Table {
    constructor(container, data) {
      this.container = container;
      this.data = data;
      this.isWhole = false;
      this.key = `t.${data.name}`;
      this.controls = el("div", { class: "controls" });
      this.scroll = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" });
      this.below = el("div", { class: "below" });
      if (data.rows.length > 8) this.addFilter();
      container.append(this.controls, this.scroll, this.below);
      this.drawn = null;
      this.draw();
    }

    addFilter() {
      this.input = el("input", {
        type: "search", placeholder: "Filter rows", "aria-label": "Filter rows",
        on: { input: () => this.set({ filter: this.input.value }) },
      });
      this.count = el("span", { class: "count", "aria-live": "polite" });
      this.controls.append(this.input, this.count);
    }

    get settings() {
      const [sort = "", direction = "", ...filter] = (state.get(this.key) || "").split(".");
      return { column: sort === "" ? -1 : Number(sort), direction: direction === "d" ? -1 : 1, filter: filter.join(".") };
    }

    set(changes) {
      const next = { ...this.settings, ...changes };
      const column = next.column < 0 ? "" : next.column;
      const text = `${column}.${next.column < 0 ? "" : next.direction < 0 ? "d" : "a"}.${next.filter}`;
      const changed = { [this.key]: text === ".." ? null : text };
      if ("filter" in changes) replace(changed); else go(changed);
    }

    sortBy(column) {
      const now = this.settings;
      const isText = this.data.columns[column].text;
      const first = isText ? 1 : -1;
      if (now.column !== column) this.set({ column, direction: first });
      else if (now.direction === first) this.set({ column, direction: -first });
      else this.set({ column: -1 });
    }

    rows() {
      const { column, direction, filter } = this.settings;
      const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
      let rows = this.data.rows;
      if (words.length) rows = rows.filter(row => {
        const text = row.map(textOf).join(" ").toLowerCase();
        return words.every(word => text.includes(word));
      });
      return column < 0 || column >= this.data.columns.length ? rows
        : sorted(rows, row => keyOf(row[column]), direction);
    }

    draw() {
      const signature = `${state.get(this.key)}|${this.isWhole}`;
      if (signature === this.drawn) return;
      this.drawn = signature;
      const rows = this.rows();
      const shown = this.isWhole ? rows : rows.slice(0, ROWS);
      const reasons = [];
      const body = el("tbody", {}, shown.map(row => el("tr", {}, row.map((cell, number) => this.cell(cell, number, reasons)))));
      this.scroll.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, this.data.columns.map((_, number) => this.head(number)))), body));
      this.drawBelow(rows.length, shown.length, reasons);
      if (this.input) {
        if (document.activeElement !== this.input) this.input.value = this.settings.filter;
        this.count.textContent = rows.length === this.data.rows.length ? counted(rows.length, "row") : `${rows.length} of ${counted(this.data.rows.length, "row")}`;
      }
    }

    head(number) {
      const column = this.data.columns[number];
      const now = this.settings;
      const isSorted = now.column === number;
      const button = el("button", { type: "button", title: column.meaning || null, on: { click: () => this.sortBy(number) } },
        named(column.name), el("span", { class: "arrow", "aria-hidden": "true" }, isSorted ? (now.direction > 0 ? "▲" : "▼") : ""));
      return el("th", { scope: "col", class: column.text ? "text" : "number", "aria-sort": isSorted ? (now.direction > 0 ? "ascending" : "descending") : null }, button);
    }

    cell(cell, number, reasons) {
      const name = this.data.columns[number].text ? "text" : "number";
      if (cell === null) return el("td", { class: name }, MISSING);
      if (typeof cell === "string") return el("td", { class: name }, named(cell));
      const parts = [cell.t === undefined ? MISSING : named(cell.t)];
      if (cell.i) parts.push(el("span", { class: "interval" }, ` ${cell.i}`));
      if (cell.n) parts.push(el("span", { class: "note" }, " ", isolated(cell.n)));
      if (cell.r) {
        if (!reasons.includes(cell.r)) reasons.push(cell.r);
        parts.push(el("sup", { title: cell.r }, String(reasons.indexOf(cell.r) + 1)));
      }
      return el("td", { class: name }, parts);
    }

    drawBelow(numRows, numShown, reasons) {
      const meanings = this.data.columns.filter(column => column.meaning);
      this.below.replaceChildren(
        numRows ? "" : el("p", { class: "empty" }, this.data.rows.length ? "No row matches." : "No rows."),
        numShown < numRows ? el("button", { type: "button", class: "more", on: { click: () => { this.isWhole = true; this.draw(); } } }, `Show all ${numRows} rows`) : "",
        reasons.length ? el("ol", { class: "reasons" }, reasons.map(reason => el("li", {}, isolated(reason)))) : "",
        this.data.rows.length ? el("button", { type: "button", class: "csv", title: "All rows that the filter leaves, for a spreadsheet",
          on: { click: () => save(this.data.name, csvOf(this.data.columns, this.rows())) } }, "CSV") : "",
        meanings.length ? el("details", { class: "meanings" }, el("summary", {}, "What the columns mean"),
          el("dl", {}, meanings.map(column => el("div", {}, el("dt", {}, isolated(column.name)), el("dd", {}, isolated(column.meaning)))))) : "",
      );
    }

    whole() { this.isWhole = true; this.draw(); }
  }

  // --- charts: Vega is loaded when the first chart becomes visible, and interprets expressions without eval ---

  let bundle = null;
  function loadVega() {
    bundle ??= new Promise((resolve, reject) => {
      const inline = $("bundle");
      const script = el("script");
      if (inline) {
        unpackText(inline.textContent).then(text => { script.textContent = text; document.head.append(script); resolve(); }, reject);
      } else {
        script.src = "charts.js";
        script.onload = resolve;
        script.onerror = () => reject(new Error("charts.js is missing beside index.html"));
        document.head.append(script);
      }
    });
    return bundle;
  }

  const merged = (base, more) => {
    const result = { ...base };
    for (const [name, value] of Object.entries(more)) {
      const both = value && typeof value === "object" && !Array.isArray(value) && result[name] && typeof result[name] === "object";
      result[name] = both ? merged(result[name], value) : value;
    }
    return result;
  };

  function chartTheme() {
    const style = getComputedStyle(document.documentElement);
    const [ink, muted, line] = ["--ink", "--muted", "--line"].map(name => style.getPropertyValue(name).trim());
    const words = { labelColor: muted, titleColor: ink };
    return {
      background: "transparent", font: style.getPropertyValue("--font"),
      axis: { ...words, gridColor: line, domainColor: line, tickColor: line, titleFontWeight: 500 },
      legend: words, header: words, title: { color: ink, subtitleColor: muted },
      view: { stroke: line }, text: { color: ink },
    };
  }

  class Chart {
    constructor(container, data) {
      this.data = data;
      this.isDrawn = false;
      this.canvas = el("div", { class: "canvas", role: "img", "aria-label": container.querySelector("h3").textContent });
      const numbers = el("details", { class: "numbers", open: !data.spec }, el("summary", {}, "Show the numbers"));
      container.querySelector(".body").append(data.spec ? this.canvas : "", numbers);
      const show = () => {
        if (!numbers.open || this.table) return;
        if (data.num_rows > data.rows.length) numbers.append(el("p", { class: "count" }, `The first ${data.rows.length} of ${data.num_rows} rows; all are in the sealed tables.`));
        this.table = new Table(numbers, figureTable(data));
      };
      numbers.addEventListener("toggle", show);
      show();
    }

    async draw() {
      if (this.isDrawn || !this.data.spec) return;
      this.isDrawn = true;
      try {
        await loadVega();
        const spec = { ...this.data.spec, config: merged(this.data.spec.config || {}, chartTheme()) };
        this.canvas.replaceChildren();
        this.result?.finalize();
        this.result = await vegaEmbed(this.canvas, spec, { ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: { theme: "custom" } });
        this.canvas.classList.add("drawn");
      } catch (error) {
        this.canvas.textContent = `This chart cannot be drawn: ${error.message}`;
      }
    }
  }

  function figureTable(data) {
    const isText = number => data.rows.some(row => typeof row[number] === "string");
    const columns = data.columns.map((name, number) => ({ name, meaning: "", text: isText(number) }));
    const cell = value => value === null || typeof value === "string" ? value : { v: value, t: score(value) };
    return { name: `${data.name}.numbers`, columns, rows: data.rows.map(row => row.map(cell)) };
  }

  const tables = [], charts = [];

  function fillReport(data) {
    const byName = new Map([...data.tables, ...data.figures].map(part => [part.name, part]));
    const watch = new IntersectionObserver(entries => {
      for (const entry of entries) if (entry.isIntersecting) { watch.unobserve(entry.target); entry.target.fill(); }
    }, { rootMargin: "400px" });
    for (const element of document.querySelectorAll("[data-part]")) {
      const part = byName.get(element.dataset.part);
      if (!part) continue;
      const isTable = element.classList.contains("table");
      element.fill = () => {
        element.fill = () => {};
        if (isTable) tables.push(new Table(element.querySelector(".body"), part));
        else { const chart = new Chart(element, part); charts.push(chart); return chart.draw(); }
      };
      watch.observe(element);
    }
  }
  /** Fill every table and chart; what is folded is opened, until it was printed. */
  function fillAll() {
    for (const folded of document.querySelectorAll("#report details:not(.numbers, .meanings):not([open])")) {
      folded.open = true;
      addEventListener("afterprint", () => { folded.open = false; }, { once: true });
    }
    return Promise.all([...document.querySelectorAll("[data-part]")].map(element => element.fill?.()));
  }

  // --- questions ---

  let about = null, index = null, all = [], shortRuns = [];
  const view = name => $(name);

  /** Range of the runs' scores. */
  function spreadOf(values) {
    const defined = values.filter(value => value !== null);
    return defined.length > 1 ? Math.max(...defined) - Math.min(...defined) : null;
  }
  function wasHarmed(question) {
    const closed = index.closed_book[question];
    return index.harmful[question] > 0 || (closed !== null && index.values[question].some(value => value !== null && index.sign[question] * (value - closed) < 0));
  }

  /** Whether a question's score is better than another one; higher where neither more nor less is better. */
  const isBetter = (question, score, other) => score !== null && other !== null && (index.sign[question] || 1) * (score - other) > 0;
  /** Whether a score or label counts as useful; where less is better, or neither, none does. */
  const isUseful = (value, sign) => sign > 0 && value >= about.threshold;

  function prepareQuestions(data) {
    about = data;
    index = data.index;
    index.spread = index.values.map(spreadOf);
    index.harmed = index.id.map((_, question) => wasHarmed(question));
    index.search = index.id.map((id, question) => [id, index.question[question], ...index.answers[question]].join("\n").toLowerCase());
    all = index.id.map((_, question) => question);
    index.byId = new Map(index.id.map((id, question) => [id, question]));
  }

  function filteredQuestions() {
    const words = (state.get("q") || "").toLowerCase().split(/\s+/).filter(Boolean);
    const dataset = state.get("dataset"), cell = state.get("cell"), run = state.get("run");
    const slices = Object.keys(index.slice_values).map(name => [name, state.get(`slice.${name}`)]).filter(pair => pair[1] !== null);
    const selected = run === null ? null : [about.runs.indexOf(run)];
    const pair = ["better", "than"].map(name => about.runs.indexOf(state.get(name)));
    const better = pair.includes(-1) ? null : pair;
    const chosen = all.filter(question => {
      if (dataset !== null && index.dataset[question] !== dataset) return false;
      if (words.length && !words.every(word => index.search[question].includes(word))) return false;
      if (better && !isBetter(question, ...better.map(run => index.values[question][run]))) return false;
      if (state.has("differ") && !(index.spread[question] > 0)) return false;
      if (state.has("disagree") && !index.disagree[question]) return false;
      if (state.has("harm") && !index.harmed[question]) return false;
      if (cell !== null) {
        const number = index.cell_names.indexOf(cell);
        const cells = index.cells[question];
        if (!(selected ? selected.some(position => cells[position] === number) : cells.includes(number))) return false;
      }
      return slices.every(([name, value]) => index.slice_values[name][index.slices[question][name]] === value);
    });
    return sortQuestions(chosen);
  }

  const questionColumns = () => {
    const columns = [
      { key: "dataset", name: "Dataset", text: true, of: question => index.dataset[question] },
      { key: "question", name: "Question", text: true, of: question => index.question[question] || index.id[question] },
    ];
    about.runs.slice(0, RUNS_IN_LIST).forEach((run, position) => columns.push({ key: `run.${run}`, name: run, position, of: question => index.values[question][position] }));
    columns.push(
      { key: "closed", name: "closed book", of: question => index.closed_book[question], meaning: "Score without passages" },
      { key: "gold", name: "gold passages", of: question => index.gold[question], meaning: "Score with the gold passages" },
      { key: "spread", name: "spread", of: question => index.spread[question], meaning: "Highest score of a run minus the lowest" },
      { key: "disagree", name: "disagree", of: question => index.disagree[question], meaning: "Documents that some annotators call useful and others not" },
    );
    return columns.filter(column => column.text || index.id.some((_, question) => column.of(question) !== null));
  };

  function sortQuestions(questions) {
    const [key, direction] = (state.get("sort") || defaultSort()).split(/~(?=[ad]$)/);
    const column = questionColumns().find(candidate => candidate.key === key);
    return column ? sorted(questions, column.of, direction === "d" ? -1 : 1) : questions;
  }
  const defaultSort = () => state.has("differ") ? "spread~d" : state.has("disagree") ? "disagree~d" : "";

  function choice(label, name, values, everything, textOf = value => value) {
    const now = state.get(name);
    const select = el("select", { on: { change: () => go({ [name]: select.value === "" ? null : select.value.slice(1), page: null }) } },
      el("option", { value: "" }, everything),
      values.map(value => el("option", { value: `=${value}`, selected: value === now }, textOf(value))));
    return el("label", {}, el("span", {}, label), select);
  }

  const toggle = (label, name, meaning) => el("button", {
    type: "button", class: "toggle", "aria-pressed": String(state.has(name)), title: meaning,
    on: { click: () => go({ [name]: state.has(name) ? null : "1", page: null, sort: null }) },
  }, el("span", { "aria-hidden": "true" }, state.has(name) ? "✓ " : ""), label);

  let listSignature = null, matches = [];

  const LIST_KEYS = ["q", "dataset", "cell", "run", "better", "than", "differ", "disagree", "harm", "sort", "page"];
  const listState = () => [...state].filter(([name]) => LIST_KEYS.includes(name) || name.startsWith("slice.")).map(pair => pair.join("=")).sort().join("&");

  function drawQuestions() {
    const signature = listState();
    if (signature === listSignature) return;
    const isTyping = document.activeElement?.id === "search";
    listSignature = signature;
    matches = filteredQuestions();
    const without = about.runs.filter((_, run) => index.elsewhere[run]);
    const pages = Math.max(1, Math.ceil(matches.length / QUESTIONS_A_PAGE));
    const page = Math.min(Math.max(1, Number(state.get("page")) || 1), pages);
    if (!isTyping || !$("search")) view("questions").replaceChildren(el("h1", {}, "Questions"), questionFilters(), el("div", { id: "matches" }));
    $("matches").replaceChildren(
      el("p", { class: "count", "aria-live": "polite" }, matches.length === all.length ? counted(all.length, "question") : `${matches.length} of ${counted(all.length, "question")}`,
        index.depth ? `; scores with ${counted(index.depth, "document")}` : "",
        without.length ? ["; scores with other depths are in each question: ", without.map((run, number) => [number ? ", " : "", isolated(run)])] : "",
        about.runs.length > RUNS_IN_LIST ? `; the first ${RUNS_IN_LIST} of ${about.runs.length} runs` : ""),
      matches.length ? questionTable(matches.slice((page - 1) * QUESTIONS_A_PAGE, page * QUESTIONS_A_PAGE)) : el("p", { class: "empty" }, "No question matches. ", el("a", { href: "#view=questions" }, "Show all")),
      pages > 1 ? pager(page, pages) : "",
    );
  }

  function questionFilters() {
    const datasets = [...new Set(index.dataset)].filter(Boolean).sort(collator.compare);
    const search = el("input", { id: "search", type: "search", placeholder: "Question, answer or id", value: state.get("q") || "",
      on: { input: () => replace({ q: search.value, page: null }) } });
    return el("form", { class: "filters", on: { submit: event => event.preventDefault() } },
      el("label", { class: "wide" }, el("span", {}, "Search"), search),
      datasets.length > 1 ? choice("Dataset", "dataset", datasets, "all") : "",
      index.cell_names.length ? [choice("Cell", "cell", index.cell_names, "any", name => about.cells[name]?.[0] ?? name), choice("of run", "run", about.runs, "any run")] : "",
      about.runs.length > 1 ? [choice(index.sign.some(sign => sign) ? "Better with" : "Higher with", "better", about.runs, "any run"), choice("than with", "than", about.runs, "any run")] : "",
      Object.entries(index.slice_values).map(([name, values]) => choice(name, `slice.${name}`, [...values].sort(collator.compare), "all")),
      el("div", { class: "toggles" },
        about.runs.length > 1 ? toggle("Runs differ most", "differ", "Only questions with different scores of runs, the largest difference first") : "",
        toggle("Annotators disagree", "disagree", "Only questions with documents that some annotators call useful and others not"),
        toggle("Did harm", "harm", "Only questions where a list scores worse than no passages, or a document's gain is below 0")));
  }

  function sortQuestionsBy(column) {
    const [key, direction] = (state.get("sort") || defaultSort()).split(/~(?=[ad]$)/);
    const first = column.text ? "a" : "d";
    const next = key !== column.key ? first : direction === first ? (first === "a" ? "d" : "a") : null;
    go({ sort: next ? `${column.key}~${next}` : null, page: null });
  }

  function questionTable(questions) {
    const columns = questionColumns();
    const [key, direction] = (state.get("sort") || defaultSort()).split(/~(?=[ad]$)/);
    const heads = columns.map(column => el("th", { scope: "col", class: `${column.text ? "text" : "number"} ${column.position === undefined ? column.key : ""}`.trim(), "aria-sort": key === column.key ? (direction === "d" ? "descending" : "ascending") : null },
      el("button", { type: "button", title: column.meaning || null, on: { click: () => sortQuestionsBy(column) } },
        named(column.name), el("span", { class: "arrow", "aria-hidden": "true" }, key === column.key ? (direction === "d" ? "▼" : "▲") : ""))));
    const open = question => event => {
      if (!event.target.closest("a") && !getSelection().toString()) location.hash = hashOf({ view: "question", id: index.id[question] });
    };
    const rows = questions.map(question => el("tr", { on: { click: open(question) } }, columns.map(column => questionCell(question, column))));
    return el("div", { class: "scroll" }, el("table", { class: "questions" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows)));
  }

  function questionCell(question, column) {
    if (column.key === "question") {
      const link = el("a", { class: "open", href: hashOf({ view: "question", id: index.id[question] }) }, isolated(column.of(question)));
      const signs = index.harmed[question] ? el("span", { class: "sign harm", title: "A list or a document did harm" }, "▼ harm") : "";
      return el("td", { class: "text" }, link, " ", signs);
    }
    if (column.text) return el("td", { class: `text faint ${column.key}` }, isolated(column.of(question)));
    const number = column.position === undefined ? -1 : index.cells[question][column.position];
    const cell = number === -1 || number === undefined ? "" : cellOf(index.cell_names[number]);
    const value = column.of(question);
    return el("td", { class: `number${column.position === undefined ? " faint" : isUseful(value, index.sign[question]) ? " high" : ""}` }, score(value), cell);
  }

  const pager = (page, pages) => el("nav", { class: "pager", "aria-label": "Pages" },
    el("a", page > 1 ? { href: hashOf({ page: page - 1 }), rel: "prev" } : { "aria-disabled": "true" }, "← Previous"),
    el("span", {}, `Page ${page} of ${pages}`),
    el("a", page < pages ? { href: hashOf({ page: page + 1 }), rel: "next" } : { "aria-disabled": "true" }, "Next →"));

  // --- one question ---

  const shards = new Map(), waiting = new Map();
  window.shard = (number, text) => waiting.get(number)?.(text);

  function loadShard(number) {
    const loading = shards.get(number);
    shards.delete(number);
    const shard = loading ?? new Promise((resolve, reject) => {
      const inline = document.querySelectorAll("script.shard")[number];
      if (inline) return resolve(unpack(inline.textContent));
      const name = `questions/${String(number).padStart(4, "0")}.js`;
      const script = el("script", { src: name });
      const end = () => { waiting.delete(number); script.remove(); };
      waiting.set(number, text => { end(); resolve(unpack(text)); });
      script.onerror = () => { end(); shards.delete(number); reject(new Error(`${name} is missing beside index.html`)); };
      document.head.append(script);
    });
    shards.set(number, shard);
    while (shards.size > SHARDS_KEPT) shards.delete(shards.keys().next().value);
    return shard;
  }

  let shownQuestion = null;

  async function drawQuestion() {
    const id = state.get("id");
    const signature = [id, state.get("beside"), state.get("deep"), state.get("outcomes")].join("\n");
    if (signature === shownQuestion) return;
    shownQuestion = signature;
    const question = index.byId.get(id);
    if (question === undefined) return view("question").replaceChildren(el("div", { class: "wrap" }, el("h1", {}, "No such question"), el("p", {}, isolated(id || ""))));
    try {
      const shard = await loadShard(index.shard[question]);
      if (state.get("id") !== id) return;
      const isSame = view("question").dataset.id === id;
      view("question").replaceChildren(...questionView(question, shard[index.place[question]]));
      view("question").dataset.id = id;
      if (!isSame) view("question").querySelector("h1").focus({ preventScroll: true });
    } catch (error) {
      shownQuestion = null;
      view("question").replaceChildren(el("p", { class: "wrap note", role: "alert" }, `This question cannot be shown: ${error.message}.`));
    }
  }

  function neighbours(question) {
    const signature = listState();
    if (signature !== listSignature || !matches.length) {
      matches = filteredQuestions();
      listSignature = null;
    }
    const position = matches.indexOf(question);
    return { position, before: matches[position - 1], after: position < 0 ? undefined : matches[position + 1] };
  }

  function questionView(question, record) {
    const { position, before, after } = neighbours(question);
    const link = (target, text, rel) => el("a", target === undefined ? { "aria-disabled": "true" } : { href: hashOf({ id: index.id[target], deep: null }), rel }, text);
    const head = el("div", { class: "wrap" },
      el("nav", { class: "pager", "aria-label": "Questions" },
        el("a", { href: hashOf({ view: "questions", id: null, beside: null, deep: null, outcomes: null }) }, "↑ All questions"),
        link(before, "← Previous", "prev"), el("span", {}, position < 0 ? "" : `${position + 1} of ${matches.length}`), link(after, "Next →", "next")),
      el("h1", { tabindex: "-1" }, isolated(record.question || record.id)),
      el("dl", { class: "facts" },
        fact("Gold answers", record.answers.length ? record.answers.map(answer => isolated(answer, { class: "gold-answer" })) : MISSING),
        record.dataset ? fact("Dataset", isolated(record.dataset)) : "",
        record.score ? fact("Score", isolated(record.score)) : "",
        fact("Id", isolated(record.id)),
        Object.entries(record.slices).map(([name, value]) => fact(name, isolated(value)))),
      el("h2", {}, "Outputs of the reader with each list", about.answers > 1 ? el("span", { class: "count" }, ` (the first of ${about.answers} answers; scores are the mean of all)`) : ""),
      outcomes(record));
    return [head, documentsView(record)];
  }

  const fact = (name, ...values) => el("div", {}, el("dt", {}, name), el("dd", {}, values));

  function outcomes(record) {
    const sign = index.sign[index.byId.get(record.id)];
    const byRun = new Map();
    for (const [run, depth, value, output] of record.end_to_end) {
      if (!byRun.has(run)) byRun.set(run, new Map());
      byRun.get(run).set(depth, { value, output });
    }
    const cells = new Map(record.cells.map(([run, depth, cell]) => [`${depth}\n${run}`, cell]));
    const runs = about.runs.filter(run => byRun.has(run) || cells.size);
    const depths = [...new Set(record.end_to_end.filter(row => !(row[0] in REFERENCES)).map(row => row[1]))].sort((a, b) => a - b);
    const references = Object.keys(REFERENCES).filter(run => byRun.has(run));
    if (!runs.length && !references.length) return el("p", { class: "empty" }, "No end-to-end scores.");
    const isWhole = state.has("outcomes") || runs.length <= RUNS_IN_OUTCOMES;
    const beside = besideOf(record);
    const shown = isWhole ? runs : [...new Set([...beside.map(number => about.runs[number]), ...runs])].slice(0, RUNS_IN_OUTCOMES);
    const row = run => el("tr", {}, el("th", { scope: "row", class: "text" }, about.runs.length > 1 ? besideBox(record, run, beside) : named(run)),
      depths.map(depth => el("td", { class: "outcome" }, outcome(byRun.get(run)?.get(depth), sign, cells.get(`${depth}\n${run}`)))));
    const reference = run => {
      const [answer] = byRun.get(run).values();
      return el("tr", { class: "reference" }, el("th", { scope: "row", class: "text" }, REFERENCES[run]), el("td", { class: "outcome", colspan: Math.max(1, depths.length) }, outcome(answer, sign)));
    };
    return el("div", {},
      el("div", { class: "scroll" }, el("table", { class: "outcomes" },
        el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "text" }, "Run"), depths.map(depth => el("th", { scope: "col", class: "text" }, depth ? `first ${depth}` : "end to end")))),
        el("tbody", {}, shown.map(row), references.map(reference)))),
      isWhole ? "" : el("a", { class: "more", href: hashOf({ outcomes: "1" }) }, `Show all ${runs.length} runs`));
  }

  function outcome(answer, sign, cell) {
    if (!answer) return MISSING;
    return [el("span", { class: `value${isUseful(answer.value, sign) ? " high" : ""}` }, score(answer.value)), " ",
      cell ? cellOf(cell) : "",
      quoted(answer.output)];
  }
  const quoted = output => output === null ? "" : el("q", { class: output.trim() ? "" : "void", dir: "auto" }, output.trim() ? output : "(empty)");

  /** Runs whose documents are shown side by side: the selected ones, or the first few. */
  function besideOf(record) {
    const chosen = (state.get("beside") || "").split(",").filter(Boolean).map(Number).filter(number => number < about.runs.length);
    if (chosen.length) return chosen;
    const available = about.runs.map((_, number) => number).filter(number => record.lists[number]);
    return available.slice(0, RUNS_BESIDE);
  }

  function besideBox(record, run, beside) {
    const number = about.runs.indexOf(run);
    const isShown = beside.includes(number);
    const change = () => {
      const next = isShown ? beside.filter(other => other !== number) : [...beside, number].sort((a, b) => a - b);
      replace({ beside: next.join(",") || null });
    };
    return el("label", { class: "beside", title: "Show its documents below" }, el("input", { type: "checkbox", checked: isShown, on: { change } }), named(run));
  }

  function documentsView(record) {
    const lists = Object.keys(record.lists).length ? record.lists : { "-1": record.documents.ids.map((_, number) => number) };
    const beside = Object.keys(record.lists).length ? besideOf(record).filter(run => lists[run]) : [-1];
    const longest = Math.max(0, ...beside.map(run => lists[run].length));
    const isDeep = state.has("deep");
    const shown = isDeep ? longest : Math.min(longest, about.shown);
    const pattern = answerPattern(record.answers);
    const ranks = ranksOf(record);
    const isRanked = beside[0] !== -1;
    const listed = new Set(Object.values(lists).flat());
    const unlisted = record.documents.gold.filter(document => !listed.has(document));
    const columns = beside.map(run => el("section", { class: "list" },
      el("h3", {}, isRanked ? isolated(about.runs[run]) : "Documents"),
      isRanked ? promptView(record, about.runs[run], lists[run]) : "",
      el("ol", {}, lists[run].slice(0, shown).map((document, rank) => card(record, document, isRanked ? rank + 1 : null, run, ranks, pattern)))));
    if (unlisted.length) columns.push(el("section", { class: "list" }, el("h3", {}, "Gold passages in no list"), el("ol", {}, unlisted.map(document => card(record, document, null, -1, ranks, pattern)))));
    return el("div", { class: "documents" },
      el("div", { class: "wrap" }, el("h2", {}, "Documents side by side"), legend(record)),
      columns.length ? el("div", { class: "lists", style: null, tabindex: "0", role: "region", "aria-label": "Documents of the runs" }, columns) : el("p", { class: "wrap empty" }, "No lists."),
      shown < longest ? el("div", { class: "wrap" }, el("a", { class: "more", href: hashOf({ deep: "1" }) }, `Show all ${longest} documents of each list`)) : "");
  }

  const legend = record => el("p", { class: "legend" },
    el("span", {}, "● useful"), el("span", {}, "◐ in part"), el("span", {}, "○ not useful"), el("span", {}, "▲ gain"), el("span", {}, "▼ harm"), el("span", {}, "★ gold passage"),
    record.answers.length && about.texts !== "none" ? el("span", {}, el("mark", {}, "gold answer")) : "");

  // --- the reader's prompt, as erag_ray/prompts/prompt.py fills it ---

  const withoutEnd = template => template.replace(/ +$/, "");
  const filled = (template, values) => template.replace(/\{\{|\}\}|\{(\w+)\}/g, (mark, name) => mark === "{{" ? "{" : mark === "}}" ? "}" : values[name] ?? "");
  function asked(prompt, question, passages) {
    // blanks at the end are dropped of the template only, not of a text
    const whole = withoutEnd(passages.length ? prompt.template : prompt.without_passages);
    const plain = text => prompt.one_line ? text.split(/\s+/).filter(Boolean).join(" ") : text;
    const texts = passages.map((passage, rank) => {
      const title = prompt.titles ? plain(passage.title) : "", text = plain(passage.text);
      const format = title ? prompt.passage : prompt.untitled;
      return filled(rank + 1 === passages.length && whole.endsWith("{passages}") ? withoutEnd(format) : format, { rank: rank + 1, title, text, passage: title ? `(${title}) ${text}` : text });
    });
    return filled(whole, { question, passages: texts.join(prompt.separator) });
  }
  function promptText(prompt, question, passages) {
    const system = passages.length ? prompt.system : prompt.system_without_passages;
    const examples = prompt.examples.map(([text, answer, given]) => [asked(prompt, text, passages.length ? given.map(([title, body]) => ({ title, text: body })) : []), answer]);
    const own = asked(prompt, question, passages);
    if (!prompt.is_chat) return [system, ...examples.map(pair => pair.join(" ")), own].filter(Boolean).join("\n\n");
    const turns = [["system", system], ...examples.flatMap(([text, answer]) => [["user", text], ["assistant", answer]]), ["user", own]];
    return turns.filter(([, text]) => text).map(([role, text]) => `[${role}]\n${text}`).join("\n\n");
  }

  /** The prompt with a run's list, filled when it is opened; nothing where the page lacks texts of its documents. */
  function promptView(record, run, list) {
    const prompt = about.prompts[record.dataset];
    const { titles, texts } = record.documents;
    const depths = record.end_to_end.filter(row => row[0] === run).map(row => row[1]);
    const depth = Math.max(0, ...depths.filter(depth => list.slice(0, depth).every(document => texts[document] !== null)));
    const given = list.slice(0, prompt?.is_for_each ? 1 : depth);
    if (!prompt || about.texts !== "all" || !given.length) return "";
    const passages = given.map(document => ({ title: titles[document] || "", text: texts[document] }));
    const text = el("pre", { dir: "auto" });
    const notes = [prompt.is_for_each ? `one of ${depth}, one for each document` : "", prompt.max_tokens ? `cut to ${prompt.max_tokens} tokens` : ""].filter(Boolean).join("; ");
    return el("details", { class: "prompt", on: { toggle: () => { text.textContent = promptText(prompt, record.question, passages); } } },
      el("summary", {}, prompt.is_for_each ? "The reader's prompt with the first document" : `The reader's prompt with the first ${depth}`, notes ? el("span", { class: "count" }, ` (${notes})`) : ""), text);
  }

  function ranksOf(record) {
    const ranks = record.documents.ids.map(() => []);
    for (const [run, list] of Object.entries(record.lists)) list.forEach((document, rank) => ranks[document].push([Number(run), rank + 1]));
    return ranks;
  }

  function card(record, document, rank, run, ranks, pattern) {
    const { ids, titles, texts, outputs, gold } = record.documents;
    const also = ranks[document].filter(([other]) => other !== run);
    const text = texts[document], output = outputs[document];
    const judged = Object.entries(record.documents.labels).map(([column, labels]) => [about.columns[column], labels[document]]).filter(([, label]) => label !== null);
    const first = judged.find(([column]) => column.kind !== "signed");
    const isGood = first && isUseful(first[1], first[0].sign), isHarmful = judged.some(([column, label]) => column.kind === "signed" && label * column.sign < 0);
    return el("li", { class: `card${isGood ? " useful" : ""}${isHarmful ? " harmful" : ""}` },
      el("div", { class: "top" }, rank === null ? "" : el("span", { class: "rank" }, String(rank)), el("h4", {}, isolated(titles[document] || ids[document])),
        gold.includes(document) ? el("span", { class: "gold", title: "Gold passage" }, "★ gold") : ""),
      judged.length ? el("ul", { class: "labels" }, judged.map(([column, label]) => labelChip(column, label))) : "",
      valuesInList(record, run, document),
      output === null ? "" : el("p", { class: "alone" }, el("span", {}, "Alone: "), quoted(output)),
      text === null ? "" : el("p", { class: "passage", dir: "auto" }, marked(text, pattern)),
      el("p", { class: "also" }, el("span", { class: "id" }, isolated(ids[document])),
        also.length ? el("span", {}, " also ", also.slice(0, 4).map(([other, position], number) => [number ? ", " : "", isolated(about.runs[other]), ` #${position}`]), also.length > 4 ? ` and ${also.length - 4} more` : "") : ""));
  }

  /** Values of the document in the run's list, such as what it adds to the list's score. */
  function valuesInList(record, run, document) {
    const values = Object.entries(record.in_lists[run] || {}).filter(([, byDocument]) => document in byDocument);
    if (!values.length) return "";
    const column = { kind: "signed", sign: index.sign[index.byId.get(record.id)], meaning: "What the document adds to the score of this list" };
    return el("div", { class: "credits" }, el("span", {}, "In the list: "),
      el("ul", { class: "labels" }, values.map(([name, byDocument]) => labelChip({ ...column, annotator: name.replaceAll("_", " ") }, byDocument[document]))));
  }

  function labelChip(column, label) {
    const isSigned = column.kind === "signed", gain = label * column.sign, isGood = isUseful(label, column.sign);
    const sign = isSigned ? (gain > 0 ? "▲" : gain < 0 ? "▼" : "·") : column.sign <= 0 ? "·" : isGood ? "●" : label > 0 ? "◐" : "○";
    const kind = isSigned ? (gain > 0 ? "good" : gain < 0 ? "bad" : "none") : isGood ? "good" : "none";
    const value = isSigned && label > 0 ? `+${score(label)}` : score(label);
    const meaning = column.meaning || [column.annotator, column.reader && `by ${column.reader}`, column.score && `score ${column.score}`].filter(Boolean).join(", ");
    return el("li", { class: `label ${kind}`, title: meaning }, el("span", { "aria-hidden": "true" }, sign), " ", isolated(column.annotator), " ", el("b", {}, value));
  }

  /** Pattern of the gold answers, case-insensitive, at word boundaries; as `answer_pattern` in questions.py. */
  function answerPattern(answers) {
    const words = answers.map(answer => answer.trim()).filter(answer => /[\p{L}\p{N}]/u.test(answer)).sort((a, b) => b.length - a.length)
      .map(answer => answer.split(/\s+/).map(word => word.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&").replace(/\\-/g, "-")).join("\\s+"));
    const scripts = "Han Hiragana Katakana Hangul Thai Lao Khmer Myanmar".split(" ").map(name => `\\p{sc=${name}}`).join("");
    const unspaced = `(?!\\p{Nd})[${scripts}ー]`;
    const inWord = `(?!${unspaced})[\\p{L}\\p{N}_]`;
    const [start, end] = [`(?:(?<!${inWord})|(?=${unspaced}))`, `(?:(?!${inWord})|(?<=${unspaced}))`];
    return words.length ? new RegExp(`${start}(?:${words.join("|")})${end}`, "giu") : null;
  }

  function marked(text, pattern) {
    if (!pattern) return text;
    const parts = [];
    let end = 0;
    for (const match of text.matchAll(pattern)) {
      parts.push(text.slice(end, match.index), el("mark", {}, match[0]));
      end = match.index + match[0].length;
    }
    parts.push(text.slice(end));
    return parts;
  }

  // --- views ---

  const scrolls = new Map();
  let shownHash = location.hash, shownView = null;

  async function route() {
    const hash = location.hash;
    state = stateOf(hash);
    const name = about && ["questions", "question"].includes(state.get("view")) ? state.get("view") : "report";
    const isOther = name !== shownView;
    for (const other of ["report", "questions", "question"]) view(other).hidden = other !== name;
    for (const link of document.querySelectorAll("[data-view]")) {
      const isHere = link.dataset.view === (name === "question" ? "questions" : name);
      if (isHere) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
    }
    const wasId = view("question").dataset.id;
    if (name === "report") for (const table of tables) table.draw();
    if (name === "questions") drawQuestions();
    shownView = name;
    if (name === "question") await drawQuestion();
    // the user navigated while the question was loading
    if (location.hash !== hash) return;
    const target = name === "report" && state.get("section");
    if (target && isOther | (target !== lastSection)) [...document.querySelectorAll("[data-section]")].find(section => section.dataset.section === target)?.scrollIntoView();
    else if (scrolls.has(location.hash) && (isOther || goesBack)) window.scrollTo(0, scrolls.get(location.hash));
    else if (isOther || (name === "question" && wasId !== state.get("id"))) window.scrollTo(0, 0);
    lastSection = target;
    goesBack = false;
    shownHash = location.hash;
    document.documentElement.dataset.ready = name;
  }
  let lastSection = null, goesBack = false;

  function toggleTheme() {
    const isDark = isDarkNow();
    document.documentElement.dataset.theme = isDark ? "light" : "dark";
    try { localStorage.setItem("erag-theme", document.documentElement.dataset.theme); } catch { /* pages opened from files may have no storage */ }
    drawTheme();
  }
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDarkNow = () => (document.documentElement.dataset.theme || (prefersDark.matches ? "dark" : "light")) === "dark";
  function drawTheme() {
    $("theme").textContent = isDarkNow() ? "Light" : "Dark";
    for (const chart of charts) if (chart.isDrawn) { chart.isDrawn = false; chart.draw(); }
  }

  async function printWhole() {
    if (shownView === "report") {
      await fillAll();
      for (const table of tables) table.whole();
    }
    window.print();
  }

  function move(step) {
    if (shownView === "question") {
      const { before, after } = neighbours(index.byId.get(state.get("id")));
      const target = step > 0 ? after : before;
      if (target !== undefined) go({ id: index.id[target], deep: null });
    } else if (shownView === "questions") {
      const links = [...view("questions").querySelectorAll("a.open")];
      const now = links.indexOf(document.activeElement);
      links[Math.min(links.length - 1, Math.max(0, now < 0 ? 0 : now + step))]?.focus();
    }
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target.matches("input[type=search], select, textarea");
    if (event.key === "Escape") return isTyping ? event.target.blur() : escape();
    if (isTyping) return;
    const steps = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };
    const sideways = { ArrowRight: 1, ArrowLeft: -1 };
    if (event.key in steps && shownView === "questions") { event.preventDefault(); move(steps[event.key]); }
    else if ((event.key === "j" || event.key === "k") && shownView === "question") move(steps[event.key]);
    else if (event.key in sideways && shownView === "question" && !event.target.matches(".lists, .lists *, input")) move(sideways[event.key]);
    else if (event.key === "/" && about) { event.preventDefault(); if (shownView !== "questions") go({ view: "questions", id: null }); setTimeout(() => $("search")?.focus(), 50); }
    else if (event.key === "?") toggleKeys();
  }
  function escape() {
    if (!$("shortcuts").hidden) return toggleKeys();
    if (shownView === "question") go({ view: "questions", id: null, beside: null, deep: null, outcomes: null });
    else if (shownView === "questions") location.hash = "";
  }
  function toggleKeys() {
    $("shortcuts").hidden = !$("shortcuts").hidden;
    $("keys").setAttribute("aria-expanded", String(!$("shortcuts").hidden));
  }

  async function start() {
    try { const theme = localStorage.getItem("erag-theme"); if (theme) document.documentElement.dataset.theme = theme; } catch { /* as above */ }
    if (typeof DecompressionStream === "undefined") return fail("This browser is too old for the tables and questions of this page: it lacks DecompressionStream.");
    history.scrollRestoration = "manual";
    const data = await unpack($("data").textContent);
    fillReport(data);
    if (data.questions) prepareQuestions(data.questions); else $("to-questions").hidden = true;
    addEventListener("scroll", () => scrolls.set(shownHash, scrollY), { passive: true });
    addEventListener("popstate", () => { goesBack = true; });
    addEventListener("hashchange", route);
    addEventListener("keydown", onKey);
    addEventListener("beforeprint", () => { if (shownView === "report") fillAll(); });
    prefersDark.addEventListener("change", drawTheme);
    $("theme").addEventListener("click", toggleTheme);
    $("print").addEventListener("click", printWhole);
    $("keys").addEventListener("click", toggleKeys);
    document.querySelector(".skip").addEventListener("click", event => { event.preventDefault(); $("main").focus(); });
    drawTheme();
    await route();
  }
  start().catch(error => fail(`This page cannot be shown: ${error.message}`));
})();
