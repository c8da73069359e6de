// Drawing with WebGL2. A frame sets a few uniforms and draws; it never walks over the points in JavaScript.

const TABLE_WIDTH = 1024;

class GlRenderer {
  /** `order` is the order of drawing, the same for every buffer: random, so that no category covers the others. */
  constructor(canvas, data, order) {
    // with alpha: a canvas without is black until its first frame is on the screen, and the poster is behind it
    const options = { alpha: true, antialias: false, depth: data.width === 3, powerPreference: "high-performance" };
    this.gl = canvas.getContext("webgl2", options);
    if (!this.gl) throw new Error("no WebGL2");
    Object.assign(this, { canvas, data, order, progressive: true });
    this.build();
  }

  /** Everything that lives on the graphics card; made again if the card was lost. */
  build() {
    const { gl } = this;
    this.fence = null;
    this.points = this.program(POINT_VERTEX, POINT_FRAGMENT);
    this.density = this.program(SCREEN_VERTEX, DENSITY_FRAGMENT);
    this.canCount = gl.getExtension("EXT_color_buffer_float") || gl.getExtension("EXT_color_buffer_half_float");
    this.arrangement = gl.createVertexArray();
    this.buffers = { position: gl.createBuffer(), value: gl.createBuffer(), mark: gl.createBuffer() };
    this.table = gl.createTexture();
    this.sums = gl.createTexture();
    this.target = gl.createFramebuffer();
    this.sumsSize = "";
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    gl.bindVertexArray(this.arrangement);
    this.upload("position", this.inOrder(this.data.units, this.data.width), this.data.width, gl.FLOAT);
    this.upload("mark", new Uint8Array(this.data.count), 1, gl.UNSIGNED_BYTE);
  }

