// The lasso: a line drawn around points selects those that are shown inside it.

/** Whether a point is inside a closed line, by the even-odd rule. */
function isInside(line, x, y) {
  let inside = false;
  for (let i = 0, j = line.length - 1; i < line.length; j = i++) {
    const [[xi, yi], [xj, yj]] = [line[i], line[j]];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) inside = !inside;
  }
  return inside;
}

class Lasso {
  constructor(app) {
    this.app = app;
    this.path = document.getElementById("lasso-line");
    this.button = document.getElementById("lasso");
    this.bar = document.getElementById("selection");
    this.count = document.getElementById("selected");
    this.active = false;
    this.line = [];
    this.button.addEventListener("click", () => this.setActive(!this.active));
    document.getElementById("export").addEventListener("click", () => this.save());
    document.getElementById("clear").addEventListener("click", () => this.app.select(null));
  }

  setActive(active) {
    this.active = active;
    this.button.setAttribute("aria-pressed", String(active));
    this.app.canvas.classList.toggle("lasso", active);
  }

  begin(left, top) {
    this.line = [[left, top]];
  }

  extend(left, top) {
    const [lastLeft, lastTop] = this.line.at(-1);
    if (Math.hypot(left - lastLeft, top - lastTop) < 2) return;
    this.line.push([left, top]);
    this.path.setAttribute("d", `M${this.line.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}Z`);
  }

  end() {
    const line = this.line.map(([left, top]) => this.app.camera.toPlane(left, top));
    this.cancel();
    this.setActive(false);
    if (line.length > 2) this.app.select(this.rowsInside(line));
  }

  cancel() {
    this.line = [];
    this.path.setAttribute("d", "");
  }

  rowsInside(line) {
    const { grid, matches } = this.app;
    const flat = new Float32Array(line.flat());
    const box = boxOf(flat);
    const rows = [];
    grid.within(box.left, box.bottom, box.right, box.top, (i) => {
      const wanted = this.app.isShown(i) && (!matches || matches[i]);
      if (wanted && isInside(line, grid.plane[i * 2], grid.plane[i * 2 + 1])) rows.push(i);
    });
    return Uint32Array.from(rows).sort();
  }

  show(rows) {
    this.bar.hidden = rows === null;
    if (rows) this.count.textContent = `${rows.length.toLocaleString("en-US")} selected`;
  }

  save() {
    const name = `${(this.app.data.title || "map").replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60)}-selection.csv`;
    saveText(name, csvLines(this.app.data, this.app.selected));
  }
}
