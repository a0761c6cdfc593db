/* What the driver (ring_conv.c) and the kernels (kernels.h, once per instruction set) share. */
#ifndef RING_SWEEP_H
#define RING_SWEEP_H

#include "ring_conv.h"

/* Maps as the kernels read them: float32, channels last, the channels padded with zeros to whole vectors. */
struct laid_out {
    const float *data;
    int64_t channels; /* padded */
};

/* A tile is a block of target sites: consecutive rows (over batch and leading axes) times consecutive columns. */
struct tiling {
    int64_t rows, columns, rows_per_tile, columns_per_tile, column_tiles, tiles;
};

/* One sweep over all tiles of target sites. */
struct sweep {
    const struct ring_pass *pass;
    struct tiling tiling;
    struct laid_out source;          /* what the ring pass reads */
    const float *basis_by_orbit;     /* (orbits, rings) */
    const float *kernel_by_orbit;    /* (orbits, source channels) of a depthwise convolution, else NULL */
    const int32_t *entry_in_sums[2]; /* (entries,): where an entry lies in the sums, for blocks of 1 and 2 vectors */
    int64_t sum_columns;             /* virtual columns of a tile */
    int64_t sites_at_once;           /* whose orbits are summed before they are weighted */
    int64_t response_row;            /* floats per site of the responses (rings, source channels) */

    /* Mixing: groups products of (source_group * rings) x target_group. */
    int64_t groups, source_group, target_group;
    const float *panels;             /* packed weight: (group, panel, ring, source channel, PANEL) */
    const float *bias;               /* (groups, panels * PANEL), or NULL */
    const struct ring_maps *target;  /* written, or NULL */

    struct laid_out companion;       /* maps at the target sites: x for dweight, dy for dbasis */
    int64_t companion_group;

    /* Harmonics: rings are then pairs of kernels, and orbits taps and their opposites in turn. */
    int odd_pairs, even_pairs;
    const int32_t *pair_order;       /* the pairs, those of odd order first */
    float *pairs;                    /* (sites, pairs, cosine and sine, source channels): their gradient */
    int with_basis;
    int64_t weight_floats;           /* of what is accumulated; the basis' part lies behind it */
};

/* Buffers of one worker. */
struct scratch {
    float *sums;           /* (classes, sum_columns, channel block) */
    float *orbit_sums;     /* (orbits, sites_at_once, channel block) */
    const float **rows;    /* (rows of the kernel,) */
    int32_t *class_rows;   /* (classes + 1,) */
    float *responses;      /* (tile sites, response_row) */
    float *mixed;          /* (tile sites, target channels) */
    float *companion;      /* the tile's sites of the companion */
    float *accumulated;    /* this worker's share of dweight or dbasis */
    float *lengths;        /* (tile sites, response_row) of the harmonics */
};

struct instruction_set {
    const char *name;
    int lanes; /* floats per vector */
    int panel; /* columns of a panel of the packed weight */
    void (*lay_out)(const struct ring_maps *maps, int64_t sites, int64_t sample, int64_t first, int64_t last,
                    float *out, int64_t padded);
    void (*forward_tile)(const struct sweep *, int64_t tile, const struct scratch *);
    /* Gradients of the input (if target) and of the weight (if accumulated: (groups, rings, source_group, panels)). */
    void (*backward_tile)(const struct sweep *, int64_t tile, const struct scratch *);
    /* Gradient of the basis: accumulated is (orbits, rings, 2 vectors). */
    void (*basis_tile)(const struct sweep *, int64_t tile, const struct scratch *);
    /* The harmonics: forward; gradients of pairs, weight and basis; gradient of the input. */
    void (*harmonic_tile)(const struct sweep *, int64_t tile, const struct scratch *);
    void (*harmonic_pull_tile)(const struct sweep *, int64_t tile, const struct scratch *);
    void (*harmonic_spread_tile)(const struct sweep *, int64_t tile, const struct scratch *);
};

static inline int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

#endif
