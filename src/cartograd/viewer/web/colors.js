// From a column to colours: slots of a small table, so that a change of legend touches no point.

const SCALE_STEPS = 256;

function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function cssColor(hex) {
  return rgb(hex).map((channel) => channel / 255);
}

/** The colour of the page's style with this name, as three numbers in [0, 1]. */
function themeColor(name) {
  return cssColor(getComputedStyle(document.documentElement).getPropertyValue(name).trim());
}

/** RGBA of 256 steps from low to high, mixed between the given stops. */
function scaleTable(stops) {
  const table = new Uint8Array(SCALE_STEPS * 4);
  const colors = stops.map(rgb);
  for (let step = 0; step < SCALE_STEPS; step++) {
    const place = (step / (SCALE_STEPS - 1)) * (colors.length - 1);
    const before = Math.min(Math.floor(place), colors.length - 2);
    for (let channel = 0; channel < 3; channel++) {
      const [from, to] = [colors[before][channel], colors[before + 1][channel]];
      table[step * 4 + channel] = Math.round(from + (to - from) * (place - before));
    }
    table[step * 4 + 3] = 255;
  }
  return table;
}

/** How the points are coloured now: each point's slot or share of the scale, and the table they look into. */
class Coloring {
  constructor(data, column) {
    this.data = data;
    this.column = column;
    this.isScale = column !== null && !column.isCoded;
    this.hidden = new Set();
    this.missingHidden = false;
    this.slots = column === null ? 1 : this.isScale ? SCALE_STEPS : Math.max(1, column.names.length);
    this.values = this.pointValues();
    this.missing = column === null ? 0 : this.values.reduce((sum, value) => sum + (value < 0), 0);
  }

  /** Slot of each point, or its place in [0, 1] on the scale; -1 has no value. */
  pointValues() {
    const { data, column } = this;
    const values = new Float32Array(data.count);
    if (column === null) return values;
    if (!this.isScale) {
      for (let i = 0; i < values.length; i++) values[i] = column.isMissing(i) ? -1 : column.values[i];
      return values;
    }
    const { low, high } = column.info;
    const factor = high > low ? 1 / (high - low) : 0;
    for (let i = 0; i < values.length; i++) {
      const value = column.values[i];
      values[i] = Number.isNaN(value) ? -1 : Math.min(1, Math.max(0, factor ? (value - low) * factor : 0.5));
    }
    return values;
  }

  hex(slot) {
    // the category that stands for none, if there is one, is the first; it is grey and takes no colour of the palette
    const unlabelled = this.column?.info.unlabelled ?? -1;
    if (slot <= unlabelled || slot < 0) return this.data.missing;
    return this.data.palette[(slot - unlabelled - 1) % this.data.palette.length];
  }

  /** RGBA of every slot; alpha 0 is a slot whose points are not shown. */
  table() {
    if (this.isScale) return scaleTable(this.data.scale);
    const table = new Uint8Array(this.slots * 4);
    for (let slot = 0; slot < this.slots; slot++) {
      table.set(rgb(this.hex(slot)), slot * 4);
      table[slot * 4 + 3] = this.hidden.has(slot) ? 0 : 255;
    }
    return table;
  }

  isShown(row) {
    const value = this.values[row];
    if (value < 0) return !this.missingHidden;
    return this.isScale || this.hidden.size === 0 || !this.hidden.has(value);
  }

  /** The colour of one point, for its card. */
  pointHex(row) {
    const value = this.values[row];
    if (value < 0 || !this.isScale) return this.hex(value);
    const step = Math.round(value * (SCALE_STEPS - 1)) * 4;
    const table = scaleTable(this.data.scale);
    return `#${[0, 1, 2].map((channel) => table[step + channel].toString(16).padStart(2, "0")).join("")}`;
  }
}
