// The page: the data, the view, and the parts that change them.

const announced = document.getElementById("status");

class App {
  constructor(data) {
    this.data = data;
    this.canvas = document.getElementById("map");
    this.camera = new Camera();
    this.focus = -1;
    this.matches = null;
    this.selected = null;
    this.marks = null;
    this.markedCount = 0;
    this.atFit = true;
    this.themeChosen = false;
    this.painter = new Painter(this, this.canvas, data);
    this.coloring = new Coloring(data, null);
    this.crowding = this.grid.crowding;
    this.labels = new Labels(document.getElementById("labels"));
    this.legend = new Legend(this);
    this.card = new Card(this);
    this.search = new Search(this);
    this.lasso = new Lasso(this);
    this.link = new Link(this);
    this.listen();
    this.describe();
    this.resize();
    this.colorBy(data.color ?? -1);
    this.fit({ at: "once" });
    this.link.restore();
  }

  describe() {
    const { data } = this;
    const count = `${data.count.toLocaleString("en-US")} ${data.count === 1 ? "point" : "points"}`;
    const title = document.getElementById("title");
    title.textContent = data.title;
    title.hidden = data.title === "";
    document.getElementById("count").textContent = count;
    this.canvas.setAttribute("aria-label", `Map of ${count}. Arrow keys move, plus and minus zoom, Enter describes the point in the middle, question mark lists all keys.`);
    for (const element of document.querySelectorAll("[data-dimensions]")) element.hidden = !element.dataset.dimensions.includes(data.dimensions);
  }

