// The view in the address, so that a link keeps it: place, zoom, turn, colour column, search, theme.

class Link {
  constructor(app) {
    this.app = app;
    this.last = "";
    window.addEventListener("hashchange", () => {
      if (location.hash !== this.last) this.restore();
    });
  }

  /** Take over what the address says; anything it does not say, or says wrongly, stays as it is. */
  restore() {
    const said = new URLSearchParams(location.hash.slice(1));
    const { app } = this;
    const number = (key, low, high) => {
      const value = said.has(key) ? Number(said.get(key)) : NaN;
      return Number.isFinite(value) ? clamp(value, low, high) : null;
    };
    if (["light", "dark"].includes(said.get("theme"))) app.setTheme(said.get("theme"), true);
    if (said.has("color")) {
      const index = app.data.columns.findIndex((column) => column.name === said.get("color") && column.isColorable);
      if (index >= 0 || said.get("color") === "") app.colorBy(index);
    }
    const turn = (said.get("turn") ?? "").split(",").map(Number);
    if (app.data.width === 3 && turn.length === 9 && turn.every(Number.isFinite)) app.camera.turn = orthonormal(turn);
    const [x, y, zoom] = [number("x", -3, 3), number("y", -3, 3), number("zoom", SMALLEST_ZOOM, LARGEST_ZOOM)];
    if (x !== null && y !== null && zoom !== null) app.look({ x, y, zoom });
    if (said.has("find")) app.search.set(said.get("find"));
    app.changed();
    return x !== null && y !== null && zoom !== null;
  }

  keep() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), 200);
  }

  write() {
    // a page inside a notebook has no address of its own
    if (!["http:", "https:", "file:"].includes(location.protocol)) return;
    const { app } = this;
    const { camera, coloring } = app;
    const said = new URLSearchParams({ x: camera.x.toFixed(5), y: camera.y.toFixed(5), zoom: camera.zoom.toPrecision(5) });
    if (app.data.width === 3) said.set("turn", camera.turn.map((part) => part.toFixed(4)).join(","));
    if (app.data.columns.length) said.set("color", coloring.column?.name ?? "");
    if (app.search.field.value.trim()) said.set("find", app.search.field.value.trim());
    if (app.themeChosen) said.set("theme", document.documentElement.dataset.theme);
    this.last = `#${said}`;
    history.replaceState(null, "", this.last);
  }
}
