/* The kernels, written once with vector extensions and included once per instruction set by ring_conv.c, which defines
 *   ISA         the suffix of all names, and ISA_NAME the same as a string
 *   LANES       floats per vector
 *   TILE_ROWS   rows of the matrix product's register tile; it is two vectors wide
 *   RING_BLOCK  rings that fit into the registers beside two vectors of sums
 */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(x) JOIN(x, ISA)
#define vec NAME(vec)
#define unaligned NAME(unaligned)
#define PANEL (2 * LANES)
/* Depth of a block of the matrix product: such a block of a panel stays in the first-level cache. */
#define DEPTH_BLOCK (4096 / PANEL)

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define load NAME(load)
#define store NAME(store)
INLINE vec load(const float *from) { return *(const unaligned *)from; }
INLINE void store(float *to, vec value) { *(unaligned *)to = value; }

/* ---- layout: between (channels, sites) or bfloat16 and float32 channels last ---- */

#define load8 NAME(load8)
#define store8 NAME(store8)
INLINE float8 load8(const void *data, int64_t at, int bfloat16) {
    float8 value;
    if (bfloat16) {
        half8 bits;
        memcpy(&bits, (const uint16_t *)data + at, sizeof bits);
        word8 words = __builtin_convertvector(bits, word8) << 16;
        memcpy(&value, &words, sizeof value);
    } else {
        memcpy(&value, (const float *)data + at, sizeof value);
    }
    return value;
}

INLINE void store8(void *data, int64_t at, float8 value, int bfloat16) {
    if (bfloat16) {
        word8 words;
        memcpy(&words, &value, sizeof words);
        /* Round to nearest even; what is not a number stays so. */
        word8 rounded = (words + 0x7fff + ((words >> 16) & 1)) >> 16;
        word8 is_nan = (word8)((words & 0x7fffffff) > 0x7f800000);
        half8 bits = __builtin_convertvector((rounded & ~is_nan) | (((words >> 16) | 0x40) & is_nan), half8);
        memcpy((uint16_t *)data + at, &bits, sizeof bits);
    } else {
        memcpy((float *)data + at, &value, sizeof value);
    }
}

