// Drawing without WebGL2: discs stamped into an image. Slower, the same picture but for the density.

class CanvasRenderer {
  constructor(canvas, data, order) {
    this.context = canvas.getContext("2d");
    if (!this.context) throw new Error("This browser draws neither with WebGL2 nor on a canvas.");
    Object.assign(this, { canvas, data, order, progressive: true });
    this.values = new Float32Array(data.count);
    this.marks = new Uint8Array(data.count);
    this.table = new Uint8Array([128, 128, 128, 255]);
  }

  setValues(values) {
    this.values = values;
  }

  setMarks(marks) {
    this.marks = marks;
  }

  setTable(table) {
    this.table = table;
  }

  draw(frame) {
    const { width, height } = this.canvas;
    const image = this.context.createImageData(width, height);
    const ground = frame.ground.map((channel) => Math.round(channel * 255));
    new Uint32Array(image.data.buffer).fill((255 << 24) | (ground[2] << 16) | (ground[1] << 8) | ground[0]);
    const count = Math.min(this.data.count, frame.budget);
    const opacity = clamp(3 / frame.peak, 0.15, 0.92);
    if (frame.filtered) {
      this.drawLayer(image, frame, count, { layer: 1, size: frame.size, opacity: opacity * 0.18 });
      this.drawLayer(image, frame, this.data.count, { layer: 2, size: frame.size * 1.3, opacity: 0.92 });
    } else {
      this.drawLayer(image, frame, count, { layer: 0, size: frame.size, opacity });
    }
    this.context.putImageData(image, 0, 0);
  }

  isDone() {
    return true;
  }

  drawLayer(image, frame, count, { layer, size, opacity }) {
    const { width, height } = image;
    const stamp = discStamp(size, opacity);
    const [shiftX, shiftY] = [width / 2 - frame.x * frame.scale, height / 2 + frame.y * frame.scale];
    for (let k = 0; k < count; k++) {
      const i = this.order[k];
      if (layer && (layer === 2) !== this.isInFront(i, frame)) continue;
      const left = Math.round(frame.plane[i * 2] * frame.scale + shiftX - stamp.side / 2);
      const top = Math.round(shiftY - frame.plane[i * 2 + 1] * frame.scale - stamp.side / 2);
      if (left < 0 || top < 0 || left + stamp.side > width || top + stamp.side > height) continue;
      const slot = this.slotOf(i, frame);
      const hidden = slot < 0 ? frame.missing[3] < 0.5 : this.table[slot * 4 + 3] === 0;
      if (!hidden) this.blend(image, left, top, stamp, slot, frame);
    }
  }

  isInFront(i, frame) {
    const marked = !frame.useMarks || this.marks[i] > 0;
    return marked && (frame.focus < 0 || (!frame.isScale && this.values[i] === frame.focus));
  }

  slotOf(i, frame) {
    const value = this.values[i];
    return frame.isScale && value >= 0 ? Math.round(value * 255) : value;
  }

  blend(image, left, top, stamp, slot, frame) {
    const at = slot * 4;
    const red = slot < 0 ? frame.missing[0] * 255 : this.table[at];
    const green = slot < 0 ? frame.missing[1] * 255 : this.table[at + 1];
    const blue = slot < 0 ? frame.missing[2] * 255 : this.table[at + 2];
    const pixels = image.data;
    for (let y = 0, s = 0; y < stamp.side; y++) {
      for (let x = 0, p = ((top + y) * image.width + left) * 4; x < stamp.side; x++, s++, p += 4) {
        const alpha = stamp.cover[s];
        pixels[p] += (red - pixels[p]) * alpha;
        pixels[p + 1] += (green - pixels[p + 1]) * alpha;
        pixels[p + 2] += (blue - pixels[p + 2]) * alpha;
      }
    }
  }
}

/** How much of each pixel a disc covers, times its opacity. */
function discStamp(size, opacity) {
  const side = Math.max(1, Math.ceil(size));
  const cover = new Float32Array(side * side);
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      const distance = Math.hypot(x + 0.5 - side / 2, y + 0.5 - side / 2);
      cover[y * side + x] = clamp(size / 2 - distance + 0.5, 0, 1) * opacity;
    }
  }
  return { side, cover };
}

/** The best renderer this browser has. */
function makeRenderer(canvas, data, order) {
  try {
    return new GlRenderer(canvas, data, order);
  } catch (error) {
    if (error.message !== "no WebGL2") throw error;
    return new CanvasRenderer(canvas, data, order);
  }
}