  program(vertex, fragment) {
    const { gl } = this;
    const program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) throw new Error(gl.getProgramInfoLog(program));
    const places = {};
    const count = gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS);
    for (let i = 0; i < count; i++) {
      const { name } = gl.getActiveUniform(program, i);
      places[name] = gl.getUniformLocation(program, name);
    }
    return { program, places };
  }

  inOrder(values, width) {
    const { order } = this;
    const moved = new values.constructor(values.length);
    for (let k = 0; k < order.length; k++) {
      for (let part = 0; part < width; part++) moved[k * width + part] = values[order[k] * width + part];
    }
    return moved;
  }

  upload(name, values, width, type) {
    const { gl } = this;
    const place = gl.getAttribLocation(this.points.program, name);
    gl.bindVertexArray(this.arrangement);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[name]);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, width, type, false, 0, 0);
  }

  setValues(values) {
    this.upload("value", this.inOrder(values, 1), 1, this.gl.FLOAT);
  }

  setMarks(marks) {
    this.upload("mark", this.inOrder(marks, 1), 1, this.gl.UNSIGNED_BYTE);
  }

  setTable(table) {
    const { gl } = this;
    const slots = table.length / 4;
    const wide = Math.min(slots, TABLE_WIDTH);
    const high = Math.ceil(slots / wide);
    const padded = new Uint8Array(wide * high * 4);
    padded.set(table);
    gl.bindTexture(gl.TEXTURE_2D, this.table);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, wide, high, 0, gl.RGBA, gl.UNSIGNED_BYTE, padded);
    this.plainTexture();
  }

  plainTexture() {
    const { gl } = this;
    for (const filter of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, filter, gl.NEAREST);
    for (const wrap of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, wrap, gl.CLAMP_TO_EDGE);
  }

  /** The buffer in which points are counted, as large as the canvas. */
  fitSums() {
    const { gl, canvas } = this;
    const size = `${canvas.width} ${canvas.height}`;
    if (size === this.sumsSize) return;
    gl.bindTexture(gl.TEXTURE_2D, this.sums);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA16F, canvas.width, canvas.height, 0, gl.RGBA, gl.HALF_FLOAT, null);
    this.plainTexture();
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.target);
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, this.sums, 0);
    if (gl.checkFramebufferStatus(gl.FRAMEBUFFER) !== gl.FRAMEBUFFER_COMPLETE) this.canCount = null;
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    this.sumsSize = size;
  }

  draw(frame) {
    const { gl, canvas } = this;
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clearColor(...frame.ground, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.enable(gl.BLEND);
    this.setPointUniforms(frame);
    const count = Math.min(this.data.count, frame.budget);
    if (frame.filtered) {
      this.drawLayer(frame, count, { layer: 1, paleness: 0.82, crisp: frame.crisp, size: frame.size });
      const few = frame.marked >= 0 && frame.marked < 3000;
      const size = few ? frame.size * 1.4 : frame.size;
      this.drawLayer(frame, few ? this.data.count : count, { layer: 2, paleness: 0, crisp: few ? 1 : frame.crisp, size });
    } else {
      this.drawLayer(frame, count, { layer: 0, paleness: 0, crisp: frame.crisp, size: frame.size });
    }
  }

  /** Whether the graphics card is done with the first frame; asked between frames, never waited for. */
  isDone() {
    const { gl } = this;
    if (gl.isContextLost()) return false;
    this.fence ??= gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    gl.flush();
    return gl.getSyncParameter(this.fence, gl.SYNC_STATUS) === gl.SIGNALED;
  }

  setPointUniforms(frame) {
    const { gl, canvas } = this;
    const { program, places } = this.points;
    gl.useProgram(program);
    gl.uniformMatrix3fv(places.turn, true, frame.turn);
    gl.uniform2f(places.centre, frame.x, frame.y);
    gl.uniform2f(places.scale, (2 * frame.scale) / canvas.width, (2 * frame.scale) / canvas.height);
    gl.uniform1i(places.deep, this.data.width === 3 ? 1 : 0);
    gl.uniform1i(places.isScale, frame.isScale ? 1 : 0);
    gl.uniform1i(places.useMarks, frame.useMarks ? 1 : 0);
    gl.uniform1f(places.focus, frame.focus);
    gl.uniform4f(places.missing, ...frame.missing);
    gl.uniform3f(places.ground, ...frame.ground);
    gl.uniform1i(places.table, 0);
  }

  /** Points one by one where they can be told apart, as a density where they cannot, both in between. */
  drawLayer(frame, count, { layer, paleness, crisp, size }) {
    const { gl } = this;
    const { program, places } = this.points;
    const share = this.canCount ? crisp : 1;
    gl.useProgram(program);
    gl.bindVertexArray(this.arrangement);
    gl.uniform1i(places.layer, layer);
    gl.uniform1f(places.size, size);
    gl.uniform1f(places.paleness, paleness);
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_2D, this.table);
    if (share < 1) this.drawDensity(frame, count, { paleness, opacity: 1 - share });
    if (share > 0) this.drawPoints(count, size, share * (this.canCount ? 0.92 : clamp(3 / frame.peak, 0.12, 0.92)));
  }

  drawPoints(count, size, opacity) {
    const { gl } = this;
    const { program, places } = this.points;
    const deep = this.data.width === 3;
    gl.useProgram(program);
    gl.bindVertexArray(this.arrangement);
    gl.uniform1i(places.counting, 0);
    gl.uniform1f(places.opacity, opacity);
    gl.uniform1f(places.rim, size > 7 ? Math.min(1.5, size / 9) : 0);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    if (deep) gl.enable(gl.DEPTH_TEST);
    gl.drawArrays(gl.POINTS, 0, count);
    gl.disable(gl.DEPTH_TEST);
  }

  drawDensity(frame, count, { paleness, opacity }) {
    const { gl } = this;
    this.fitSums();
    if (!this.canCount) return;
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_2D, this.table);
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.target);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.uniform1i(this.points.places.counting, 1);
    gl.blendFunc(gl.ONE, gl.ONE);
    gl.drawArrays(gl.POINTS, 0, count);
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    const { program, places } = this.density;
    gl.useProgram(program);
    gl.bindTexture(gl.TEXTURE_2D, this.sums);
    gl.uniform1i(places.sums, 0);
    gl.uniform1f(places.peak, frame.peak);
    gl.uniform1f(places.boost, this.data.count / count);
    gl.uniform1f(places.opacity, opacity);
    gl.uniform1f(places.paleness, paleness);
    gl.uniform3f(places.ground, ...frame.ground);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    gl.useProgram(this.points.program);
    gl.bindTexture(gl.TEXTURE_2D, this.table);
  }
}