#define load_one NAME(load_one)
#define store_one NAME(store_one)
INLINE float load_one(const void *data, int64_t at, int bfloat16) {
    if (!bfloat16) return ((const float *)data)[at];
    uint32_t word = (uint32_t)((const uint16_t *)data)[at] << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

INLINE void store_one(void *data, int64_t at, float value, int bfloat16) {
    if (!bfloat16) {
        ((float *)data)[at] = value;
        return;
    }
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    int is_nan = (word & 0x7fffffff) > 0x7f800000;
    ((uint16_t *)data)[at] = (uint16_t)(is_nan ? (word >> 16) | 0x40 : (word + 0x7fff + ((word >> 16) & 1)) >> 16);
}

#define transpose8 NAME(transpose8)
INLINE void transpose8(float8 r[8]) {
    float8 a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = SHUFFLE(r[i], r[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        a[i + 1] = SHUFFLE(r[i], r[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = i; j < i + 2; j++) {
            b[j] = SHUFFLE(a[j], a[j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            b[j + 2] = SHUFFLE(a[j], a[j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int j = 0; j < 4; j++) {
        r[j] = SHUFFLE(b[j], b[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[j + 4] = SHUFFLE(b[j], b[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

/* Sites first..last of one sample, to out (last - first, padded), zeros in the padding. */
#define lay_out_as NAME(lay_out_as)
INLINE void lay_out_as(const struct ring_maps *maps, int64_t sites, int64_t sample, int64_t first, int64_t last,
                       float *out, int64_t padded, const int bfloat16) {
    const int64_t channels = maps->channels;
    const int64_t whole = maps->channels_last ? channels : channels / 8 * 8;
    if (maps->channels_last) {
        for (int64_t site = first; site < last; site++) {
            int64_t from = (sample * sites + site) * channels, c = 0;
            float *to = out + (site - first) * padded;
            for (; c + 8 <= channels; c += 8) store8(to, c, load8(maps->data, from + c, bfloat16), 0);
            for (; c < channels; c++) to[c] = load_one(maps->data, from + c, bfloat16);
        }
    } else {
        for (int64_t c = 0; c < whole; c += 8) {
            int64_t from = (sample * channels + c) * sites, site = first;
            for (; site + 8 <= last; site += 8) {
                float8 block[8];
                for (int i = 0; i < 8; i++) block[i] = load8(maps->data, from + i * sites + site, bfloat16);
                transpose8(block);
                for (int i = 0; i < 8; i++) store8(out, (site - first + i) * padded + c, block[i], 0);
            }
            for (; site < last; site++)
                for (int i = 0; i < 8; i++)
                    out[(site - first) * padded + c + i] = load_one(maps->data, from + i * sites + site, bfloat16);
        }
        for (int64_t c = whole; c < channels; c++)
            for (int64_t site = first; site < last; site++)
                out[(site - first) * padded + c] =
                    load_one(maps->data, (sample * channels + c) * sites + site, bfloat16);
    }
    for (int64_t site = first; padded > channels && site < last; site++)
        memset(out + (site - first) * padded + channels, 0, sizeof(float) * (size_t)(padded - channels));
}

static void NAME(lay_out)(const struct ring_maps *maps, int64_t sites, int64_t sample, int64_t first, int64_t last,
                          float *out, int64_t padded) {
    if (maps->bfloat16)
        lay_out_as(maps, sites, sample, first, last, out, padded, 1);
    else
        lay_out_as(maps, sites, sample, first, last, out, padded, 0);
}

/* The way back: `count` sites from `first` on, from values (count, row). */
#define write_as NAME(write_as)
INLINE void write_as(const struct ring_maps *maps, int64_t sites, int64_t sample, int64_t first, int64_t count,
                     const float *values, int64_t row, const int bfloat16) {
    const int64_t channels = maps->channels;
    if (maps->channels_last) {
        for (int64_t site = 0; site < count; site++) {
            int64_t to = (sample * sites + first + site) * channels, c = 0;
            const float *from = values + site * row;
            for (; c + 8 <= channels; c += 8) store8(maps->data, to + c, load8(from, c, 0), bfloat16);
            for (; c < channels; c++) store_one(maps->data, to + c, from[c], bfloat16);
        }
        return;
    }
    int64_t c = 0;
    for (; c + 8 <= channels; c += 8) {
        int64_t to = (sample * channels + c) * sites + first, site = 0;
        for (; site + 8 <= count; site += 8) {
            float8 block[8];
            for (int i = 0; i < 8; i++) block[i] = load8(values, (site + i) * row + c, 0);
            transpose8(block);
            for (int i = 0; i < 8; i++) store8(maps->data, to + i * sites + site, block[i], bfloat16);
        }
        for (; site < count; site++)
            for (int i = 0; i < 8; i++)
                store_one(maps->data, to + i * sites + site, values[site * row + c + i], bfloat16);
    }
    for (; c < channels; c++)
        for (int64_t site = 0; site < count; site++)
            store_one(maps->data, (sample * channels + c) * sites + first + site, values[site * row + c], bfloat16);
}

/* ---- the ring pass ---- */

struct NAME(tile) {
    int64_t first_row, rows, first_column, columns, sites;
};

#define tile_of NAME(tile_of)
static struct NAME(tile) tile_of(const struct tiling *tiling, int64_t index) {
    struct NAME(tile) tile;
    tile.first_row = index / tiling->column_tiles * tiling->rows_per_tile;
    tile.first_column = index % tiling->column_tiles * tiling->columns_per_tile;
    int64_t rows = tiling->rows - tile.first_row, columns = tiling->columns - tile.first_column;
    tile.rows = rows < tiling->rows_per_tile ? rows : tiling->rows_per_tile;
    tile.columns = columns < tiling->columns_per_tile ? columns : tiling->columns_per_tile;
    tile.sites = tile.rows * tile.columns;
    return tile;
}

/* The source rows under each class at one target row, those that are zero left out. */
#define find_rows NAME(find_rows)
static void find_rows(const struct sweep *sweep, int64_t target_row, const struct scratch *scratch) {
    const struct ring_pass *pass = sweep->pass;
    const int64_t y = target_row % pass->target[1], z = target_row / pass->target[1] % pass->target[0];
    const int64_t sample = target_row / pass->target[1] / pass->target[0];
    const int64_t row_size = pass->source[2] * sweep->source.channels;
    int32_t found = 0;
    for (int class = 0; class < pass->classes; class++) {
        scratch->class_rows[class] = found;
        for (int row = pass->class_start[class]; row < pass->class_start[class + 1]; row++) {
            int32_t from_z = pass->source_of[0][pass->step[0] * z + pass->row_offset[2 * row]];
            int32_t from_y = pass->source_of[1][pass->step[1] * y + pass->row_offset[2 * row + 1]];
            if (from_z < 0 || from_y < 0) continue;
            int64_t source_row = (sample * pass->source[0] + from_z) * pass->source[1] + from_y;
            scratch->rows[found++] = sweep->source.data + source_row * row_size;
        }
    }
    scratch->class_rows[pass->classes] = found;
}

/* sums (classes, sum_columns, vectors): the rows of each class added, for a block of channels. */
#define add_rows NAME(add_rows)
INLINE void add_rows(const struct sweep *sweep, int64_t first_column, int64_t columns, int64_t channel,
                     const struct scratch *scratch, const int vectors) {
    const struct ring_pass *pass = sweep->pass;
    const int32_t *source_of = pass->source_of[2] + pass->step[2] * first_column;
    const int64_t width = pass->step[2] * (columns - 1) + pass->span, channels = sweep->source.channels;
    for (int class = 0; class < pass->classes; class++) {
        const float *const *rows = scratch->rows + scratch->class_rows[class];
        const int count = scratch->class_rows[class + 1] - scratch->class_rows[class];
        float *sums = scratch->sums + class * sweep->sum_columns * vectors * LANES;
        for (int64_t at = 0; at < width; at++, sums += vectors * LANES) {
            vec sum[2] = {{0}, {0}};
            if (source_of[at] >= 0 && count > 0) {
                const int64_t from = source_of[at] * channels + channel;
                for (int v = 0; v < vectors; v++) sum[v] = load(rows[0] + from + v * LANES);
                for (int row = 1; row < count; row++)
                    for (int v = 0; v < vectors; v++) sum[v] += load(rows[row] + from + v * LANES);
                /* The next block of channels is read with the same large strides, which the hardware does not foresee. */
                for (int row = 0; row < count; row++) __builtin_prefetch(rows[row] + from + vectors * LANES);
            }
            for (int v = 0; v < vectors; v++) store(sums + v * LANES, sum[v]);
        }
    }
}

/* to (sites, vectors) = the sum of `count` entries, added to what is there unless this is the first lot of them. */
#define add_lot NAME(add_lot)
INLINE void add_lot(const float *sums, const int32_t *entry, int64_t sites, int64_t step, float *to, const int count,
                    const int first, const int vectors) {
    const float *from[4];
    UNROLL for (int e = 0; e < count; e++) from[e] = sums + entry[e];
    for (int64_t site = 0, at = 0; site < sites; site++, at += step, to += vectors * LANES)
        UNROLL for (int v = 0; v < vectors; v++) {
            vec sum = load(from[0] + at + v * LANES);
            UNROLL for (int e = 1; e < count; e++) sum += load(from[e] + at + v * LANES);
            store(to + v * LANES, first ? sum : load(to + v * LANES) + sum);
        }
}

/* orbit_sums (orbits, sites, vectors) of consecutive sites of a row, from the sums of the classes. */
#define add_entries NAME(add_entries)
INLINE void add_entries(const struct sweep *sweep, const struct scratch *scratch, int64_t column, int64_t sites,
                        const int vectors) {
#define CASE(n, first) case n: add_lot(sums, entry, sites, step, to, n, first, vectors); break
    const struct ring_pass *pass = sweep->pass;
    const int64_t step = pass->step[2] * vectors * LANES;
    const float *sums = scratch->sums + column * step;
    for (int64_t orbit = 0; orbit < pass->orbits; orbit++) {
        const int32_t *entry = sweep->entry_in_sums[vectors - 1] + pass->orbit_start[orbit];
        int left = pass->orbit_start[orbit + 1] - pass->orbit_start[orbit];
        float *to = scratch->orbit_sums + orbit * sites * vectors * LANES;
        switch (left < 4 ? left : 4) { CASE(1, 1); CASE(2, 1); CASE(3, 1); CASE(4, 1); }
        for (left -= 4, entry += 4; left > 0; left -= 4, entry += 4)
            switch (left < 4 ? left : 4) { CASE(1, 0); CASE(2, 0); CASE(3, 0); CASE(4, 0); }
    }
#undef CASE
}

/* `rings` of the responses of consecutive sites, from the orbits' sums. */
#define respond NAME(respond)
INLINE void respond(const struct sweep *sweep, const float *orbit_sums, int64_t sites, const float *basis,
                    float *responses, const int rings, const int vectors) {
    const int64_t channels = sweep->source.channels, orbits = sweep->pass->orbits, all_rings = sweep->pass->rings;
    for (int64_t site = 0; site < sites; site++) {
        vec response[RING_BLOCK][2];
        UNROLL for (int i = 0; i < rings; i++) for (int v = 0; v < vectors; v++) response[i][v] = (vec){0};
        const float *from = orbit_sums + site * vectors * LANES, *value = basis;
        for (int64_t orbit = 0; orbit < orbits; orbit++) {
            vec sum[2];
            UNROLL for (int v = 0; v < vectors; v++) sum[v] = load(from + v * LANES);
            UNROLL for (int i = 0; i < rings; i++)
                for (int v = 0; v < vectors; v++) response[i][v] += value[i] * sum[v];
            from += sites * vectors * LANES;
            value += all_rings;
        }
        UNROLL for (int i = 0; i < rings; i++)
            for (int v = 0; v < vectors; v++) store(responses + i * channels + v * LANES, response[i][v]);
        responses += sweep->response_row;
    }
}

/* Calls what CASE(n) stands for on blocks of n rings, the first of which is `first`. */
#define FOR_BLOCKS_OF_RINGS \
    for (int blocks = (sweep->pass->rings + RING_BLOCK - 1) / RING_BLOCK, first = 0, size; blocks > 0; first += size) { \
        size = (sweep->pass->rings - first) / blocks--; \
        switch (size) { CASE(1); CASE(2); CASE(3); CASE(4); CASE(5); CASE(6); } \
    }

#define respond_row NAME(respond_row)
INLINE void respond_row(const struct sweep *sweep, const struct scratch *scratch, int64_t columns, float *responses,
                        const int vectors) {
#define CASE(n) case n: respond(sweep, scratch->orbit_sums, sites, sweep->basis_by_orbit + first, \
                                responses + first * sweep->source.channels, n, vectors); break
    for (int64_t column = 0, sites; column < columns; column += sites) {
        sites = columns - column < sweep->sites_at_once ? columns - column : sweep->sites_at_once;
        add_entries(sweep, scratch, column, sites, vectors);
        FOR_BLOCKS_OF_RINGS
        responses += sites * sweep->response_row;
    }
#undef CASE
}

/* The ring responses of a tile: (sites, rings, source channels). */
#define respond_tile NAME(respond_tile)
static void respond_tile(const struct sweep *sweep, struct NAME(tile) tile, const struct scratch *scratch) {
    for (int64_t row = 0; row < tile.rows; row++) {
        float *responses = scratch->responses + row * tile.columns * sweep->response_row;
        find_rows(sweep, tile.first_row + row, scratch);
        int64_t channel = 0;
        for (; channel + 2 * LANES <= sweep->source.channels; channel += 2 * LANES) {
            add_rows(sweep, tile.first_column, tile.columns, channel, scratch, 2);
            respond_row(sweep, scratch, tile.columns, responses + channel, 2);
        }
        if (channel < sweep->source.channels) {
            add_rows(sweep, tile.first_column, tile.columns, channel, scratch, 1);
            respond_row(sweep, scratch, tile.columns, responses + channel, 1);
        }
    }
}

/* ---- one channel per group: the kernel of a channel weights its orbits at once, without rings between ---- */

#define convolve_row NAME(convolve_row)
INLINE void convolve_row(const struct sweep *sweep, const struct scratch *scratch, int64_t columns, int64_t channel,
                         float *to, const int vectors) {
    const int64_t channels = sweep->source.channels, orbits = sweep->pass->orbits;
    for (int64_t column = 0, sites; column < columns; column += sites) {
        sites = columns - column < sweep->sites_at_once ? columns - column : sweep->sites_at_once;
        add_entries(sweep, scratch, column, sites, vectors);
        for (int64_t site = 0; site < sites; site++, to += channels) {
            const float *from = scratch->orbit_sums + site * vectors * LANES, *value = sweep->kernel_by_orbit + channel;
            vec sum[2];
            UNROLL for (int v = 0; v < vectors; v++)
                sum[v] = sweep->bias ? load(sweep->bias + channel + v * LANES) : (vec){0};
            for (int64_t orbit = 0; orbit < orbits; orbit++, from += sites * vectors * LANES, value += channels)
                UNROLL for (int v = 0; v < vectors; v++) sum[v] += load(value + v * LANES) * load(from + v * LANES);
            UNROLL for (int v = 0; v < vectors; v++) store(to + v * LANES, sum[v]);
        }
    }
}

/* mixed (sites, source channels) of a tile. */
#define convolve_tile NAME(convolve_tile)
static void convolve_tile(const struct sweep *sweep, struct NAME(tile) tile, const struct scratch *scratch) {
    const int64_t channels = sweep->source.channels;
    for (int64_t row = 0; row < tile.rows; row++) {
        float *to = scratch->mixed + row * tile.columns * channels;
        find_rows(sweep, tile.first_row + row, scratch);
        int64_t channel = 0;
        for (; channel + 2 * LANES <= channels; channel += 2 * LANES) {
            add_rows(sweep, tile.first_column, tile.columns, channel, scratch, 2);
            convolve_row(sweep, scratch, tile.columns, channel, to + channel, 2);
        }
        if (channel < channels) {
            add_rows(sweep, tile.first_column, tile.columns, channel, scratch, 1);
            convolve_row(sweep, scratch, tile.columns, channel, to + channel, 1);
        }
    }
}

/* ---- matrix products ---- */

/* One register tile: sum (rows, vectors) += a (depth, rows) . b (depth, PANEL), with the strides of a given. */
#define multiply NAME(multiply)
INLINE void multiply(const int rows, const int vectors, int64_t depth, const float *a, int64_t a_row, int64_t a_step,
                     const float *b, vec sum[TILE_ROWS][2]) {
    vec total[TILE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) total[r][v] = sum[r][v];
    for (int64_t k = 0; k < depth; k++) {
        vec right[2];
        for (int v = 0; v < vectors; v++) right[v] = load(b + v * LANES);
        UNROLL for (int r = 0; r < rows; r++) {
            const float value = a[r * a_row];
            for (int v = 0; v < vectors; v++) total[r][v] += value * right[v];
        }
        a += a_step;
        b += PANEL;
    }
    UNROLL for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sum[r][v] = total[r][v];
}

/* The same, with the sum in memory: c (rows, columns <= vectors * LANES) = start (PANEL) + a . b, or c += a . b if `start`
 * is NULL. That product is summed by itself first, so that the error of a long sum grows with the number of its parts and
 * not with that of its terms. */
#define multiply_vectors NAME(multiply_vectors)
INLINE void multiply_vectors(const int rows, const int vectors, int64_t depth, const float *a, int64_t a_row,
                             int64_t a_step, const float *b, const float *start, float *c, int64_t c_row,
                             int64_t columns) {
    vec sum[TILE_ROWS][2];
    float edge[TILE_ROWS * PANEL];
    float *to = c;
    int64_t to_row = c_row;
    const int64_t width = vectors * LANES;
    if (columns < width) {
        to = edge;
        to_row = width;
        for (int r = 0; !start && r < rows; r++) memcpy(edge + r * width, c + r * c_row, sizeof(float) * (size_t)columns);
        for (int r = 0; !start && r < rows; r++)
            memset(edge + r * width + columns, 0, sizeof(float) * (size_t)(width - columns));
    }
    UNROLL for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sum[r][v] = start ? load(start + v * LANES) : (vec){0};
    multiply(rows, vectors, depth, a, a_row, a_step, b, sum);
    if (!start) {
        UNROLL for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++) sum[r][v] += load(to + r * to_row + v * LANES);
    }
    UNROLL for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) store(to + r * to_row + v * LANES, sum[r][v]);
    for (int r = 0; columns < width && r < rows; r++)
        memcpy(c + r * c_row, edge + r * width, sizeof(float) * (size_t)columns);
}

/* Columns that fit into one vector do not pay for the second one of their panel. */
#define multiply_into NAME(multiply_into)
INLINE void multiply_into(const int rows, int64_t depth, const float *a, int64_t a_row, int64_t a_step,
                          const float *b, const float *start, float *c, int64_t c_row, int64_t columns) {
    if (columns > LANES)
        multiply_vectors(rows, 2, depth, a, a_row, a_step, b, start, c, c_row, columns);
    else
        multiply_vectors(rows, 1, depth, a, a_row, a_step, b, start, c, c_row, columns);
}

#if TILE_ROWS > 6
#define ROW_CASES CASE(1); CASE(2); CASE(3); CASE(4); CASE(5); CASE(6); CASE(7); CASE(8); CASE(9); CASE(10); CASE(11); CASE(12);
#else
#define ROW_CASES CASE(1); CASE(2); CASE(3); CASE(4); CASE(5); CASE(6);
#endif

/* c (count, columns) = start + a . b, over `segments` of the depth that lie segment_step apart in a. */
#define product NAME(product)
static void product(int64_t count, const float *a, int64_t a_row, int64_t segments, int64_t segment_step,
                    int64_t depth, const float *b, int64_t panel_step, const float *bias, float *c, int64_t c_row,
                    int64_t columns) {
    static const float zeros[PANEL];
    const int64_t blocks = (depth + DEPTH_BLOCK - 1) / DEPTH_BLOCK;
    for (int64_t segment = 0; segment < segments; segment++)
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t from = depth * block / blocks, size = depth * (block + 1) / blocks - from;
            const int first_block = segment == 0 && block == 0;
            for (int64_t column = 0; column < columns; column += PANEL) {
                const float *b_block = b + column / PANEL * panel_step + (segment * depth + from) * PANEL;
                const float *start = first_block ? (bias ? bias + column : zeros) : NULL;
                const int64_t width = columns - column < PANEL ? columns - column : PANEL;
                for (int64_t row = 0; row < count; row += TILE_ROWS) {
                    const float *a_block = a + row * a_row + segment * segment_step + from;
                    float *c_block = c + row * c_row + column;
#define CASE(n) case n: multiply_into(n, size, a_block, a_row, 1, b_block, start, c_block, c_row, width); break
                    switch (count - row < TILE_ROWS ? count - row : TILE_ROWS) { ROW_CASES }
#undef CASE
                }
            }
        }
}

/* c (rows, panels * PANEL) += a^T . b with a (count, a_row), of which `rows` columns count, and b in panels, of which
 * `columns` count. */
#define product_transposed NAME(product_transposed)
static void product_transposed(int64_t count, const float *a, int64_t a_row, int64_t rows, const float *b,
                               int64_t columns, float *c) {
    const int64_t panels = (columns + PANEL - 1) / PANEL;
    for (int64_t row = 0; row < rows; row += TILE_ROWS)
        for (int64_t panel = 0; panel < panels; panel++) {
            const float *b_panel = b + panel * count * PANEL;
            float *c_block = c + (row * panels + panel) * PANEL;
            const int64_t width = columns - panel * PANEL <= LANES ? LANES : PANEL;
#define CASE(n) case n: multiply_into(n, count, a + row, 1, a_row, b_panel, NULL, c_block, panels * PANEL, width); break
            switch (rows - row < TILE_ROWS ? rows - row : TILE_ROWS) { ROW_CASES }
#undef CASE
        }
}

/* ---- tiles ---- */

/* One channel per group: the mixing is a sum over rings, channel by channel. */
#define is_depthwise(sweep) ((sweep)->source_group == 1 && (sweep)->target_group == 1 && (sweep)->groups > 1)

#define mix_depthwise NAME(mix_depthwise)
static void mix_depthwise(const struct sweep *sweep, int64_t sites, const struct scratch *scratch) {
    const int64_t channels = sweep->source.channels;
    for (int64_t site = 0; site < sites; site++)
        for (int64_t c = 0; c < channels; c += LANES) {
            const float *response = scratch->responses + site * sweep->response_row + c;
            vec sum = {0};
            for (int ring = 0; ring < sweep->pass->rings; ring++)
                sum += load(sweep->panels + ring * channels + c) * load(response + ring * channels);
            store(scratch->mixed + site * channels + c, sum);
        }
}

/* Columns of a product, with the zeros that the packed weight is padded with if nothing else lies behind them. */
#define product_columns NAME(product_columns)
INLINE int64_t product_columns(const struct sweep *sweep, int64_t columns) {
    return sweep->groups == 1 ? round_up(columns, LANES) : columns;
}

/* mixed (sites, groups * columns) from the responses. */
#define mix NAME(mix)
static void mix(const struct sweep *sweep, int64_t sites, const struct scratch *scratch) {
    const int64_t rings = sweep->pass->rings, depth = rings * sweep->source_group;
    const int64_t panels = (sweep->target_group + PANEL - 1) / PANEL;
    const int64_t columns = product_columns(sweep, sweep->target_group);
    const int whole = sweep->source.channels == sweep->source_group; /* the rings' channels lie side by side */
    for (int64_t group = 0; group < sweep->groups; group++)
        product(sites, scratch->responses + group * sweep->source_group, sweep->response_row, whole ? 1 : rings,
                sweep->source.channels, whole ? depth : sweep->source_group,
                sweep->panels + group * panels * depth * PANEL, depth * PANEL,
                sweep->bias ? sweep->bias + group * panels * PANEL : NULL, scratch->mixed + group * columns,
                sweep->groups * columns, columns);
}

#define write_tile NAME(write_tile)
static void write_tile(const struct sweep *sweep, struct NAME(tile) tile, const struct scratch *scratch,
                       int64_t mixed_row) {
    const struct ring_pass *pass = sweep->pass;
    const struct ring_maps *maps = sweep->target;
    const int64_t rows = (int64_t)pass->target[0] * pass->target[1], sites = rows * pass->target[2];
    for (int64_t row = 0; row < tile.rows; row++) {
        const int64_t sample = (tile.first_row + row) / rows, in_sample = (tile.first_row + row) % rows;
        const int64_t site = in_sample * pass->target[2] + tile.first_column;
        const float *values = scratch->mixed + row * tile.columns * mixed_row;
        if (maps->bfloat16)
            write_as(maps, sites, sample, site, tile.columns, values, mixed_row, 1);
        else
            write_as(maps, sites, sample, site, tile.columns, values, mixed_row, 0);
    }
}

#define mix_and_write NAME(mix_and_write)
static void mix_and_write(const struct sweep *sweep, struct NAME(tile) tile, const struct scratch *scratch) {
    if (is_depthwise(sweep)) {
        mix_depthwise(sweep, tile.sites, scratch);
        write_tile(sweep, tile, scratch, sweep->source.channels);
    } else {
        mix(sweep, tile.sites, scratch);
        write_tile(sweep, tile, scratch, sweep->groups * product_columns(sweep, sweep->target_group));
    }
}

static void NAME(forward_tile)(const struct sweep *sweep, int64_t index, const struct scratch *scratch) {
    struct NAME(tile) tile = tile_of(&sweep->tiling, index);
    if (sweep->kernel_by_orbit) {
        convolve_tile(sweep, tile, scratch);
        write_tile(sweep, tile, scratch, sweep->source.channels);
    } else {
        respond_tile(sweep, tile, scratch);
        mix_and_write(sweep, tile, scratch);
    }
}

/* The companion at a site of the tile, counted in rows and columns of the tile. */
#define companion_at NAME(companion_at)
INLINE const float *companion_at(const struct sweep *sweep, struct NAME(tile) tile, int64_t row, int64_t column) {
    const int64_t site = (tile.first_row + row) * sweep->tiling.columns + tile.first_column + column;
    return sweep->companion.data + site * sweep->companion.channels;
}

/* accumulated (rings, padded channels) += responses * companion, channel by channel. */
#define accumulate_depthwise NAME(accumulate_depthwise)
static void accumulate_depthwise(const struct sweep *sweep, struct NAME(tile) tile, const struct scratch *scratch) {
    const int64_t channels = sweep->source.channels;
    for (int ring = 0; ring < sweep->pass->rings; ring++)
        for (int64_t c = 0; c < channels; c += LANES) {
            const float *response = scratch->responses + ring * channels + c;
            vec sum = {0};
            for (int64_t row = 0; row < tile.rows; row++)
                for (int64_t column = 0; column < tile.columns; column++, response += sweep->response_row)
                    sum += load(response) * load(companion_at(sweep, tile, row, column) + c);
            float *to = scratch->accumulated + ring * channels + c;
            store(to, load(to) + sum);
        }
}

/* accumulated (groups, rings, source_group, panels * PANEL) += responses^T . companion. */
#define accumulate_weight NAME(accumulate_weight)
static void accumulate_weight(const struct sweep *sweep, struct NAME(tile) tile, const struct scratch *scratch) {
    const int64_t rings = sweep->pass->rings, channels = sweep->companion_group;
    const int64_t panels = (channels + PANEL - 1) / PANEL, group_size = rings * sweep->source_group * panels * PANEL;
    const int whole = sweep->source.channels == sweep->source_group;
    for (int64_t group = 0; group < sweep->groups; group++) {
        for (int64_t panel = 0; panel < panels; panel++) {
            const int64_t left = channels - panel * PANEL, width = left < PANEL ? left : PANEL;
            float *to = scratch->companion + panel * tile.sites * PANEL;
            for (int64_t row = 0; row < tile.rows; row++)
                for (int64_t column = 0; column < tile.columns; column++, to += PANEL) {
                    const float *from = companion_at(sweep, tile, row, column) + group * channels + panel * PANEL;
                    if (width == PANEL || sweep->groups == 1) {
                        store(to, load(from));
                        if (width > LANES) store(to + LANES, load(from + LANES));
                    } else {
                        for (int64_t c = 0; c < PANEL; c++) to[c] = c < width ? from[c] : 0;
                    }
                }
        }
        for (int64_t ring = 0; ring < (whole ? 1 : rings); ring++)
            product_transposed(tile.sites, scratch->responses + ring * sweep->source.channels + group * sweep->source_group,
                               sweep->response_row, whole ? rings * sweep->source_group : sweep->source_group,
                               scratch->companion, channels,
                               scratch->accumulated + group * group_size + ring * sweep->source_group * panels * PANEL);
    }
}

static void NAME(backward_tile)(const struct sweep *sweep, int64_t index, const struct scratch *scratch) {
    struct NAME(tile) tile = tile_of(&sweep->tiling, index);
    respond_tile(sweep, tile, scratch);
    if (sweep->target) mix_and_write(sweep, tile, scratch);
    if (scratch->accumulated) {
        if (is_depthwise(sweep))
            accumulate_depthwise(sweep, tile, scratch);
        else
            accumulate_weight(sweep, tile, scratch);
    }
}

/* accumulated (orbits, rings, 2 vectors) += pulled (sites, rings) * orbit sums, for a block of rings and channels. */
#define accumulate_basis NAME(accumulate_basis)
INLINE void accumulate_basis(const struct sweep *sweep, const float *orbit_sums, int64_t sites, const float *pulled,
                             float *accumulated, const int rings, const int vectors) {
    const int64_t channels = sweep->source.channels;
    for (int64_t orbit = 0; orbit < sweep->pass->orbits; orbit++) {
        const float *value = pulled;
        vec total[RING_BLOCK][2];
        UNROLL for (int i = 0; i < rings; i++) for (int v = 0; v < vectors; v++) total[i][v] = (vec){0};
        for (int64_t site = 0; site < sites; site++, value += sweep->response_row) {
            vec sum[2];
            UNROLL for (int v = 0; v < vectors; v++, orbit_sums += LANES) sum[v] = load(orbit_sums);
            UNROLL for (int i = 0; i < rings; i++)
                for (int v = 0; v < vectors; v++) total[i][v] += load(value + i * channels + v * LANES) * sum[v];
        }
        UNROLL for (int i = 0; i < rings; i++)
            for (int v = 0; v < vectors; v++) {
                float *to = accumulated + (i * 2 + v) * LANES;
                store(to, load(to) + total[i][v]);
            }
        accumulated += sweep->pass->rings * 2 * LANES;
    }
}

#define accumulate_basis_row NAME(accumulate_basis_row)
INLINE void accumulate_basis_row(const struct sweep *sweep, const struct scratch *scratch, int64_t columns,
                                 const float *pulled, const int vectors) {
#define CASE(n) case n: accumulate_basis(sweep, scratch->orbit_sums, sites, pulled + first * sweep->source.channels, \
                                         scratch->accumulated + first * 2 * LANES, n, vectors); break
    for (int64_t column = 0, sites; column < columns; column += sites) {
        sites = columns - column < sweep->sites_at_once ? columns - column : sweep->sites_at_once;
        add_entries(sweep, scratch, column, sites, vectors);
        FOR_BLOCKS_OF_RINGS
        pulled += sites * sweep->response_row;
    }
#undef CASE
}

/* responses (sites, rings, source channels) of a tile: the companion, dy, pulled back through the weight. */
#define pull_back NAME(pull_back)
static void pull_back(const struct sweep *sweep, struct NAME(tile) tile, const struct scratch *scratch) {
    const int64_t rings = sweep->pass->rings, channels = sweep->source.channels, depth = sweep->companion_group;
    const int64_t panels = (sweep->source_group + PANEL - 1) / PANEL, group_size = panels * rings * depth * PANEL;
    const int64_t gathered_row = sweep->companion.channels;
    for (int64_t row = 0; row < tile.rows; row++)
        memcpy(scratch->companion + row * tile.columns * gathered_row, companion_at(sweep, tile, row, 0),
               sizeof(float) * (size_t)(tile.columns * gathered_row));

    if (is_depthwise(sweep)) {
        for (int64_t site = 0; site < tile.sites; site++)
            for (int64_t ring = 0; ring < rings; ring++)
                for (int64_t c = 0; c < channels; c += LANES)
                    store(scratch->responses + site * sweep->response_row + ring * channels + c,
                          load(sweep->panels + ring * channels + c) * load(scratch->companion + site * gathered_row + c));
    } else {
        const int64_t columns = product_columns(sweep, sweep->source_group), used = sweep->groups * columns;
        for (int64_t at = 0; used < channels && at < tile.sites * rings; at++)
            memset(scratch->responses + at / rings * sweep->response_row + at % rings * channels + used, 0,
                   sizeof(float) * (size_t)(channels - used));
        for (int64_t group = 0; group < sweep->groups; group++)
            for (int64_t ring = 0; ring < rings; ring++)
                product(tile.sites, scratch->companion + group * depth, gathered_row, 1, 0, depth,
                        sweep->panels + group * group_size + ring * depth * PANEL, rings * depth * PANEL, NULL,
                        scratch->responses + ring * channels + group * columns, sweep->response_row, columns);
    }
}

static void NAME(basis_tile)(const struct sweep *sweep, int64_t index, const struct scratch *scratch) {
    struct NAME(tile) tile = tile_of(&sweep->tiling, index);
    const int64_t channels = sweep->source.channels;
    pull_back(sweep, tile, scratch);
    for (int64_t row = 0; row < tile.rows; row++) {
        const float *pulled = scratch->responses + row * tile.columns * sweep->response_row;
        find_rows(sweep, tile.first_row + row, scratch);
        int64_t channel = 0;
        for (; channel + 2 * LANES <= channels; channel += 2 * LANES) {
            add_rows(sweep, tile.first_column, tile.columns, channel, scratch, 2);
            accumulate_basis_row(sweep, scratch, tile.columns, pulled + channel, 2);
        }
        if (channel < channels) {
            add_rows(sweep, tile.first_column, tile.columns, channel, scratch, 1);
            accumulate_basis_row(sweep, scratch, tile.columns, pulled + channel, 1);
        }
    }
}

#include "harmonics.h"

static const struct instruction_set JOIN(set, ISA) = {
    ISA_NAME, LANES, PANEL, NAME(lay_out), NAME(forward_tile), NAME(backward_tile), NAME(basis_tile),
    NAME(harmonic_tile), NAME(harmonic_pull_tile), NAME(harmonic_spread_tile),
};

#undef ROW_CASES
#undef ISA
#undef ISA_NAME
#undef LANES
#undef TILE_ROWS
#undef RING_BLOCK
