"""Ring pass and mixing product in one Triton kernel each; imported only where one is about to run.

A program owns a tile of sites (positions of all samples, flattened) and a block of channels. For a block of input
channels it adds the taps of each orbit and spreads the sums over the rings, in registers; then the tensor cores mix the
rings. So the ring responses exist tile by tile and are never stored.

Every tensor of maps is (B, C, D, H, W), described by its sizes (D, H, W) and strides (B, C, D, H, W): fewer axes have
size 1 in front. ``taps`` (taps, 3) int32 holds the taps' offsets from a site, orbit by orbit; those of orbit j are
``starts[j]`` to ``starts[j + 1]``. Weights are packed as (rings, channels summed over, other channels).
"""

# Triton reads these functions itself; to it a tuple may grow, and a type says only what is constant.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _coordinates(sites, sizes):
    """Sample, depth, row and column of flattened positions."""
    depth, height, width = sizes
    x = sites % width
    y = (sites // width) % height
    z = (sites // (width * height)) % depth
    return sites // (width * height * depth), z, y, x


@triton.jit
def _addresses(maps, strides, sample, z, y, x, channels):
    """(P, C) pointers; in 64 bits, since large batches have more values than 32 can count."""
    stride_b, stride_c, stride_z, stride_y, stride_x = strides
    rows = sample.to(tl.int64) * stride_b + z.to(tl.int64) * stride_z + y.to(tl.int64) * stride_y + x * stride_x
    return maps + rows[:, None] + (channels.to(tl.int64) * stride_c)[None, :]


@triton.jit
def _orbit_sum(source, allowed, z, y, x, sizes, strides, taps, first, last, VOLUME: tl.constexpr):
    """(P, C): the sum of the values at the taps of one orbit, zero beyond the borders, in float32."""
    depth, height, width = sizes
    total = tl.zeros(source.shape, tl.float32)
    for tap in range(first, last):
        dy = tl.load(taps + 3 * tap + 1)
        dx = tl.load(taps + 3 * tap + 2)
        inside = (y + dy >= 0) & (y + dy < height) & (x + dx >= 0) & (x + dx < width)
        offset = dy.to(tl.int64) * strides[3] + dx * strides[4]
        if VOLUME:
            dz = tl.load(taps + 3 * tap)
            inside = inside & (z + dz >= 0) & (z + dz < depth)
            offset += dz.to(tl.int64) * strides[2]
        total += tl.load(source + offset, mask=inside[:, None] & allowed, other=0.0).to(tl.float32)
    return total


@triton.jit
def _ring_responses(
    source, allowed, z, y, x, sizes, strides, taps, starts, basis, orbits, RINGS: tl.constexpr, VOLUME: tl.constexpr
):
    """RINGS tiles (P, C) in float32."""
    responses = (tl.zeros(source.shape, tl.float32),) * RINGS
    for orbit in range(orbits):
        first, last = tl.load(starts + orbit), tl.load(starts + orbit + 1)
        total = _orbit_sum(source, allowed, z, y, x, sizes, strides, taps, first, last, VOLUME)
        updated = ()
        for ring in tl.static_range(RINGS):
            updated += (responses[ring] + tl.load(basis + ring * orbits + orbit) * total,)
        responses = updated
    return responses


@triton.jit
def _dot(a, b, total, PRECISION: tl.constexpr, WIDEN: tl.constexpr):
    """total + a b. The interpreter takes bfloat16 for integers here; as float32 the products are the same."""
    if WIDEN:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, total, input_precision=PRECISION)


@triton.jit
def ring_conv_kernel(
    x, y, weight, bias, basis, taps, starts, orbits, x_sizes, x_strides, y_sizes, y_strides, sites, c_in, c_out,
    RINGS: tl.constexpr, VOLUME: tl.constexpr, PRECISION: tl.constexpr, WIDEN: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    """y = bias + sum_i W_i (G_i * x) for BLOCK_P sites of y and BLOCK_O of its channels."""
    site = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    out = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    sample, pz, py, px = _coordinates(site, y_sizes)
    total = tl.zeros((BLOCK_P, BLOCK_O), tl.float32)
    for first in range(0, c_in, BLOCK_C):
        channel = first + tl.arange(0, BLOCK_C)
        source = _addresses(x, x_strides, sample, pz, py, px, channel)
        allowed = (site < sites)[:, None] & (channel < c_in)[None, :]
        responses = _ring_responses(
            source, allowed, pz, py, px, x_sizes, x_strides, taps, starts, basis, orbits, RINGS, VOLUME
        )
        known = (channel < c_in)[:, None] & (out < c_out)[None, :]
        for ring in tl.static_range(RINGS):
            rows = ring * c_in + channel
            mixing = tl.load(weight + rows[:, None] * c_out + out[None, :], mask=known, other=0.0)
            total = _dot(responses[ring].to(mixing.dtype), mixing, total, PRECISION, WIDEN)
    if bias is not None:
        total += tl.load(bias + out, mask=out < c_out, other=0.0).to(tl.float32)[None, :]
    target = _addresses(y, y_strides, sample, pz, py, px, out)
    tl.store(target, total.to(y.dtype.element_ty), mask=(site < sites)[:, None] & (out < c_out)[None, :])


@triton.jit
def weight_gradient_kernel(
    x, dy, partial, basis, taps, starts, orbits, x_sizes, x_strides, y_sizes, y_strides, sites, sites_per_part,
    c_in, c_out,
    RINGS: tl.constexpr, VOLUME: tl.constexpr, PRECISION: tl.constexpr, WIDEN: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    """dW_i = dy (G_i * x)^T over a part of the sites, into partial (parts, rings, c_out, c_in) float32."""
    out = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    part = tl.program_id(2)
    end = tl.minimum((part + 1) * sites_per_part, sites)
    totals = (tl.zeros((BLOCK_O, BLOCK_C), tl.float32),) * RINGS
    for first in range(part * sites_per_part, end, BLOCK_P):
        site = first + tl.arange(0, BLOCK_P)
        sample, pz, py, px = _coordinates(site, y_sizes)
        source = _addresses(x, x_strides, sample, pz, py, px, channel)
        allowed = (site < end)[:, None] & (channel < c_in)[None, :]
        responses = _ring_responses(
            source, allowed, pz, py, px, x_sizes, x_strides, taps, starts, basis, orbits, RINGS, VOLUME
        )
        known = (site < end)[:, None] & (out < c_out)[None, :]
        gradient = tl.load(_addresses(dy, y_strides, sample, pz, py, px, out), mask=known, other=0.0)
        turned = tl.trans(gradient)
        updated = ()
        for ring in tl.static_range(RINGS):
            updated += (_dot(turned, responses[ring].to(gradient.dtype), totals[ring], PRECISION, WIDEN),)
        totals = updated
    known = (out < c_out)[:, None] & (channel < c_in)[None, :]
    for ring in tl.static_range(RINGS):
        rows = (part * RINGS + ring) * c_out + out
        tl.store(partial + rows[:, None] * c_in + channel[None, :], totals[ring], mask=known)


@triton.jit
def basis_gradient_kernel(
    x, dy, partial, weight, taps, starts, orbits, x_sizes, x_strides, y_sizes, y_strides, sites, c_in, c_out,
    RINGS: tl.constexpr, VOLUME: tl.constexpr, PRECISION: tl.constexpr, WIDEN: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    """dG_ij = <W_i^T dy, sum of x over orbit j> over a tile of x, into partial (programs, rings, orbits) float32.

    The weight is (rings, c_out, c_in).
    """
    site = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    sample, pz, py, px = _coordinates(site, y_sizes)
    mixed = (tl.zeros((BLOCK_P, BLOCK_C), tl.float32),) * RINGS
    for first in range(0, c_out, BLOCK_O):
        out = first + tl.arange(0, BLOCK_O)
        known = (site < sites)[:, None] & (out < c_out)[None, :]
        gradient = tl.load(_addresses(dy, y_strides, sample, pz, py, px, out), mask=known, other=0.0)
        updated = ()
        for ring in tl.static_range(RINGS):
            rows = ring * c_out + out
            mixing = tl.load(
                weight + rows[:, None] * c_in + channel[None, :],
                mask=(out < c_out)[:, None] & (channel < c_in)[None, :],
                other=0.0,
            )
            updated += (_dot(gradient, mixing, mixed[ring], PRECISION, WIDEN),)
        mixed = updated
    source = _addresses(x, x_strides, sample, pz, py, px, channel)
    allowed = (site < sites)[:, None] & (channel < c_in)[None, :]
    program = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    for orbit in range(orbits):
        first_tap, last_tap = tl.load(starts + orbit), tl.load(starts + orbit + 1)
        total = _orbit_sum(source, allowed, pz, py, px, x_sizes, x_strides, taps, first_tap, last_tap, VOLUME)
        for ring in tl.static_range(RINGS):
            tl.store(partial + (program * RINGS + ring) * orbits + orbit, tl.sum(total * mixed[ring]))
