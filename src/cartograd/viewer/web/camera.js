// Where the reader looks: a centre, a zoom, and for three dimensions a turn. The plane is what is seen after the turn.

const LARGEST_ZOOM = 5000;
const SMALLEST_ZOOM = 0.2;
const NO_TURN = [1, 0, 0, 0, 1, 0, 0, 0, 1];

function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

/** The product of two 3 x 3 matrices, row by row. */
function product(a, b) {
  const c = new Array(9);
  for (let row = 0; row < 3; row++) {
    for (let column = 0; column < 3; column++) {
      c[row * 3 + column] = a[row * 3] * b[column] + a[row * 3 + 1] * b[3 + column] + a[row * 3 + 2] * b[6 + column];
    }
  }
  return c;
}

/** Rows made orthonormal again: many small turns drift, and a link may bring anything. */
function orthonormal(m) {
  const x = unit(m.slice(0, 3));
  const lean = m[3] * x[0] + m[4] * x[1] + m[5] * x[2];
  const y = unit([m[3] - lean * x[0], m[4] - lean * x[1], m[5] - lean * x[2]]);
  const z = [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]];
  const turn = [...x, ...y, ...z];
  return turn.every(Number.isFinite) ? turn : [...NO_TURN];
}

function unit(v) {
  const length = Math.hypot(...v);
  return v.map((part) => part / length);
}

class Camera {
  constructor() {
    Object.assign(this, { x: 0, y: 0, zoom: 1, turn: [...NO_TURN], width: 1, height: 1, fitted: 1 });
  }

  /** Pixels a unit of the plane. */
  get scale() {
    return this.fitted * this.zoom;
  }

  toScreen(x, y) {
    return [(x - this.x) * this.scale + this.width / 2, this.height / 2 - (y - this.y) * this.scale];
  }

  toPlane(left, top) {
    return [(left - this.width / 2) / this.scale + this.x, (this.height / 2 - top) / this.scale + this.y];
  }

  pan(right, down) {
    this.x -= right / this.scale;
    this.y += down / this.scale;
    this.x = clamp(this.x, -3, 3);
    this.y = clamp(this.y, -3, 3);
  }

  /** Zoom so that what is under this place of the screen stays there. */
  zoomAbout(factor, left, top) {
    const [x, y] = this.toPlane(left, top);
    this.zoom = clamp(this.zoom * factor, SMALLEST_ZOOM, LARGEST_ZOOM);
    this.x = x - (left - this.width / 2) / this.scale;
    this.y = y - (this.height / 2 - top) / this.scale;
  }

  /** Turn about the screen's axes, in radians. */
  rotate(right, down) {
    const [cosine, sine] = [Math.cos(right), Math.sin(right)];
    const [cosineDown, sineDown] = [Math.cos(down), Math.sin(down)];
    const about = product([1, 0, 0, 0, cosineDown, -sineDown, 0, sineDown, cosineDown], [cosine, 0, sine, 0, 1, 0, -sine, 0, cosine]);
    this.turn = orthonormal(product(about, this.turn));
  }

  /** The view that shows a box of the plane inside the free part of the screen. */
  viewOf(box, free) {
    const wide = Math.max(box.right - box.left, 1e-6);
    const high = Math.max(box.top - box.bottom, 1e-6);
    const roomWide = Math.max(40, this.width - free.left - free.right);
    const roomHigh = Math.max(40, this.height - free.top - free.bottom);
    const scale = Math.min(roomWide / wide, roomHigh / high);
    const zoom = clamp(scale / this.fitted, SMALLEST_ZOOM, LARGEST_ZOOM);
    const shiftX = (free.right - free.left) / 2 / (zoom * this.fitted);
    const shiftY = (free.top - free.bottom) / 2 / (zoom * this.fitted);
    return { x: (box.left + box.right) / 2 + shiftX, y: (box.top + box.bottom) / 2 + shiftY, zoom };
  }
}