  listen() {
    const on = (id, event, action) => document.getElementById(id).addEventListener(event, action);
    new ResizeObserver(() => this.resize()).observe(document.getElementById("stage"));
    new Gestures(this);
    listenToKeys(this);
    on("fit", "click", () => this.fit());
    on("theme", "click", () => this.setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark", true));
    on("help-open", "click", () => document.getElementById("help").showModal());
    on("panel-toggle", "click", () => this.togglePanel());
    on("size", "input", (event) => {
      this.painter.sizeFactor = 2 ** Number(event.target.value);
      this.changed();
    });
    on("names", "change", (event) => {
      this.labels.shown = event.target.checked;
      this.changed();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
      if (!this.themeChosen) this.setTheme(event.matches ? "dark" : "light", false);
    });
    if (this.isNarrow) this.togglePanel(false);
  }

  get isNarrow() {
    return window.innerWidth < 720;
  }

  /** The points as they are seen now; of three dimensions after the turn. */
  get plane() {
    const key = this.camera.turn.join();
    if (this.planeKey !== key) [this.planeKey, this.planeFound] = [key, planeOf(this.data, this.camera.turn)];
    return this.planeFound;
  }

  get grid() {
    if (this.gridPlane !== this.plane) [this.gridPlane, this.gridFound] = [this.plane, new Grid(this.plane)];
    return this.gridFound;
  }

  get pointSize() {
    return this.painter.pointSize;
  }

  screenOf(row) {
    const { units, width } = this.data;
    const { turn } = this.camera;
    const [x, y] = [units[row * width], units[row * width + 1]];
    const z = width === 3 ? units[row * width + 2] : 0;
    return this.camera.toScreen(turn[0] * x + turn[1] * y + turn[2] * z, turn[3] * x + turn[4] * y + turn[5] * z);
  }

  // ---- what is drawn

  changed(moving = false) {
    this.painter.request(moving);
  }

  beforeFrame() {
    this.labels.place(this.camera, this.coloring, this.labelColumn === this.coloring.column);
    this.card.place();
  }

  uploadAll() {
    this.painter.renderer.setValues(this.coloring.values);
    this.painter.renderer.setTable(this.coloring.table());
    if (this.marks) this.painter.renderer.setMarks(this.marks);
    this.changed();
  }

  colorBy(index) {
    const column = this.data.columns[index]?.isColorable ? this.data.columns[index] : null;
    this.coloring = new Coloring(this.data, column);
    this.focus = -1;
    const named = this.data.label === null ? column : this.data.columns[this.data.label];
    if (named !== this.labelColumn) this.labels.use(named, this.data.width);
    this.labelColumn = named;
    document.getElementById("names-field").hidden = !named?.places;
    this.legend.show(this.coloring, column ? index : -1);
    document.body.classList.toggle("recolored", index !== (this.data.color ?? -1)); // not as the poster is
    this.uploadAll();
    this.card.hide();
    this.link.keep();
  }

  legendChanged() {
    this.painter.renderer.setTable(this.coloring.table());
    this.changed();
  }

  focusOn(slot) {
    if (slot === this.focus) return;
    this.focus = slot;
    this.changed();
  }

  setTheme(theme, chosen) {
    document.documentElement.dataset.theme = theme;
    this.themeChosen ||= chosen;
    if (chosen) this.link.keep();
    this.changed();
  }

  togglePanel(open = document.getElementById("panel").hidden) {
    document.getElementById("panel").hidden = !open;
    document.getElementById("panel-toggle").setAttribute("aria-expanded", String(open));
    if (this.atFit && !this.isNarrow) this.resize();
  }

  // ---- where the reader looks

  /** The part of the screen that panels cover. */
  get covered() {
    const panel = document.getElementById("panel");
    const beside = !panel.hidden && !this.isNarrow ? this.camera.width - panel.getBoundingClientRect().left : 0;
    return { left: 28, right: Math.max(28, beside + 20), top: this.isNarrow ? 112 : 84, bottom: this.isNarrow ? 40 : 32 };
  }

  get wholeBox() {
    if (this.data.width === 2) return this.grid.box;
    this.radius ??= Math.sqrt(this.data.units.reduce((most, value, at, units) => (at % 3 ? most : Math.max(most, value ** 2 + units[at + 1] ** 2 + units[at + 2] ** 2)), 1e-12));
    return { left: -this.radius, right: this.radius, bottom: -this.radius, top: this.radius };
  }

  resize() {
    const stage = document.getElementById("stage");
    Object.assign(this.camera, { width: stage.clientWidth || 1, height: stage.clientHeight || 1, fitted: 1 });
    this.camera.fitted = this.camera.viewOf(this.wholeBox, this.covered).zoom;
    const cleared = this.painter.resize(this.camera.width, this.camera.height);
    if (this.atFit) Object.assign(this.camera, this.camera.viewOf(this.wholeBox, this.covered));
    // a canvas that was cleared is painted before the browser shows it
    if (cleared && this.painter.drawn) this.painter.frame();
    else this.changed();
  }

  look(view) {
    cancelAnimationFrame(this.gliding);
    this.atFit = false;
    Object.assign(this.camera, view);
    this.link.keep();
    this.changed(true);
  }

  /** Go to a view in a quarter of a second; at once for readers who want no motion. */
  glide(view, after = () => {}) {
    const from = { x: this.camera.x, y: this.camera.y, zoom: this.camera.zoom };
    const began = performance.now();
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const step = (now) => {
      const t = still ? 1 : smoothstep(0, 260, now - began);
      const zoom = from.zoom * (view.zoom / from.zoom) ** t;
      // the centre moves with the scale, so that the target does not swing out of the picture
      const share = Math.abs(view.zoom / from.zoom - 1) < 1e-6 ? t : (1 / zoom - 1 / from.zoom) / (1 / view.zoom - 1 / from.zoom);
      this.look({ x: from.x + (view.x - from.x) * share, y: from.y + (view.y - from.y) * share, zoom });
      if (t < 1) this.gliding = requestAnimationFrame(step);
      else after();
    };
    step(began);
  }

  fit({ at = "leisure" } = {}) {
    const view = this.camera.viewOf(this.wholeBox, this.covered);
    if (at === "leisure") return this.glide(view, () => (this.atFit = true));
    Object.assign(this.camera, view);
    this.atFit = true;
    this.changed();
  }

  panBy(right, down) {
    this.camera.pan(right, down);
    this.look({});
  }

  turnBy(right, down) {
    this.camera.rotate(right, down);
    this.look({});
  }

  zoomBy(factor, left, top) {
    this.camera.zoomAbout(factor, left, top);
    this.look({});
    if (this.hovered) this.hoverAt(this.hovered);
  }

  // ---- rows

  isShown(row) {
    return this.coloring.isShown(row);
  }

  rowAt(left, top) {
    const [x, y] = this.camera.toPlane(left, top);
    const reach = Math.max(10, this.pointSize / 2 + 4) / this.camera.scale;
    return this.grid.nearest(x, y, reach, (row) => this.isShown(row));
  }

  /** Remember where the mouse is, and look what is there once a frame; the points need not be drawn for it. */
  hoverAt(place) {
    this.hovered = place;
    if (this.hoverPending) return;
    this.hoverPending = true;
    requestAnimationFrame(() => this.hoverNow());
  }

  hoverNow() {
    this.hoverPending = false;
    const row = this.hovered ? this.rowAt(this.hovered.left, this.hovered.top) : -1;
    this.canvas.classList.toggle("over", row >= 0);
    if (this.card.pinned) return;
    if (row >= 0) this.card.show(row);
    else this.card.hide();
  }

  pin(row) {
    if (row < 0) return this.card.hide();
    this.card.show(row, true);
    const texts = this.data.columns.slice(0, 6).map((column) => `${column.name}: ${shortened(column.text(row), 80)}`);
    this.announce(`Row ${row}. ${texts.join(", ")}`);
  }

  pinAt(left, top) {
    this.pin(this.rowAt(left, top));
  }

  pinCentre() {
    const [x, y] = [this.camera.width / 2, this.camera.height / 2];
    const [planeX, planeY] = this.camera.toPlane(x, y);
    this.pin(this.grid.nearest(planeX, planeY, this.camera.width / this.camera.scale, (row) => this.isShown(row)));
  }

  /** The next row, or the next one that was found or selected; the map follows it. */
  pinNext(direction) {
    const { count } = this.data;
    let row = this.card.row;
    for (let tried = 0; tried < count; tried++) {
      row = (row + direction + count) % count;
      if (this.isShown(row) && (!this.marks || this.marks[row])) break;
    }
    const [left, top] = this.screenOf(row);
    const outside = left < 0 || top < 0 || left > this.camera.width || top > this.camera.height;
    if (outside) this.panBy(this.camera.width / 2 - left, this.camera.height / 2 - top);
    this.pin(row);
  }

  // ---- search and selection

  matched(matches, count) {
    this.matches = matches;
    if (matches) this.announce(`${count} found`);
    this.mark();
    this.link.keep();
  }

  select(rows) {
    this.selected = rows?.length ? rows : null;
    this.lasso.show(this.selected);
    if (rows) this.announce(`${rows.length} selected`);
    this.mark();
  }

  mark() {
    const { matches, selected } = this;
    this.marks = matches || selected ? new Uint8Array(this.data.count) : null;
    this.markedCount = 0;
    if (selected) for (const row of selected) this.marks[row] = matches ? matches[row] : 1;
    else if (matches) this.marks.set(matches);
    if (this.marks) {
      this.markedCount = this.marks.reduce((sum, mark) => sum + mark, 0);
      this.painter.renderer.setMarks(this.marks);
    }
    this.changed();
  }

  /** Look at what was found or selected. */
  showMarked() {
    if (!this.markedCount) return;
    const rows = Uint32Array.from(this.marks.keys()).filter((row) => this.marks[row]);
    const box = boxOf(this.plane, rows);
    const margin = Math.max(box.right - box.left, box.top - box.bottom, 0.05) * 0.1;
    this.glide(this.camera.viewOf({ left: box.left - margin, right: box.right + margin, bottom: box.bottom - margin, top: box.top + margin }, this.covered));
  }

  escape() {
    if (this.lasso.active) this.lasso.setActive(false);
    else if (this.card.row >= 0) this.card.hide();
    else if (this.selected) this.select(null);
    else if (this.matches) this.search.set("");
  }

  announce(text) {
    announced.textContent = text;
  }
}

async function start() {
  // a moment to paint the page before the data are unpacked
  await new Promise((resolve) => setTimeout(resolve));
  try {
    window.cartograd = new App(await readData());
    document.body.classList.remove("loading");
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    document.getElementById("notice").textContent = `The map cannot be shown: ${error.message}`;
    throw error;
  }
}

start();
