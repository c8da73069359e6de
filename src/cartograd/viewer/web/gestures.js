// Mouse, touch and wheel: drag to move (or turn), wheel or pinch to zoom, Shift and drag to select, click to pin.

const CLICK_DISTANCE = 5;

class Gestures {
  constructor(app) {
    this.app = app;
    this.pointers = new Map();
    this.doing = null;
    const { canvas } = app;
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", (event) => this.leave(event));
    canvas.addEventListener("pointerleave", () => app.hoverAt(null));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("dblclick", (event) => app.zoomBy(event.shiftKey ? 0.5 : 2, event.offsetX, event.offsetY));
    canvas.addEventListener("contextmenu", (event) => app.data.width === 3 && event.preventDefault());
  }

  down(event) {
    const { app } = this;
    app.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { left: event.offsetX, top: event.offsetY });
    this.start = { left: event.offsetX, top: event.offsetY };
    this.moved = false;
    if (this.pointers.size > 1) {
      app.lasso.cancel();
      this.doing = "pinch";
    } else if (app.lasso.active || event.shiftKey) {
      this.doing = "lasso";
      app.lasso.begin(event.offsetX, event.offsetY);
    } else {
      this.doing = app.data.width === 3 && event.button === 0 && !event.altKey ? "turn" : "pan";
    }
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    const { app } = this;
    if (!before) {
      if (event.pointerType !== "touch") app.hoverAt({ left: event.offsetX, top: event.offsetY });
      return;
    }
    const now = { left: event.offsetX, top: event.offsetY };
    const [right, down] = [now.left - before.left, now.top - before.top];
    this.moved ||= Math.hypot(now.left - this.start.left, now.top - this.start.top) > CLICK_DISTANCE;
    if (this.doing === "pinch") this.pinch(event.pointerId, now);
    this.pointers.set(event.pointerId, now);
    if (this.doing === "lasso") return app.lasso.extend(now.left, now.top);
    if (!this.moved || this.doing === "pinch") return;
    app.canvas.classList.add("moving");
    if (this.doing === "turn") app.turnBy(right / 180, down / 180);
    if (this.doing === "pan") app.panBy(right, down);
  }

  /** Two fingers: what is between them stays between them. */
  pinch(id, now) {
    const [other] = [...this.pointers.entries()].filter(([key]) => key !== id).map(([, place]) => place);
    const before = this.pointers.get(id);
    if (!other) return;
    const [was, is] = [before, now].map((place) => Math.max(1, Math.hypot(place.left - other.left, place.top - other.top)));
    this.moved = true;
    this.app.panBy((now.left - before.left) / 2, (now.top - before.top) / 2);
    this.app.zoomBy(is / was, (now.left + other.left) / 2, (now.top + other.top) / 2);
  }

  up(event) {
    const { app } = this;
    if (!this.pointers.has(event.pointerId)) return;
    const click = !this.moved && this.pointers.size === 1;
    if (this.doing === "lasso" && !click) app.lasso.end();
    else if (click) app.pinAt(event.offsetX, event.offsetY);
    this.leave(event);
  }

  leave(event) {
    this.pointers.delete(event.pointerId);
    this.app.canvas.classList.remove("moving");
    if (this.pointers.size) return;
    this.app.lasso.cancel();
    this.doing = null;
  }

  wheel(event) {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const strength = event.ctrlKey ? 0.01 : 0.0016;
    const factor = Math.exp(-clamp(event.deltaY * lines, -600, 600) * strength);
    this.app.zoomBy(factor, event.offsetX, event.offsetY);
  }
}
