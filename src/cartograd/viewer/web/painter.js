// When to draw and how: on demand, points sized by their number and the zoom, fewer of them while a slow machine moves.

const LEAST_BUDGET = 20000;
const STILL_AFTER = 140;
const FRAMES_TO_SCREEN = 2;

/** The order of drawing: a fixed shuffle, so that its first points are a fair sample of all. */
function shuffled(count) {
  const order = new Uint32Array(count);
  let state = 12345;
  for (let i = 0; i < count; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const at = Math.floor((state / 4294967296) * (i + 1));
    order[i] = order[at];
    order[at] = i;
  }
  return order;
}

function smoothstep(low, high, value) {
  const t = clamp((value - low) / (high - low), 0, 1);
  return t * t * (3 - 2 * t);
}

class Painter {
  constructor(app, canvas, data) {
    Object.assign(this, { app, canvas, data, sizeFactor: 1, budget: Infinity, waiting: false, lastMove: -1e9, moved: false, drawn: false });
    this.renderer = makeRenderer(canvas, data, shuffled(data.count));
    canvas.addEventListener("webglcontextlost", (event) => {
      event.preventDefault();
      this.drawn = false;
      document.body.classList.replace("presented", "lost");
    });
    canvas.addEventListener("webglcontextrestored", () => {
      document.body.classList.remove("lost");
      this.renderer.build();
      this.app.uploadAll();
    });
  }

  get pixelRatio() {
    return this.renderer instanceof GlRenderer ? Math.min(window.devicePixelRatio || 1, 2) : 1;
  }

  /** The diameter of a point in CSS pixels; it grows with the zoom, more slowly than the distances do. */
  get pointSize() {
    const { zoom, width, height } = this.app.camera;
    const room = clamp(Math.sqrt(Math.min(width, height) / 800), 0.7, 1.2);
    const plain = this.data.pointSize ?? clamp(9 * (1000 / this.data.count) ** 0.25, 1.5, 9) * room;
    const growth = zoom > 1 ? Math.min(zoom ** 0.4, 4) : zoom ** 0.5;
    return Math.min(plain * growth * this.sizeFactor, Math.max(plain * this.sizeFactor, 26));
  }

  /** Fit the canvas to its place; true if that cleared it, which setting a size does even where the size is the same. */
  resize(width, height) {
    const { canvas, pixelRatio } = this;
    const [wide, high] = [width, height].map((side) => Math.max(1, Math.round(side * pixelRatio)));
    if (canvas.width === wide && canvas.height === high) return false;
    Object.assign(canvas, { width: wide, height: high });
    return true;
  }

  /** Ask for a frame; `moving` says that more will follow at once. */
  request(moving = false) {
    if (moving) [this.lastMove, this.moved] = [performance.now(), true];
    if (this.waiting) return;
    this.waiting = true;
    const asked = performance.now();
    requestAnimationFrame(() => {
      this.waiting = false;
      this.frame(performance.now() - asked);
    });
  }

  /** `waited` is how long the browser took to grant the frame, in milliseconds: long, if the last one kept it busy. */
  frame(waited = 0) {
    const moving = this.moved || performance.now() - this.lastMove < STILL_AFTER;
    this.moved = false;
    if (moving) this.learnBudget(waited);
    this.app.beforeFrame();
    this.renderer.draw(this.frameState(moving ? this.budget : Infinity));
    if (!this.drawn) this.present();
    clearTimeout(this.timer);
    if (moving) this.timer = setTimeout(() => this.request(), STILL_AFTER + 20);
  }

  /** Take the poster away once the first frame is on the screen: it is drawn, and the browser has put two together since. */
  present(left = FRAMES_TO_SCREEN) {
    this.drawn = true;
    requestAnimationFrame(() => {
      if (!this.drawn) return; // the graphics card was lost meanwhile
      if (left > 0) this.present(this.renderer.isDone() ? left - 1 : FRAMES_TO_SCREEN);
      else document.body.classList.add("presented");
    });
  }

  /** Frames slower than 30 a second: draw fewer points until the movement ends; faster than 50: more again. */
  learnBudget(milliseconds) {
    const { count } = this.data;
    if (milliseconds > 33) this.budget = Math.max(Math.min(LEAST_BUDGET, count), Math.min(this.budget, count) * 0.6);
    else if (milliseconds < 20) this.budget = Math.min(this.budget * 1.15, count);
  }

  frameState(budget) {
    const { app, pixelRatio } = this;
    const { camera, coloring } = app;
    const size = this.pointSize * pixelRatio;
    const scale = camera.scale * pixelRatio;
    const peak = (app.crowding * Math.PI * size * size) / 4 / (scale * scale);
    const missing = [...cssColor(this.data.missing), coloring.missingHidden ? 0 : 1];
    return {
      x: camera.x, y: camera.y, scale, size, peak, budget, missing,
      turn: camera.turn,
      crisp: 1 - smoothstep(4, 12, peak),
      ground: themeColor("--ground"),
      isScale: coloring.isScale,
      useMarks: app.marks !== null,
      marked: app.focus >= 0 ? -1 : app.markedCount,
      focus: app.focus,
      filtered: app.marks !== null || app.focus >= 0,
      plane: this.renderer instanceof CanvasRenderer ? app.plane : null,
    };
  }
}
