// The data that travel in the page: a JSON header, and blocks that are the base64 of little-endian arrays.

const ARRAYS = {
  float32: Float32Array, float64: Float64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array,
};
const KEPT_DIGITS = { float32: 7, float64: 15 };

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflated(bytes) {
  if (typeof DecompressionStream === "undefined") throw new Error("This browser is too old: it cannot unpack the data.");
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** One block as a typed array. Its element is removed: the text would only take memory from now on. */
async function readBlock(number, type) {
  const element = document.getElementById(`block-${number}`);
  let bytes = fromBase64(element.textContent);
  if (element.dataset.packing === "deflate") bytes = await inflated(bytes);
  element.remove();
  const Kind = ARRAYS[type];
  return new Kind(bytes.buffer, bytes.byteOffset, bytes.byteLength / Kind.BYTES_PER_ELEMENT);
}

/** Many strings in one piece of UTF-8, decoded when they are asked for. */
class Strings {
  constructor(starts, bytes) {
    this.starts = starts;
    this.bytes = bytes;
    this.length = starts.length - 1;
    this.decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  }

  /** All bytes with A to Z made small. */
  get lowered() {
    this.loweredBytes ??= this.bytes.map((byte) => (byte >= 65 && byte <= 90 ? byte + 32 : byte));
    return this.loweredBytes;
  }

  at(index) {
    return this.decoder.decode(this.bytes.subarray(this.starts[index], this.starts[index + 1]));
  }
}

/** A number as a reader wants it: no more digits than mean something. */
function shortNumber(value, digits = 4) {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(Math.max(0, digits - 2)).replace("e+", "e");
  return String(Number(value.toPrecision(digits)));
}

/** A column: codes into `names` (category, text), or numbers (number, time). */
class Column {
  constructor(info, values) {
    Object.assign(this, { name: info.name, kind: info.kind, type: info.type, values, info });
    this.names = null;
    this.counts = null;
    this.places = null;
  }

  get isCoded() {
    return this.names !== null;
  }

  get isColorable() {
    return this.kind !== "text" && !(this.kind !== "category" && this.info.low === null);
  }

  isMissing(row) {
    return this.isCoded ? this.values[row] >= this.names.length : Number.isNaN(this.values[row]);
  }

  /** For the hover card; "" where there is no value. */
  text(row) {
    if (this.isMissing(row)) return "";
    return this.isCoded ? this.names.at(this.values[row]) : this.valueText(this.values[row], 6);
  }

  valueText(value, digits = 4) {
    if (this.kind !== "time") return shortNumber(value, digits);
    const date = new Date(value);
    return Number.isNaN(date.getTime()) ? String(value) : date.toISOString().replace("T00:00:00.000Z", "").replace(".000Z", "Z");
  }

  /** For export: every digit that was stored. */
  exact(row) {
    if (this.isMissing(row)) return "";
    if (this.isCoded) return this.names.at(this.values[row]);
    if (this.kind === "time") return this.valueText(this.values[row]);
    return String(Number(this.values[row].toPrecision(KEPT_DIGITS[this.type])));
  }
}

async function readColumn(info) {
  const column = new Column(info, await readBlock(info.block, info.type));
  if (info.names) column.names = new Strings(await readBlock(info.names.starts, "uint32"), await readBlock(info.names.bytes, "uint8"));
  if (info.counts !== undefined) column.counts = await readBlock(info.counts, "uint32");
  if (info.places !== undefined) column.places = await readBlock(info.places, "float32");
  return column;
}

/** Places in [-1, 1], width numbers a point. */
async function readUnits(info) {
  const stored = await readBlock(info.block, info.type);
  if (info.type === "float32") return stored;
  const units = new Float32Array(stored.length);
  for (let i = 0; i < stored.length; i++) units[i] = stored[i] / 32767.5 - 1;
  return units;
}

async function readData() {
  const header = JSON.parse(document.getElementById("header").textContent);
  const data = { ...header, units: await readUnits(header.coordinates), width: header.coordinates.width, columns: [] };
  for (const info of header.columns) data.columns.push(await readColumn(info));
  if (header.images) data.images = { ...header.images, pixels: await readBlock(header.images.block, "uint8") };
  return data;
}

/** A point's coordinate as it was given. */
function coordinate(data, row, axis) {
  const { offset, factor } = data.coordinates;
  return Number((offset[axis] + factor * data.units[row * data.width + axis]).toPrecision(7));
}
