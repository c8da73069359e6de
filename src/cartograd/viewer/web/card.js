// The card of one row: its picture, its text, its columns. Everything is a text node.

const LONGEST_TEXT = 600;
const LONGEST_VALUE = 160;
const MOST_COLUMNS = 14;

class Card {
  constructor(app) {
    this.app = app;
    this.element = document.getElementById("card");
    this.ring = document.getElementById("ring");
    this.picture = document.getElementById("picture");
    this.text = document.getElementById("card-text");
    this.list = document.getElementById("card-columns");
    this.heading = document.getElementById("card-row");
    this.row = -1;
    this.pinned = false;
    document.getElementById("card-close").addEventListener("click", () => this.hide());
  }

  show(row, pinned = false) {
    if (row !== this.row) {
      this.row = row;
      this.fill(row);
    }
    this.pinned = pinned;
    this.element.hidden = false;
    this.ring.hidden = false;
    this.element.classList.toggle("pinned", pinned);
    this.place();
  }

  hide() {
    this.row = -1;
    this.pinned = false;
    this.element.hidden = true;
    this.ring.hidden = true;
  }

  fill(row) {
    const { data, coloring } = this.app;
    this.heading.textContent = `Row ${row.toLocaleString("en-US")}`;
    this.drawPicture(row);
    const heading = data.text === null ? "" : data.columns[data.text].text(row);
    this.text.textContent = shortened(heading, LONGEST_TEXT);
    this.text.hidden = heading === "";
    this.list.replaceChildren();
    const others = data.columns.filter((column, index) => index !== data.text);
    for (const column of others.slice(0, MOST_COLUMNS)) this.addColumn(column, row, coloring);
    if (others.length > MOST_COLUMNS) this.addLine(`and ${others.length - MOST_COLUMNS} more`, "");
    this.list.hidden = others.length === 0;
    this.ring.style.borderColor = coloring.pointHex(row);
  }

  addColumn(column, row, coloring) {
    const value = this.addLine(shortened(column.name, 40), shortened(column.text(row), LONGEST_VALUE) || "–");
    if (column !== coloring.column) return;
    const swatch = document.createElement("i");
    swatch.style.backgroundColor = coloring.pointHex(row);
    value.prepend(swatch);
  }

  addLine(name, text) {
    const [term, value] = [document.createElement("dt"), document.createElement("dd")];
    term.dir = value.dir = "auto";
    term.textContent = name;
    value.textContent = text;
    this.list.append(term, value);
    return value;
  }

  drawPicture(row) {
    const { images } = this.app.data;
    this.picture.hidden = !images;
    if (!images) return;
    const { width, height, channels, pixels } = images;
    Object.assign(this.picture, { width, height });
    const context = this.picture.getContext("2d");
    const image = context.createImageData(width, height);
    const start = row * width * height * channels;
    for (let p = 0; p < width * height; p++) {
      for (let part = 0; part < 3; part++) image.data[p * 4 + part] = pixels[start + p * channels + (channels === 1 ? 0 : part)];
      image.data[p * 4 + 3] = channels === 4 ? pixels[start + p * 4 + 3] : 255;
    }
    context.putImageData(image, 0, 0);
    this.picture.classList.toggle("coarse", Math.max(width, height) < 64);
  }

  /** Beside its point, inside the window; on a phone the style docks it below instead. */
  place() {
    if (this.row < 0) return;
    const { camera } = this.app;
    const [left, top] = this.app.screenOf(this.row);
    this.ring.style.transform = `translate(${left.toFixed(1)}px, ${top.toFixed(1)}px) translate(-50%, -50%)`;
    const size = this.app.pointSize + 8;
    this.ring.style.width = this.ring.style.height = `${size}px`;
    const [width, height] = [this.element.offsetWidth, this.element.offsetHeight];
    const right = left + 18 + width < camera.width ? left + 18 : left - 18 - width;
    const down = clamp(top - 24, 10, Math.max(10, camera.height - height - 10));
    this.element.style.transform = `translate(${Math.max(10, right).toFixed(1)}px, ${down.toFixed(1)}px)`;
  }
}
