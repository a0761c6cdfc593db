/* The ring convolution on the CPU: what a caller sees. Mirrored by the ctypes structures in __init__.py.
 *
 * Spaces of fewer than three axes have leading axes of size 1. All sizes are in elements, never in bytes.
 */
#ifndef RING_CONV_H
#define RING_CONV_H

#include <stdint.h>

/* Counts the changes of what is declared here; the caller checks that it was written for the same. */
#define RING_CONV_INTERFACE 1
int ring_conv_interface(void);

/* Where one direction of the ring pass reads. The target site p and the tap t meet at the virtual coordinate
 * step * p + dilation * t of each axis, and source_of names the source site that lies there, or -1 for a zero: so
 * stride, dilation, padding and the adjoint of them all differ by these tables only.
 *
 * A row of the kernel is its taps along the last axis. Rows with the same orbits form a class: their inputs are added
 * before anything else. An orbit is then a sum of entries, each a class at a tap of the last axis. */
struct ring_pass {
    int32_t rings, orbits, classes;
    int32_t target[3], source[3], step[3];
    int32_t span;                    /* virtual length of the kernel's last axis: dilation * (taps - 1) + 1 */
    const int32_t *source_of[3];     /* (virtual length of the axis,) */
    const int32_t *class_start;      /* (classes + 1,): ranges of the rows below */
    const int32_t *row_offset;       /* (rows, 2): dilation * tap along the first and the second axis */
    const int32_t *orbit_start;      /* (orbits + 1,): ranges of the entries below */
    const int32_t *entry_class;      /* (entries,) */
    const int32_t *entry_offset;     /* (entries,): dilation * tap along the last axis */
};

/* A batch of maps, contiguous as (batch, channels, sites) or, channels last, as (batch, sites, channels). */
struct ring_maps {
    void *data;
    int64_t channels;
    int32_t bfloat16;      /* else float32 */
    int32_t channels_last;
};

/* What is mixed: y = bias + sum_i weight_i R_i(x). weight (out, in / groups, rings), basis (rings, orbits). */
struct ring_mixing {
    const float *weight, *basis, *bias; /* bias may be NULL */
    int64_t batch, groups;
    int32_t threads;
};

/* All return 0, or -1 if there was not enough memory. They may be called from several threads at once. */
int ring_conv_forward(const struct ring_pass *forward, const struct ring_mixing *mixing, const struct ring_maps *x,
                      const struct ring_maps *y);

/* The gradients that are not NULL: dx in the shape of x, dweight and dbasis in those of weight and basis. */
int ring_conv_backward(const struct ring_pass *forward, const struct ring_pass *adjoint,
                       const struct ring_mixing *mixing, const struct ring_maps *dy, const struct ring_maps *x,
                       const struct ring_maps *dx, float *dweight, float *dbasis);

/* Harmonics: y = sum_q weight_q sqrt((C_q x)^2 + (S_q x)^2 + 1e-4), channel by channel before it is mixed, for pairs of
 * kernels C_q, S_q of an order each: values at opposite taps are equal (even order) or opposite (odd order). In a pass of
 * them, rings counts the pairs; orbits are single taps, each followed by its opposite, and every row is a class. weight
 * (out, in / groups, pairs); basis (pairs, half of the taps, cosine and sine), half of it for the centre. */
struct ring_pairs {
    int32_t odd, even;    /* how many */
    const int32_t *order; /* the pairs, those of odd order first */
};

/* These also return -2 for one channel per group, which they do not take. */
int ring_harmonics_forward(const struct ring_pass *forward, const struct ring_mixing *mixing,
                           const struct ring_pairs *pairs, const struct ring_maps *x, const struct ring_maps *y);
int ring_harmonics_backward(const struct ring_pass *forward, const struct ring_pass *adjoint,
                            const struct ring_mixing *mixing, const struct ring_pairs *pairs,
                            const struct ring_maps *dy, const struct ring_maps *x, const struct ring_maps *dx,
                            float *dweight, float *dbasis);

/* Run on the threads of an OpenMP library that is loaded already: its GOMP_parallel. NULL: on threads of our own. */
void ring_conv_share_threads(void *gomp_parallel);

/* Name of the instruction set that was chosen, or "auto"; with a name, choose that one, or "auto" if this machine does not
 * have it. */
const char *ring_conv_instruction_set(const char *name);

#endif
