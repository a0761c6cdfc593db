/* Lengths of pairs of responses, included by kernels.h once per instruction set.
 *
 * A pair of kernels has an order. Its values at the taps t and -t are equal if the order is even, and opposite if it is
 * odd, so that x(t) + x(-t) or x(t) - x(-t) is all that a tap and its opposite contribute. A harmonic pass (orbits = 2 x
 * half of the taps) lists each tap and its opposite one after the other; every row of the kernel is a class by itself.
 * basis_by_orbit is (half, cosine and sine, pairs). The centre, its own opposite, comes with half of its value.
 */

/* For lengths that vanish: see TINY in harmonic.py. */
#define TINY_SQUARE 1e-4f

typedef int32_t NAME(ivec) __attribute__((vector_size(4 * LANES)));

/* 1 / sqrt(x) for x > 0: a guess from the bits, and three of Newton's steps, each of which doubles the digits. */
#define inverse_root NAME(inverse_root)
INLINE vec inverse_root(vec x) {
    vec y = (vec)(0x5f3759df - ((NAME(ivec))x >> 1));
    for (int step = 0; step < 3; step++) y *= 1.5f - 0.5f * x * y * y;
    return y;
}

/* Two pairs at one site: one of odd and one of even order, [cosine, sine][vector]. */
struct NAME(pairs) {
    vec odd[2][2], even[2][2];
};

/* `odd` and `even` point to the pairs' values of the first half-tap; a pair that is not there is left zero. */
#define respond_pairs NAME(respond_pairs)
INLINE struct NAME(pairs) respond_pairs(const struct sweep *sweep, const float *sums, const int32_t *entry,
                                        const float *odd, const float *even, const int with_odd, const int with_even,
                                        const int vectors) {
    struct NAME(pairs) pairs;
    const int64_t half = sweep->pass->orbits / 2, count = sweep->pass->rings;
    for (int p = 0; p < 2; p++)
        for (int v = 0; v < 2; v++) pairs.odd[p][v] = pairs.even[p][v] = (vec){0};
    for (int64_t tap = 0; tap < half; tap++, entry += 2, odd += 2 * count, even += 2 * count)
        UNROLL for (int v = 0; v < vectors; v++) {
            const vec here = load(sums + entry[0] + v * LANES), there = load(sums + entry[1] + v * LANES);
            if (with_odd) {
                const vec difference = here - there;
                pairs.odd[0][v] += odd[0] * difference;
                pairs.odd[1][v] += odd[count] * difference;
            }
            if (with_even) {
                const vec sum = here + there;
                pairs.even[0][v] += even[0] * sum;
                pairs.even[1][v] += even[count] * sum;
            }
        }
    return pairs;
}

/* Calls what CASE(with_odd, with_even) stands for on blocks of a pair of odd and a pair of even order. */
#define FOR_BLOCKS_OF_PAIRS \
    for (int block = 0; block < sweep->odd_pairs || block < sweep->even_pairs; block++) { \
        const int with_odd = block < sweep->odd_pairs, with_even = block < sweep->even_pairs; \
        const int odd = with_odd ? sweep->pair_order[block] : 0; \
        const int even = with_even ? sweep->pair_order[sweep->odd_pairs + block] : 0; \
        if (with_odd && with_even) { CASE(1, 1); } else if (with_odd) { CASE(1, 0); } else { CASE(0, 1); } \
    }

/* The lengths of one channel block at the sites of a row. */
#define lengths_row NAME(lengths_row)
INLINE void lengths_row(const struct sweep *sweep, const struct scratch *scratch, int64_t columns, float *lengths,
                        const int vectors) {
    const int64_t step = sweep->pass->step[2] * vectors * LANES, channels = sweep->source.channels;
    const int32_t *entry = sweep->entry_in_sums[vectors - 1];
    const float *values = sweep->basis_by_orbit;
#define ROOT(of, p) { \
        const vec square = p[0][v] * p[0][v] + p[1][v] * p[1][v] + TINY_SQUARE; \
        store(to + of * channels + v * LANES, square * inverse_root(square)); \
    }
#define CASE(o, e) \
    for (int64_t column = 0; column < columns; column++) { \
        const struct NAME(pairs) found = respond_pairs(sweep, scratch->sums + column * step, entry, values + odd, \
                                                       values + even, o, e, vectors); \
        float *to = lengths + column * sweep->response_row; \
        UNROLL for (int v = 0; v < vectors; v++) { \
            if (o) ROOT(odd, found.odd) \
            if (e) ROOT(even, found.even) \
        } \
    }
    FOR_BLOCKS_OF_PAIRS
#undef CASE
#undef ROOT
}

