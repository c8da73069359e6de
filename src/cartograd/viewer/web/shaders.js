// The programs the graphics card runs. Every point is drawn from buffers that were uploaded once.

const POINT_VERTEX = `#version 300 es
precision highp float;
precision highp int;
in vec3 position;   // in [-1, 1]; z is 0 on a map of two dimensions
in float value;     // slot of the table, or share of the scale; below 0: missing
in float mark;      // 1: found by the search and inside the lasso
uniform mat3 turn;
uniform vec2 centre;
uniform vec2 scale;      // clip units a unit of the plane
uniform float size;      // diameter in device pixels
uniform bool deep;       // three dimensions: what is far is smaller and paler
uniform bool isScale;
uniform bool useMarks;
uniform float focus;     // the slot to show alone; below 0: all
uniform int layer;       // 0: every point, 1: those in the background, 2: those in front
uniform vec4 missing;
uniform vec3 ground;
uniform sampler2D table;
out vec3 color;
flat out float diameter;

vec4 looked_up() {
  if (value < 0.0) return missing;
  int slot = isScale ? int(value * 255.0 + 0.5) : int(value + 0.5);
  int wide = textureSize(table, 0).x;
  return texelFetch(table, ivec2(slot % wide, slot / wide), 0);
}

void main() {
  vec4 found = looked_up();
  bool front = (!useMarks || mark > 0.5) && (focus < 0.0 || (!isScale && abs(value - focus) < 0.5));
  bool drawn = found.a > 0.5 && (layer == 0 || (layer == 2) == front);
  vec3 seen = turn * position;
  float depth = deep ? clamp(seen.z / 1.8, -1.0, 1.0) : 0.0;
  diameter = max(size * (1.0 + 0.35 * depth), 0.5);
  color = mix(found.rgb, ground, deep ? 0.32 * (1.0 - depth) * 0.5 : 0.0);
  gl_Position = drawn ? vec4((seen.xy - centre) * scale, -0.5 * depth, 1.0) : vec4(2.0, 2.0, 2.0, 1.0);
  gl_PointSize = diameter + 1.0;
}`;

const POINT_FRAGMENT = `#version 300 es
precision highp float;
in vec3 color;
flat in float diameter;
uniform bool counting;   // add up weights for the density instead of painting
uniform float opacity;
uniform float rim;       // width of the pale edge that keeps neighbours apart
uniform vec3 ground;
uniform float paleness;
out vec4 result;

void main() {
  float radius = 0.5 * diameter;
  float distance = length(gl_PointCoord - 0.5) * (diameter + 1.0);
  float cover = clamp(radius - distance + 0.5, 0.0, 1.0) * min(1.0, diameter);
  if (cover <= 0.0) discard;
  float edge = rim > 0.0 ? smoothstep(radius - rim - 0.5, radius - rim + 0.5, distance) : 0.0;
  vec3 painted = mix(mix(color, ground, 0.55 * edge), ground, paleness);
  result = counting ? vec4(color * cover, cover) : vec4(painted, 1.0) * (cover * opacity);
}`;

const SCREEN_VERTEX = `#version 300 es
void main() {
  gl_Position = vec4(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0, 0.0, 1.0);
}`;

// The mean colour of a pixel's points, as strong as the logarithm of their number.
const DENSITY_FRAGMENT = `#version 300 es
precision highp float;
uniform sampler2D sums;
uniform float peak;      // points a pixel where it is crowded
uniform float boost;     // all points for each one drawn
uniform float opacity;
uniform float paleness;
uniform vec3 ground;
out vec4 result;

void main() {
  vec4 sum = texelFetch(sums, ivec2(gl_FragCoord.xy), 0);
  if (sum.a <= 0.0) discard;
  float weight = sum.a * boost;
  float strength = mix(0.3, 1.0, clamp(log(1.0 + weight) / log(1.0 + max(peak, 2.0)), 0.0, 1.0));
  float alpha = strength * min(1.0, weight) * opacity;
  result = vec4(mix(sum.rgb / sum.a, ground, paleness), 1.0) * alpha;
}`;
