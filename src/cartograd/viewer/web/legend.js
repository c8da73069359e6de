// The legend: what the colours mean. Categories can be hidden, or shown alone; numbers have a scale.

const MOST_ENTRIES = 300;

class Legend {
  /** `app` is told when something was hidden or shown. */
  constructor(app) {
    this.app = app;
    this.select = document.getElementById("color");
    this.list = document.getElementById("categories");
    this.scale = document.getElementById("scale");
    this.all = document.getElementById("show-all");
    this.select.addEventListener("change", () => app.colorBy(Number(this.select.value)));
    this.all.addEventListener("click", () => this.showAll());
    this.fillSelect();
  }

  fillSelect() {
    const { columns } = this.app.data;
    const choices = columns.map((column, index) => [column, index]).filter(([column]) => column.isColorable);
    for (const [name, value] of [["One colour", -1], ...choices.map(([column, index]) => [column.name, index])]) {
      const option = document.createElement("option");
      option.value = value;
      option.textContent = shortened(name, 60);
      this.select.append(option);
    }
    document.getElementById("color-field").hidden = choices.length === 0;
  }

  show(coloring, index) {
    this.coloring = coloring;
    this.select.value = index;
    this.list.replaceChildren();
    const { column } = coloring;
    this.scale.hidden = !coloring.isScale;
    this.list.hidden = column === null || coloring.isScale;
    if (coloring.isScale) this.showScale(column);
    if (column !== null) this.showCategories(coloring);
    this.update();
  }

  showScale(column) {
    const { low, high, least, most } = column.info;
    document.getElementById("low").textContent = `${least < low ? "≤ " : ""}${column.valueText(low)}`;
    document.getElementById("high").textContent = `${most > high ? "≥ " : ""}${column.valueText(high)}`;
    const strip = document.getElementById("strip").getContext("2d");
    const image = strip.createImageData(SCALE_STEPS, 1);
    image.data.set(scaleTable(this.app.data.scale));
    strip.putImageData(image, 0, 0);
  }

  showCategories(coloring) {
    const { column } = coloring;
    this.buttons = new Map();
    if (!coloring.isScale) {
      let codes = [...Array(column.names.length).keys()];
      if (codes.length > 30) codes.sort((a, b) => column.counts[b] - column.counts[a]);
      for (const code of codes.slice(0, MOST_ENTRIES)) this.list.append(this.entry(code, column.names.at(code), column.counts[code]));
      if (codes.length > MOST_ENTRIES) this.list.append(this.note(`and ${(codes.length - MOST_ENTRIES).toLocaleString("en-US")} more`));
    }
    if (coloring.missing) {
      this.list.hidden = false;
      this.list.append(this.entry(-1, "no value", coloring.missing));
    }
  }

  note(text) {
    const item = document.createElement("li");
    item.className = "note";
    item.textContent = text;
    return item;
  }

  entry(code, name, count) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    const [swatch, label, number] = ["i", "span", "small"].map((tag) => document.createElement(tag));
    button.type = "button";
    swatch.style.backgroundColor = this.coloring.hex(code);
    label.dir = "auto";
    label.textContent = shortened(name, 200) || "(empty)";
    number.textContent = count.toLocaleString("en-US");
    button.title = "Click to hide or show, double-click to show it alone";
    button.append(swatch, label, number);
    button.addEventListener("click", (event) => (event.altKey ? this.showAlone(code) : this.toggle(code)));
    button.addEventListener("dblclick", () => this.showAlone(code));
    for (const [event, focus] of [["pointerenter", code], ["pointerleave", -1], ["focus", code], ["blur", -1]]) {
      button.addEventListener(event, (given) => this.focus(given, focus));
    }
    item.append(button);
    this.buttons.set(code, button);
    return item;
  }

  /** Bring one category to the front while it is pointed at; touch has no pointing. */
  focus(event, code) {
    if (event.pointerType === "touch" || (event.type === "focus" && !event.target.matches(":focus-visible"))) return;
    this.app.focusOn(code >= 0 && this.isShown(code) ? code : -1);
  }

  isShown(code) {
    return code < 0 ? !this.coloring.missingHidden : !this.coloring.hidden.has(code);
  }

  setShown(code, shown) {
    if (code < 0) this.coloring.missingHidden = !shown;
    else if (shown) this.coloring.hidden.delete(code);
    else this.coloring.hidden.add(code);
  }

  toggle(code) {
    this.setShown(code, !this.isShown(code));
    this.changed();
  }

  showAlone(code) {
    for (let other = 0; other < this.coloring.slots; other++) this.setShown(other, other === code);
    this.coloring.missingHidden = code !== -1;
    this.changed();
  }

  showAll() {
    this.coloring.hidden.clear();
    this.coloring.missingHidden = false;
    this.changed();
  }

  changed() {
    this.app.focusOn(-1);
    this.update();
    this.app.legendChanged();
  }

  update() {
    for (const [code, button] of this.buttons ?? []) button.setAttribute("aria-pressed", String(this.isShown(code)));
    this.all.hidden = this.coloring.hidden.size === 0 && !this.coloring.missingHidden;
  }
}
