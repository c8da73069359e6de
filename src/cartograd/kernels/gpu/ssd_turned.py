# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
r"""Keys and queries of a head as products take them: biased and turned on the chip, where the scan is asked to.

With (u, w) a pair of channels, 2j and 2j + 1, of a group's row plus the head's bias, and theta the angle of its step,

    u~ = cos(theta) u - sin(theta) w,        w~ = sin(theta) u + cos(theta) w,

and backwards, with g the gradient of the turned row and G = g turned back,

    dbias = sum over all steps of G,      dtheta = G_w u - G_u w,      <g, (u~, w~)> = <G, (u, w)>.

So turned rows never are in memory, and backwards nothing but the row as it was is needed. Keys and queries of such a
scan have equally many ranks.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cartograd.kernels.gpu.ssd_tiles import INTERPRETED, load_rows

PLAIN, BIASED, TURNED = (tl.constexpr(kind) for kind in range(3))
"""What is done to a tile of rows: nothing, a bias added, a bias added and pairs turned."""


@triton.constexpr_function
def kind_of(start: int, turns: int) -> int:
    """What is done to channels from `start` on where the first `turns` channels are turned; -1 for nothing at all."""
    return 0 if turns < 0 else 2 if start < turns else 1


@triton.jit
def key_tile(
    keys, rows, row_stride, last_row, first, bias, c, s,
    RANKS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """BLOCK channels from `first` on of rows of keys or queries; `bias` and cosines and sines are those of the head."""
    if KIND == PLAIN:
        tile = load_rows(keys, rows, row_stride, last_row, first + tl.arange(0, BLOCK), WIDTH)
    else:
        tile = biased(keys, rows, row_stride, last_row, first, bias, RANKS, WIDTH, BLOCK)
    if KIND == TURNED:
        u, w = pairs_of(tile)
        tile = tl.reshape(tl.join(c * u - s * w, s * u + c * w), tile.shape)
    return tile.to(OPERAND)


@triton.jit
def pairs_of(tile):
    """Both channels of each pair."""
    return tl.split(tl.reshape(tile, (tile.shape[0], tile.shape[1] // 2, 2)))


@triton.jit
def biased(
    keys, rows, row_stride, last_row, first, bias, RANKS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Rows plus the bias of their rank, in float32."""
    columns = first + tl.arange(0, BLOCK)
    tile = load_rows(keys, rows, row_stride, last_row, columns, WIDTH).to(tl.float32)
    if RANKS == 1:
        tile += tl.load(bias + columns, mask=columns < WIDTH, other=0.0)[None, :]
    else:
        tile += load_rows(bias, rows % RANKS, WIDTH, RANKS, columns, WIDTH)
    return tile


@triton.jit
def cosines(
    rows, last_row, first, theta, step_stride, pairs,
    RANKS: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """Cosines and sines of the angles of each row's pairs, 1 and 0 from `pairs` on; numbers if no pair is TURNED."""
    c, s = 1.0, 0.0
    if KIND == TURNED:
        pair = first // 2 + tl.arange(0, BLOCK // 2)
        there = (rows < last_row)[:, None] & (pair < pairs)[None, :]
        angle = tl.load(theta + (rows // RANKS)[:, None] * step_stride + pair[None, :], mask=there, other=0.0)
        if INTERPRETED or OPERAND != tl.bfloat16:  # noqa: SIM300
            c, s = tl.cos(angle), tl.sin(angle)
        else:  # to 2^-20 within a turn
            c, s = tl.inline_asm_elementwise(
                "cos.approx.ftz.f32 $0, $2; sin.approx.ftz.f32 $1, $2;", "=&f,=f,f", [angle],
                dtype=(tl.float32, tl.float32), is_pure=True, pack=1,
            )  # fmt: skip
    return c, s


@triton.jit
def turned_back(
    g, keys, rows, row_stride, last_row, first, bias, c, s, dbias,
    RANKS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """G, <G, (u, w)> of each row, and dtheta of each step, given g; writes this chunk's part of dbias.

    Rows past the end are 0 in g, so they add nothing.
    """
    back, columns, turning = g, first + tl.arange(0, BLOCK), 0.0
    if KIND == PLAIN:
        products = tl.sum(g * load_rows(keys, rows, row_stride, last_row, columns, WIDTH).to(tl.float32), 1)
    else:
        row = biased(keys, rows, row_stride, last_row, first, bias, RANKS, WIDTH, BLOCK)
        if KIND == TURNED:
            g_u, g_w = pairs_of(g)
            back_u, back_w = c * g_u + s * g_w, c * g_w - s * g_u
            u, w = pairs_of(row)
            turning, products = back_w * u - back_u * w, tl.sum(back_u * u + back_w * w, 1)
            back = tl.reshape(tl.join(back_u, back_w), g.shape)
        else:
            products = tl.sum(g * row, 1)
        if RANKS == 1:
            tl.store(dbias + columns, tl.sum(back, 0), mask=columns < WIDTH)
        else:
            rank = tl.arange(0, 16)
            of_ranks = added(rank[:, None] == (rows % RANKS)[None, :], back)
            to = dbias + rank[:, None] * WIDTH + columns[None, :]
            tl.store(to, of_ranks, mask=(rank < RANKS)[:, None] & (columns < WIDTH)[None, :])
            if KIND == TURNED:
                turning = added(tl.arange(0, STEPS)[:, None] == (rows // RANKS)[None, :], turning)
    return back, products, turning


@triton.jit
def added(chosen, rows):
    """Sums of the chosen rows: a product with zeros and ones, in float32."""
    return tl.dot(chosen.to(tl.float32), rows, input_precision="ieee")