/* responses (sites, pairs, source channels) of a tile: the lengths, mixed and written. */
static void NAME(harmonic_tile)(const struct sweep *sweep, int64_t index, const struct scratch *scratch) {
    struct NAME(tile) tile = tile_of(&sweep->tiling, index);
    for (int64_t row = 0; row < tile.rows; row++) {
        float *lengths = scratch->responses + row * tile.columns * sweep->response_row;
        find_rows(sweep, tile.first_row + row, scratch);
        int64_t channel = 0;
        for (; channel + 2 * LANES <= sweep->source.channels; channel += 2 * LANES) {
            add_rows(sweep, tile.first_column, tile.columns, channel, scratch, 2);
            lengths_row(sweep, scratch, tile.columns, lengths + channel, 2);
        }
        if (channel < sweep->source.channels) {
            add_rows(sweep, tile.first_column, tile.columns, channel, scratch, 1);
            lengths_row(sweep, scratch, tile.columns, lengths + channel, 1);
        }
    }
    mix_and_write(sweep, tile, scratch);
}

/* ---- backwards ---- */

/* From the gradient of the lengths (`pulled`) of a row: the lengths once more, and the gradient of the pairs, to
 * pairs (columns, pairs, cosine and sine, channels). */
#define pull_row NAME(pull_row)
INLINE void pull_row(const struct sweep *sweep, const struct scratch *scratch, int64_t columns, const float *pulled,
                     float *lengths, float *pairs, const int vectors) {
    const int64_t step = sweep->pass->step[2] * vectors * LANES, channels = sweep->source.channels;
    const int64_t pair_row = 2 * sweep->pass->rings * channels;
    const int32_t *entry = sweep->entry_in_sums[vectors - 1];
    const float *values = sweep->basis_by_orbit;
#define PULL(of, p) { \
        const vec square = p[0][v] * p[0][v] + p[1][v] * p[1][v] + TINY_SQUARE, inverse = inverse_root(square); \
        const vec scale = load(pulled + at + of * channels + v * LANES) * inverse; \
        store(lengths + at + of * channels + v * LANES, square * inverse); \
        store(to + 2 * of * channels + v * LANES, scale * p[0][v]); \
        store(to + (2 * of + 1) * channels + v * LANES, scale * p[1][v]); \
    }
#define CASE(o, e) \
    for (int64_t column = 0; column < columns; column++) { \
        const struct NAME(pairs) found = respond_pairs(sweep, scratch->sums + column * step, entry, values + odd, \
                                                       values + even, o, e, vectors); \
        const int64_t at = column * sweep->response_row; \
        float *to = pairs + column * pair_row; \
        UNROLL for (int v = 0; v < vectors; v++) { \
            if (o) PULL(odd, found.odd) \
            if (e) PULL(even, found.even) \
        } \
    }
    FOR_BLOCKS_OF_PAIRS
#undef CASE
#undef PULL
}

/* accumulated (half, cosine and sine, pairs, 2 vectors) += the gradient of the pairs times what the taps see. */
#define accumulate_pairs_row NAME(accumulate_pairs_row)
INLINE void accumulate_pairs_row(const struct sweep *sweep, const struct scratch *scratch, int64_t columns,
                                 const float *pairs, float *accumulated, const int vectors) {
    const int64_t step = sweep->pass->step[2] * vectors * LANES, channels = sweep->source.channels;
    const int64_t half = sweep->pass->orbits / 2, count = sweep->pass->rings, pair_row = 2 * count * channels;
#define ADD(of, total, value) \
    for (int p = 0; p < 2; p++) total[p][v] += load(from + (2 * of + p) * channels + v * LANES) * (value)
#define KEEP(of, total) \
    for (int p = 0; p < 2; p++) { \
        float *to = accumulated + ((2 * tap + p) * count + of) * 2 * LANES + v * LANES; \
        store(to, load(to) + total[p][v]); \
    }
#define CASE(o, e) \
    for (int64_t tap = 0; tap < half; tap++) { \
        const int32_t *entry = sweep->entry_in_sums[vectors - 1] + 2 * tap; \
        const float *sums = scratch->sums, *from = pairs; \
        vec of_odd[2][2] = {{{0}}}, of_even[2][2] = {{{0}}}; \
        for (int64_t column = 0; column < columns; column++, sums += step, from += pair_row) \
            UNROLL for (int v = 0; v < vectors; v++) { \
                const vec here = load(sums + entry[0] + v * LANES), there = load(sums + entry[1] + v * LANES); \
                if (o) ADD(odd, of_odd, here - there); \
                if (e) ADD(even, of_even, here + there); \
            } \
        UNROLL for (int v = 0; v < vectors; v++) { \
            if (o) KEEP(odd, of_odd) \
            if (e) KEEP(even, of_even) \
        } \
    }
    FOR_BLOCKS_OF_PAIRS
#undef CASE
#undef KEEP
#undef ADD
}

