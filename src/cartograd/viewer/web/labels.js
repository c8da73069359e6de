// The names of categories on the map, each at its densest place; the larger ones first, none over another.

const MOST_NAMES = 60;
const MOST_CONSIDERED = 300;

class Labels {
  constructor(host) {
    this.host = host;
    this.entries = [];
    this.shown = true;
  }

  /** Take the names of a column of categories, or none. */
  use(column, width) {
    this.host.replaceChildren();
    this.entries = [];
    if (!column?.places) return;
    const codes = [...column.counts.keys()].slice(0, column.names.length);
    codes.sort((a, b) => column.counts[b] - column.counts[a]);
    for (const code of codes.slice(0, MOST_CONSIDERED)) {
      const place = column.places.subarray(code * width, (code + 1) * width);
      if (!column.counts[code] || Number.isNaN(place[0]) || code === column.info.unlabelled) continue;
      this.entries.push(this.entry(code, column.names.at(code), place));
    }
    for (const entry of this.entries) {
      entry.halfWidth = entry.element.offsetWidth / 2 + 4;
      entry.halfHeight = entry.element.offsetHeight / 2 + 1;
    }
  }

  entry(code, name, place) {
    const element = document.createElement("span");
    element.dir = "auto";
    element.textContent = shortened(name, 40);
    this.host.append(element);
    return { code, place, element };
  }

  /** Put the names where they belong in this view. */
  place(camera, coloring, follows) {
    const taken = [];
    const { turn } = camera;
    for (const entry of this.entries) {
      const [x, y, z = 0] = entry.place;
      const [left, top] = camera.toScreen(turn[0] * x + turn[1] * y + turn[2] * z, turn[3] * x + turn[4] * y + turn[5] * z);
      const hidden = !this.shown || (follows && coloring.hidden.has(entry.code)) || taken.length >= MOST_NAMES;
      const inside = left > 0 && top > 0 && left < camera.width && top < camera.height;
      const free = !hidden && inside && !taken.some((other) => overlap(other, entry, left, top));
      entry.element.classList.toggle("away", !free);
      if (!free) continue;
      taken.push({ left, top, halfWidth: entry.halfWidth, halfHeight: entry.halfHeight });
      entry.element.style.transform = `translate(${left.toFixed(1)}px, ${top.toFixed(1)}px) translate(-50%, -50%)`;
    }
  }
}

function overlap(other, entry, left, top) {
  return Math.abs(other.left - left) < other.halfWidth + entry.halfWidth && Math.abs(other.top - top) < other.halfHeight + entry.halfHeight;
}

function shortened(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
