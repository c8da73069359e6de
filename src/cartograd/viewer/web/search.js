// Search: rows in whose texts or categories the words occur. Long tables are gone through a slice at a time.

const SLICE_MILLISECONDS = 12;

function isPlain(text) {
  return /^[\x01-\x7f]*$/.test(text);
}

/** Texts that hold a word of plain letters, found in their bytes: many times faster than text by text. -1: a pause. */
function* plainMatches(strings, wanted) {
  const bytes = strings.lowered;
  const word = new TextEncoder().encode(wanted);
  let [code, tried] = [0, 0];
  for (let at = bytes.indexOf(word[0]); at >= 0; at = bytes.indexOf(word[0], at)) {
    let same = 1;
    while (same < word.length && bytes[at + same] === word[same]) same++;
    while (strings.starts[code + 1] <= at) code++;
    if (same === word.length && at + same <= strings.starts[code + 1]) {
      yield code;
      at = strings.starts[code + 1];
    } else {
      at++;
    }
    if (++tried % 4096 === 0) yield -1;
  }
}

/** Texts that hold any word, text by text. */
function* anyMatches(strings, wanted) {
  for (let code = 0; code < strings.length; code++) {
    if (strings.at(code).toLocaleLowerCase().includes(wanted)) yield code;
    else if (code % 256 === 0) yield -1;
  }
}

class Search {
  constructor(app) {
    this.app = app;
    this.field = document.getElementById("search");
    this.count = document.getElementById("found");
    this.run = 0;
    this.field.addEventListener("input", () => this.later());
    this.field.addEventListener("keydown", (event) => this.keyDown(event));
    document.getElementById("search-form").addEventListener("submit", (event) => event.preventDefault());
    document.getElementById("search-form").hidden = !app.data.columns.some((column) => column.isCoded);
  }

  keyDown(event) {
    if (event.key === "Enter") this.app.showMarked();
    if (event.key === "Escape") {
      this.set("");
      this.app.canvas.focus();
    }
  }

  set(text) {
    this.field.value = text;
    return this.find();
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.find(), 120);
  }

  /** Mark the rows that match; a newer search ends an older one. */
  async find() {
    clearTimeout(this.timer);
    const run = ++this.run;
    const wanted = this.field.value.trim().toLocaleLowerCase();
    if (wanted === "") return this.done(null, 0);
    const { data } = this.app;
    const matches = new Uint8Array(data.count);
    const row = /^#\d+$/.test(wanted) ? Number(wanted.slice(1)) : -1;
    if (row >= 0 && row < data.count) matches[row] = 1;
    for (const column of data.columns.filter((candidate) => candidate.isCoded)) {
      const hits = await this.matchingNames(column, wanted, run);
      if (run !== this.run) return;
      for (let i = 0; i < data.count; i++) matches[i] |= hits[column.values[i]];
    }
    this.done(matches, matches.reduce((sum, match) => sum + match, 0));
  }

  /** Which of a column's distinct texts hold what is wanted, as a 1 for each; pauses so that the page stays alive. */
  async matchingNames(column, wanted, run) {
    const hits = new Uint8Array(column.names.length + 1);
    const search = isPlain(wanted) ? plainMatches(column.names, wanted) : anyMatches(column.names, wanted);
    let started = performance.now();
    for (const code of search) {
      if (code >= 0) hits[code] = 1;
      if (performance.now() - started < SLICE_MILLISECONDS) continue;
      await new Promise((resolve) => setTimeout(resolve));
      if (run !== this.run) return hits;
      started = performance.now();
    }
    return hits;
  }

  done(matches, count) {
    this.count.textContent = matches === null ? "" : `${count.toLocaleString("en-US")} found`;
    this.app.matched(matches, count);
  }
}