/* source: x; companion: dy. Fills sweep->pairs with the gradient of the pairs, and accumulates that of the weight (groups,
 * pairs, source_group, panels), if wanted, and of the basis. */
static void NAME(harmonic_pull_tile)(const struct sweep *sweep, int64_t index, const struct scratch *scratch) {
    struct NAME(tile) tile = tile_of(&sweep->tiling, index);
    const int64_t channels = sweep->source.channels, pair_row = 2 * sweep->pass->rings * channels;
    pull_back(sweep, tile, scratch);
    for (int64_t row = 0; row < tile.rows; row++) {
        const int64_t site = (tile.first_row + row) * sweep->tiling.columns + tile.first_column;
        const int64_t at = row * tile.columns * sweep->response_row;
        find_rows(sweep, tile.first_row + row, scratch);
#define BLOCK(vectors) \
        float *pairs = sweep->pairs + site * pair_row + channel; \
        add_rows(sweep, tile.first_column, tile.columns, channel, scratch, vectors); \
        pull_row(sweep, scratch, tile.columns, scratch->responses + at + channel, scratch->lengths + at + channel, \
                 pairs, vectors); \
        if (sweep->with_basis) \
            accumulate_pairs_row(sweep, scratch, tile.columns, pairs, scratch->accumulated + sweep->weight_floats, \
                                 vectors)
        int64_t channel = 0;
        for (; channel + 2 * LANES <= channels; channel += 2 * LANES) {
            BLOCK(2);
        }
        if (channel < channels) {
            BLOCK(1);
        }
#undef BLOCK
    }
    if (sweep->weight_floats) {
        struct scratch of_lengths = *scratch;
        of_lengths.responses = scratch->lengths;
        accumulate_weight(sweep, tile, &of_lengths);
    }
}

/* mixed (sites, channels) of one channel block += what the adjoint of one kernel makes of its row. */
#define spread_row NAME(spread_row)
INLINE void spread_row(const struct sweep *sweep, const struct scratch *scratch, int64_t columns, const float *values,
                       float *to, int64_t to_row, const int is_odd, const int first, const int vectors) {
    const int64_t step = sweep->pass->step[2] * vectors * LANES;
    const int64_t half = sweep->pass->orbits / 2, count = sweep->pass->rings;
    for (int64_t column = 0; column < columns; column++, to += to_row) {
        const float *sums = scratch->sums + column * step, *value = values;
        const int32_t *entry = sweep->entry_in_sums[vectors - 1];
        vec total[2] = {{0}, {0}};
        for (int64_t tap = 0; tap < half; tap++, entry += 2, value += 2 * count)
            UNROLL for (int v = 0; v < vectors; v++) {
                const vec here = load(sums + entry[0] + v * LANES), there = load(sums + entry[1] + v * LANES);
                /* The adjoint counts taps from the other end, which turns an odd kernel's sign. */
                total[v] += value[0] * (is_odd ? there - here : here + there);
            }
        UNROLL for (int v = 0; v < vectors; v++)
            store(to + v * LANES, first ? total[v] : load(to + v * LANES) + total[v]);
    }
}

/* source: the gradient of the pairs (pairs, cosine and sine, channels); target: dx. */
static void NAME(harmonic_spread_tile)(const struct sweep *sweep, int64_t index, const struct scratch *scratch) {
    struct NAME(tile) tile = tile_of(&sweep->tiling, index);
    const int64_t count = sweep->pass->rings, channels = sweep->source.channels / (2 * count);
    for (int64_t row = 0; row < tile.rows; row++) {
        float *mixed = scratch->mixed + row * tile.columns * channels;
        find_rows(sweep, tile.first_row + row, scratch);
        for (int64_t channel = 0; channel < channels; channel += 2 * LANES)
            for (int at = 0; at < 2 * count; at++) {
                const int pair = sweep->pair_order[at / 2], is_odd = at / 2 < sweep->odd_pairs, first = at == 0;
                const float *values = sweep->basis_by_orbit + at % 2 * count + pair;
                const int64_t from = (2 * pair + at % 2) * channels + channel;
#define CASE(odd, vectors) { \
                    add_rows(sweep, tile.first_column, tile.columns, from, scratch, vectors); \
                    spread_row(sweep, scratch, tile.columns, values, mixed + channel, channels, odd, first, vectors); \
                }
                if (channel + 2 * LANES <= channels) {
                    if (is_odd) CASE(1, 2) else CASE(0, 2)
                } else {
                    if (is_odd) CASE(1, 1) else CASE(0, 1)
                }
#undef CASE
            }
    }
    write_tile(sweep, tile, scratch, channels);
}
