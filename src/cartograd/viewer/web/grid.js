// Finding points by their place: a grid of square cells over the plane, each with the list of its points.

/** The points as they are seen: two numbers a point, turned for maps of three dimensions. */
function planeOf(data, turn) {
  if (data.width === 2) return data.units;
  const { units, count } = data;
  const plane = new Float32Array(count * 2);
  for (let i = 0; i < count; i++) {
    const [x, y, z] = [units[i * 3], units[i * 3 + 1], units[i * 3 + 2]];
    plane[i * 2] = turn[0] * x + turn[1] * y + turn[2] * z;
    plane[i * 2 + 1] = turn[3] * x + turn[4] * y + turn[5] * z;
  }
  return plane;
}

function boxOf(plane, rows = null) {
  const box = { left: Infinity, right: -Infinity, bottom: Infinity, top: -Infinity };
  const count = rows ? rows.length : plane.length / 2;
  for (let k = 0; k < count; k++) {
    const i = rows ? rows[k] : k;
    const [x, y] = [plane[i * 2], plane[i * 2 + 1]];
    if (x < box.left) box.left = x;
    if (x > box.right) box.right = x;
    if (y < box.bottom) box.bottom = y;
    if (y > box.top) box.top = y;
  }
  return box;
}

class Grid {
  constructor(plane) {
    this.plane = plane;
    const count = plane.length / 2;
    this.box = boxOf(plane);
    const extent = Math.max(this.box.right - this.box.left, this.box.top - this.box.bottom, 1e-9);
    this.cell = extent / clamp(Math.round(Math.sqrt(count / 2)), 1, 1024);
    this.columns = Math.floor((this.box.right - this.box.left) / this.cell) + 1;
    this.rows = Math.floor((this.box.top - this.box.bottom) / this.cell) + 1;
    this.sortIntoCells(count);
  }

  sortIntoCells(count) {
    const cellOf = new Uint32Array(count);
    const starts = new Uint32Array(this.columns * this.rows + 1);
    for (let i = 0; i < count; i++) {
      const cell = this.cellAt(this.plane[i * 2], this.plane[i * 2 + 1]);
      cellOf[i] = cell;
      starts[cell + 1]++;
    }
    for (let cell = 1; cell < starts.length; cell++) starts[cell] += starts[cell - 1];
    const next = starts.slice();
    this.order = new Uint32Array(count);
    for (let i = 0; i < count; i++) this.order[next[cellOf[i]]++] = i;
    this.starts = starts;
  }

  columnAt(x) {
    return clamp(Math.floor((x - this.box.left) / this.cell), 0, this.columns - 1);
  }

  rowAt(y) {
    return clamp(Math.floor((y - this.box.bottom) / this.cell), 0, this.rows - 1);
  }

  cellAt(x, y) {
    return this.rowAt(y) * this.columns + this.columnAt(x);
  }

  /** Calls `visit` with every point in the cells that a box touches. */
  within(left, bottom, right, top, visit) {
    if (right < this.box.left || left > this.box.right || top < this.box.bottom || bottom > this.box.top) return;
    for (let row = this.rowAt(bottom); row <= this.rowAt(top); row++) {
      const first = this.starts[row * this.columns + this.columnAt(left)];
      const last = this.starts[row * this.columns + this.columnAt(right) + 1];
      for (let k = first; k < last; k++) visit(this.order[k]);
    }
  }

  /** The nearest point to (x, y) among those allowed, at most `reach` away; -1 if there is none. */
  nearest(x, y, reach, allowed) {
    let [best, least] = [-1, reach * reach];
    this.within(x - reach, y - reach, x + reach, y + reach, (i) => {
      const distance = (this.plane[i * 2] - x) ** 2 + (this.plane[i * 2 + 1] - y) ** 2;
      if (distance <= least && allowed(i)) [best, least] = [i, distance];
    });
    return best;
  }

  /** Points a unit of area where it is crowded: at the 90th percentile of the points' own cells. */
  get crowding() {
    if (this.crowdingFound === undefined) {
      const counts = [];
      for (let cell = 0; cell + 1 < this.starts.length; cell++) {
        const inside = this.starts[cell + 1] - this.starts[cell];
        if (inside) counts.push(inside);
      }
      counts.sort((a, b) => a - b);
      let [passed, at] = [0, 0];
      while (at < counts.length - 1 && passed + counts[at] < 0.9 * this.order.length) passed += counts[at++];
      this.crowdingFound = counts[at] / this.cell ** 2;
    }
    return this.crowdingFound;
  }
}
