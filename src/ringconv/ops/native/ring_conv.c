/* The driver: layouts, packing, tiles, threads and workspaces. The arithmetic is in kernels.h. */
#include "ring_conv.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "sweep.h"

/* ---- the kernels, once per instruction set ---- */

typedef float float8 __attribute__((vector_size(32)));
typedef uint32_t word8 __attribute__((vector_size(32)));
typedef uint16_t half8 __attribute__((vector_size(16)));

/* Vectors are passed between functions that are always inlined, so no calling convention is involved. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE __builtin_shufflevector
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (word8){__VA_ARGS__})
#endif

#define ISA baseline
#define ISA_NAME "baseline"
#define LANES 4
#define TILE_ROWS 6
#define RING_BLOCK 6
#include "kernels.h"

/* RING_CONV_BASELINE_ONLY builds what machines other than x86-64 get. */
#if defined(__x86_64__) && !defined(RING_CONV_BASELINE_ONLY)
#define WITH_AVX
#define PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define BEGIN_TARGET(names) PRAGMA(clang attribute push(__attribute__((target(names))), apply_to = function))
#define END_TARGET PRAGMA(clang attribute pop)
#else
#define BEGIN_TARGET(names) PRAGMA(GCC push_options) PRAGMA(GCC target(names))
#define END_TARGET PRAGMA(GCC pop_options)
#endif

BEGIN_TARGET("avx2,fma")
#define ISA avx2
#define ISA_NAME "avx2"
#define LANES 8
#define TILE_ROWS 6
#define RING_BLOCK 6
#include "kernels.h"
END_TARGET

/* RING_CONV_NARROW_AVX512 builds these with the instructions of AVX2, to test them where there is no AVX-512. */
#ifdef RING_CONV_NARROW_AVX512
#define AVX512_TARGET "avx2,fma"
#define HAS_AVX512 1
#else
#define AVX512_TARGET "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma"
#define HAS_AVX512 \
    (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
#endif
BEGIN_TARGET(AVX512_TARGET)
#define ISA avx512
#define ISA_NAME "avx512"
#define LANES 16
#define TILE_ROWS 12
#define RING_BLOCK 6
#include "kernels.h"
END_TARGET
#endif

static _Atomic(const struct instruction_set *) chosen_set;

static int machine_has(const struct instruction_set *set) {
#ifdef WITH_AVX
    if (set == &set_avx512) return HAS_AVX512;
    if (set == &set_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return set == &set_baseline;
}

/* The first that this machine has, of that name if there is one. */
static const struct instruction_set *find_set(const char *name) {
    static const struct instruction_set *const sets[] = {
#ifdef WITH_AVX
        &set_avx512,
        &set_avx2,
#endif
        &set_baseline,
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (machine_has(sets[i]) && (!name || strcmp(name, sets[i]->name) == 0)) return sets[i];
    return NULL;
}

/* The one that was chosen by name; else the widest, unless half of its vectors would be padding: short ones were
 * measured to be faster then, by a tenth to a half. */
static const struct instruction_set *set_for(int64_t in_channels) {
    const struct instruction_set *set = atomic_load(&chosen_set);
    if (set) return set;
    set = find_set(NULL);
#ifdef WITH_AVX
    if (set == &set_avx512 && in_channels <= set_avx2.lanes) return &set_avx2;
#else
    (void)in_channels;
#endif
    return set;
}

int ring_conv_interface(void) { return RING_CONV_INTERFACE; }

const char *ring_conv_instruction_set(const char *name) {
    if (name) atomic_store(&chosen_set, find_set(name));
    const struct instruction_set *set = atomic_load(&chosen_set);
    return set ? set->name : "auto";
}

/* ---- threads ---- */

/* A team takes slots 0 .. slots - 1 one by one. What a slot does depends on its number alone, so that results do not
 * change if the team turns out smaller than asked for. */
struct team {
    void (*work)(void *arguments, int slot);
    void *arguments;
    int slots;
    atomic_int next;
};

typedef void (*parallel_function)(void (*)(void *), void *, unsigned, unsigned);
static _Atomic(parallel_function) shared_threads;

void ring_conv_share_threads(void *gomp_parallel) {
    atomic_store(&shared_threads, (parallel_function)gomp_parallel);
}

static void join_team(void *pointer) {
    struct team *team = pointer;
    for (int slot; (slot = atomic_fetch_add(&team->next, 1)) < team->slots;) team->work(team->arguments, slot);
}

static void *join_team_as_thread(void *pointer) {
    join_team(pointer);
    return NULL;
}

enum { MOST_THREADS = 256 };

static void in_parallel(void (*work)(void *, int), void *arguments, int slots) {
    struct team team = {work, arguments, slots, 0};
    parallel_function shared = atomic_load(&shared_threads);
    if (slots > 1 && shared) {
        shared(join_team, &team, (unsigned)slots, 0);
        return;
    }
    pthread_t threads[MOST_THREADS];
    int started = 0;
    while (started < slots - 1 && pthread_create(&threads[started], NULL, join_team_as_thread, &team) == 0) started++;
    join_team(&team);
    while (started > 0) pthread_join(threads[--started], NULL);
}

static int64_t share(int64_t total, int slot, int slots) { return total * slot / slots; }

/* ---- workspaces ---- */

/* Kept between calls, since the first touch of fresh pages costs as much as a ring pass. A call takes one out of the
 * shelf, so that concurrent calls have one each. */
enum { SHELF = 16, LARGEST_KEPT = 64 << 20, ALIGNMENT = 64, HUGE_PAGE = 2 << 20 };

/* In a build with AddressSanitizer the gaps between parts of a workspace are out of bounds, and fresh parts hold NaN. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
enum { GAP = ALIGNMENT };
static void forbid(char *data, size_t size) { ASAN_POISON_MEMORY_REGION(data, size); }
static void allow(char *data, size_t size) {
    ASAN_UNPOISON_MEMORY_REGION(data, size);
    memset(data, 0xff, size);
}
#else
enum { GAP = 0 };
static void forbid(char *data, size_t size) { (void)data, (void)size; }
static void allow(char *data, size_t size) { (void)data, (void)size; }
#endif

struct workspace {
    size_t size;
    char *data;
};

static _Atomic(struct workspace *) shelf[SHELF];

static void free_workspace(struct workspace *space) {
    if (space) free(space->data);
    free(space);
}

static struct workspace *take_workspace(size_t size) {
    struct workspace *space = NULL;
    for (int i = 0; i < SHELF && !space; i++) space = atomic_exchange(&shelf[i], NULL);
    if (space && space->size >= size) return space;
    free_workspace(space);
    space = malloc(sizeof *space);
    if (!space) return NULL;
    const size_t alignment = size >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    space->size = (size + alignment - 1) / alignment * alignment;
    void *data = NULL;
    if (posix_memalign(&data, alignment, space->size)) {
        free(space);
        return NULL;
    }
    space->data = data;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (alignment == HUGE_PAGE) madvise(data, space->size, MADV_HUGEPAGE);
#endif
    return space;
}

static void return_workspace(struct workspace *space) {
    allow(space->data, space->size);
    for (int i = 0; i < SHELF && space->size <= LARGEST_KEPT; i++) {
        struct workspace *none = NULL;
        if (atomic_compare_exchange_strong(&shelf[i], &none, space)) return;
    }
    free_workspace(space);
}

/* Hands out parts of a workspace; without one it only counts. */
struct arena {
    char *data;
    size_t used;
};

static void *take(struct arena *arena, int64_t count, size_t size) {
    char *part = arena->data ? arena->data + arena->used : NULL;
    const size_t bytes = (size_t)count * size;
    arena->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + GAP;
    if (part) allow(part, bytes);
    return part;
}

static float *take_floats(struct arena *arena, int64_t count) { return take(arena, count, sizeof(float)); }

/* ---- tiles and sweeps ---- */

enum {
    WIDEST_TILE = 64,           /* columns */
    LARGEST_TILE = 128,         /* sites */
    RESPONSE_BYTES = 256 << 10, /* of a tile: they stay in the second-level cache */
    SMALLEST_TILE = 48,
    ORBIT_SUM_BYTES = 16 << 10, /* half of the first-level cache */
    MOST_SITES_AT_ONCE = 32,
    CHUNK_BYTES = 16 << 20,     /* of maps that are laid out at a time: they stay in the third-level cache */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static void limit_rows(struct tiling *tiling, int64_t rows) {
    tiling->rows = rows;
    tiling->tiles = (rows + tiling->rows_per_tile - 1) / tiling->rows_per_tile * tiling->column_tiles;
}

static struct tiling tiles_of(const struct ring_pass *pass, int64_t batch, int64_t bytes_per_site, int threads) {
    struct tiling tiling;
    const int64_t sites = most(SMALLEST_TILE, least(LARGEST_TILE, RESPONSE_BYTES / bytes_per_site));
    tiling.rows = batch * pass->target[0] * pass->target[1];
    tiling.columns = pass->target[2];
    tiling.column_tiles = (tiling.columns + WIDEST_TILE - 1) / WIDEST_TILE;
    tiling.columns_per_tile = (tiling.columns + tiling.column_tiles - 1) / tiling.column_tiles;
    const int64_t rows = most(1, sites / tiling.columns_per_tile);
    const int64_t row_tiles = round_up((tiling.rows + rows - 1) / rows, threads);
    tiling.rows_per_tile = most(1, (tiling.rows + row_tiles - 1) / row_tiles);
    tiling.column_tiles = (tiling.columns + tiling.columns_per_tile - 1) / tiling.columns_per_tile;
    limit_rows(&tiling, tiling.rows);
    return tiling;
}

static int64_t sites_of(const int32_t *size) { return (int64_t)size[0] * size[1] * size[2]; }

/* Maps that the kernels read where they are, or of which a chunk at a time is laid out in the workspace. */
struct staged {
    const struct ring_maps *maps; /* NULL: not there */
    int64_t sites;
    struct ring_maps chunk;
    struct laid_out laid_out;
    float *copy; /* NULL if read in place */
};

/* A sweep, with what it reads, and the buffers of its workers. */
struct work {
    struct sweep sweep;
    void (*tile)(const struct sweep *, int64_t, const struct scratch *);
    int source, companion; /* which of the staged maps */
    int64_t accumulated;   /* floats per worker */
    int64_t response_rings; /* that the responses have room for; 0: all */
    int with_lengths;
    struct ring_maps target_chunk;
    const struct ring_maps *target;
    struct scratch *scratch; /* (threads,) */
};

/* The gradient of the harmonics' pairs is staged too, but never laid out: a sweep writes it. */
enum { PAIRS = 2 };

/* What all workers of a call see. */
struct call {
    const struct instruction_set *set;
    const struct ring_mixing *mixing;
    int threads, works, depthwise;
    int64_t chunk;          /* samples that are swept at a time */
    int64_t first, samples; /* those that are swept now */
    struct staged staged[3];
    int64_t pair_sites; /* per sample; 0: no harmonics */
    struct work work[2], *current;

    int64_t rings, in_group, out_group;
    int transposed; /* columns of a panel are inputs, not outputs */
    int packed;
    float *panels;
    float *dweight;
};

static struct call begin_call(const struct ring_mixing *mixing, int64_t rings, int64_t in, int64_t out) {
    struct call call = {.set = set_for(in), .mixing = mixing, .rings = rings};
    call.threads = (int)most(1, least(MOST_THREADS, mixing->threads));
    call.in_group = in / mixing->groups;
    call.out_group = out / mixing->groups;
    call.depthwise = call.in_group == 1 && call.out_group == 1 && mixing->groups > 1;
    return call;
}

static void stage(struct call *call, int which, const struct ring_maps *maps, const int32_t *size) {
    struct staged *staged = &call->staged[which];
    staged->maps = maps;
    staged->sites = sites_of(size);
    staged->laid_out.channels = round_up(maps->channels, call->set->lanes);
}

static int is_in_place(const struct call *call, const struct ring_maps *maps) {
    return maps->channels_last && !maps->bfloat16 && maps->channels % call->set->lanes == 0;
}

static struct ring_maps from_sample(const struct ring_maps *maps, int64_t sites, int64_t sample) {
    struct ring_maps rest = *maps;
    rest.data = (char *)maps->data + sample * sites * maps->channels * (maps->bfloat16 ? 2 : 4);
    return rest;
}

/* Samples per chunk: as many as can be laid out in CHUNK_BYTES, all chunks about equal. */
static int64_t chunk_of(const struct call *call) {
    int64_t floats = 0;
    for (int which = 0; which < 2; which++)
        if (call->staged[which].maps && !is_in_place(call, call->staged[which].maps))
            floats += call->staged[which].sites * call->staged[which].laid_out.channels;
    floats += call->pair_sites * call->staged[PAIRS].laid_out.channels;
    const int64_t batch = call->mixing->batch;
    const int64_t samples = floats ? most(1, CHUNK_BYTES / (int64_t)sizeof(float) / floats) : batch;
    const int64_t chunks = (batch + samples - 1) / samples;
    return (batch + chunks - 1) / chunks;
}

/* Each worker sums up a gradient of its own, which may be far larger than the maps: a worker without a tile's worth of
 * sites costs more to clear and to add than it saves. All gradients have the same workers, whichever are wanted. */
static void limit_threads(struct call *call) {
    const int64_t sites = call->chunk * most(call->staged[0].sites, call->staged[1].sites);
    for (const struct work *work = call->work; work < call->work + call->works; work++)
        if (work->accumulated) call->threads = (int)least(call->threads, (sites + SMALLEST_TILE - 1) / SMALLEST_TILE);
}

/* ---- what is made ready before the sweeps ---- */

static int64_t panel_floats(const struct call *call) {
    const int64_t groups = call->mixing->groups;
    if (call->depthwise) return call->rings * round_up(groups, call->set->lanes);
    const int64_t columns = call->transposed ? call->in_group : call->out_group;
    const int64_t depth = call->transposed ? call->out_group : call->in_group;
    return groups * round_up(columns, call->set->panel) * call->rings * depth;
}

/* The weight as panels (group, panel, ring, depth, columns of a panel); depthwise: (ring, padded channels). */
static void pack_share(struct call *call, int slot) {
    const int64_t rings = call->rings, groups = call->mixing->groups, panel = call->set->panel;
    const float *weight = call->mixing->weight;
    if (call->depthwise) {
        const int64_t padded = round_up(groups, call->set->lanes);
        for (int64_t at = 0; slot == 0 && at < rings * padded; at++)
            call->panels[at] = at % padded < groups ? weight[at % padded * rings + at / padded] : 0;
        return;
    }
    const int64_t columns = call->transposed ? call->in_group : call->out_group;
    const int64_t depth = call->transposed ? call->out_group : call->in_group;
    /* Strides of the weight (out, in_group, rings) along a panel's columns and along its depth. */
    const int64_t column_step = call->transposed ? rings : call->in_group * rings;
    const int64_t depth_step = call->transposed ? call->in_group * rings : rings;
    const int64_t panels = (columns + panel - 1) / panel, end = share(groups * panels, slot + 1, call->threads);
    for (int64_t at = share(groups * panels, slot, call->threads); at < end; at++) {
        const int64_t first = at % panels * panel, width = least(panel, columns - first);
        const float *from = weight + at / panels * call->out_group * call->in_group * rings + first * column_step;
        float *to = call->panels + at * rings * depth * panel;
        for (int64_t k = 0; k < depth; k++)
            for (int64_t ring = 0; ring < rings; ring++) {
                float *row = to + (ring * depth + k) * panel;
                const float *column = from + k * depth_step + ring;
                for (int64_t c = 0; c < width; c++) row[c] = column[c * column_step];
                for (int64_t c = width; c < panel; c++) row[c] = 0;
            }
    }
}

static void lay_out_share(struct call *call, const struct staged *staged, int slot) {
    enum { SITES = 64 };
    const int64_t blocks = (staged->sites + SITES - 1) / SITES, total = call->samples * blocks;
    const int64_t end = share(total, slot + 1, call->threads);
    for (int64_t at = share(total, slot, call->threads); at < end; at++) {
        const int64_t sample = at / blocks, first = at % blocks * SITES;
        call->set->lay_out(&staged->chunk, staged->sites, sample, first, least(first + SITES, staged->sites),
                           staged->copy + (sample * staged->sites + first) * staged->laid_out.channels,
                           staged->laid_out.channels);
    }
}

static void prepare_share(void *pointer, int slot) {
    struct call *call = pointer;
    for (int which = 0; which < 2; which++)
        if (call->staged[which].copy) lay_out_share(call, &call->staged[which], slot);
    if (!call->packed) pack_share(call, slot);
}

static const float *take_bias(const struct call *call, struct arena *arena) {
    const int64_t width = call->depthwise ? 1 : round_up(call->out_group, call->set->panel);
    const int64_t size = round_up(call->mixing->groups * width, call->set->lanes);
    float *bias = take_floats(arena, size);
    for (int64_t at = 0; bias && at < size; at++) {
        const int64_t group = at / width, column = at % width;
        const int used = group < call->mixing->groups && column < call->out_group;
        bias[at] = used ? call->mixing->bias[group * call->out_group + column] : 0;
    }
    return bias;
}

/* ---- sweeps ---- */

/* The kernel of each channel of a depthwise convolution: (orbits, padded channels). */
static const float *take_kernel(const struct call *call, const struct ring_pass *pass, int64_t padded,
                                struct arena *arena) {
    float *kernel = take_floats(arena, pass->orbits * padded);
    for (int64_t at = 0; kernel && at < pass->orbits * padded; at++) {
        const int64_t orbit = at / padded, channel = at % padded;
        kernel[at] = 0;
        for (int64_t ring = 0; channel < call->mixing->groups && ring < pass->rings; ring++)
            kernel[at] += call->mixing->weight[channel * pass->rings + ring] *
                          call->mixing->basis[ring * pass->orbits + orbit];
    }
    return kernel;
}

static void take_tables(const struct call *call, struct work *work, struct arena *arena) {
    struct sweep *sweep = &work->sweep;
    const struct ring_pass *pass = sweep->pass;
    const int64_t entries = pass->orbit_start[pass->orbits];
    /* An odd number of cache lines per site spreads the sites over all sets of the cache. */
    const int whole_kernels = call->depthwise && !call->transposed; /* no rings between sums and output */
    const int64_t rings = whole_kernels ? 1 : work->response_rings ? work->response_rings : pass->rings;
    const int64_t lines = round_up(rings * sweep->source.channels, 16) / 16;
    sweep->response_row = 16 * (lines + (lines + 1) % 2);
    sweep->tiling = tiles_of(pass, call->chunk, sweep->response_row * (int64_t)sizeof(float), call->threads);
    sweep->sum_columns = pass->step[2] * (sweep->tiling.columns_per_tile - 1) + pass->span;

    const int64_t bytes = pass->orbits * 2 * call->set->lanes * (int64_t)sizeof(float);
    sweep->sites_at_once = most(1, least(MOST_SITES_AT_ONCE, ORBIT_SUM_BYTES / bytes));

    float *basis = take_floats(arena, (int64_t)pass->orbits * pass->rings);
    sweep->basis_by_orbit = basis;
    for (int orbit = 0; basis && orbit < pass->orbits; orbit++)
        for (int ring = 0; ring < pass->rings; ring++)
            basis[orbit * pass->rings + ring] = call->mixing->basis[ring * pass->orbits + orbit];
    if (whole_kernels) sweep->kernel_by_orbit = take_kernel(call, pass, sweep->source.channels, arena);
    for (int vectors = 1; vectors <= 2; vectors++) {
        int32_t *at = take(arena, entries, sizeof(int32_t));
        sweep->entry_in_sums[vectors - 1] = at;
        for (int64_t entry = 0; at && entry < entries; entry++)
            at[entry] = (int32_t)((pass->entry_class[entry] * sweep->sum_columns + pass->entry_offset[entry]) *
                                  vectors * call->set->lanes);
    }
}

static struct scratch take_scratch(const struct call *call, const struct work *work, struct arena *arena) {
    const struct sweep *sweep = &work->sweep;
    const struct ring_pass *pass = sweep->pass;
    const int64_t sites = sweep->tiling.rows_per_tile * sweep->tiling.columns_per_tile, lanes = call->set->lanes;
    struct scratch scratch = {0};
    scratch.sums = take_floats(arena, pass->classes * sweep->sum_columns * 2 * lanes);
    scratch.orbit_sums = take_floats(arena, pass->orbits * sweep->sites_at_once * 2 * lanes);
    scratch.rows = take(arena, pass->class_start[pass->classes], sizeof(float *));
    scratch.class_rows = take(arena, pass->classes + 1, sizeof(int32_t));
    scratch.responses = take_floats(arena, sites * sweep->response_row);
    if (work->with_lengths) scratch.lengths = take_floats(arena, sites * sweep->response_row);
    if (work->target) scratch.mixed = take_floats(arena, sites * round_up(sweep->groups * sweep->target_group, lanes));
    if (work->accumulated) {
        scratch.companion = take_floats(arena, sites * round_up(sweep->companion.channels, call->set->panel));
        scratch.accumulated = take_floats(arena, work->accumulated);
    }
    return scratch;
}

static void sweep_share(void *pointer, int slot) {
    struct call *call = pointer;
    const struct work *work = call->current;
    const struct scratch *scratch = &work->scratch[slot];
    const int64_t tiles = work->sweep.tiling.tiles, end = share(tiles, slot + 1, call->threads);
    /* Cleared here, by all workers at once and into the caches of those that go on with it. */
    if (work->accumulated && call->first == 0)
        memset(scratch->accumulated, 0, sizeof(float) * (size_t)work->accumulated);
    for (int64_t tile = share(tiles, slot, call->threads); tile < end; tile++) work->tile(&work->sweep, tile, scratch);
}

static void run_chunk(struct call *call, int64_t first) {
    int copies = 0;
    call->first = first;
    call->samples = least(call->chunk, call->mixing->batch - first);
    for (int which = 0; which < 2; which++) {
        struct staged *staged = &call->staged[which];
        if (!staged->maps) continue;
        staged->chunk = from_sample(staged->maps, staged->sites, first);
        staged->laid_out.data = staged->copy ? staged->copy : staged->chunk.data;
        copies += staged->copy != NULL;
    }
    if (copies || !call->packed) in_parallel(prepare_share, call, call->threads);
    call->packed = 1;
    for (struct work *work = call->work; work < call->work + call->works; work++) {
        struct sweep *sweep = &work->sweep;
        const struct ring_pass *pass = sweep->pass;
        sweep->source = call->staged[work->source].laid_out;
        sweep->companion = call->staged[work->companion].laid_out;
        if (work->target) {
            work->target_chunk = from_sample(work->target, sites_of(pass->target), first);
            sweep->target = &work->target_chunk;
        }
        limit_rows(&sweep->tiling, call->samples * pass->target[0] * pass->target[1]);
        call->current = work;
        in_parallel(sweep_share, call, call->threads);
    }
}

/* Runs all works over the whole batch. Returns the workspace, in which the accumulated sums are, or NULL. */
static struct workspace *run(struct call *call) {
    struct workspace *space = NULL;
    call->chunk = chunk_of(call);
    limit_threads(call);
    /* The first round counts, the second hands out. */
    for (int counting = 1; counting >= 0; counting--) {
        struct arena arena = {space ? space->data : NULL, 0};
        if (space) forbid(space->data, space->size);
        call->panels = take_floats(&arena, panel_floats(call));
        for (int which = 0; which < 2; which++) {
            struct staged *staged = &call->staged[which];
            if (staged->maps && !is_in_place(call, staged->maps))
                staged->copy = take_floats(&arena, call->chunk * staged->sites * staged->laid_out.channels);
        }
        float *pairs = take_floats(&arena, call->chunk * call->pair_sites * call->staged[PAIRS].laid_out.channels);
        call->staged[PAIRS].laid_out.data = pairs;
        for (struct work *work = call->work; work < call->work + call->works; work++) {
            struct sweep *sweep = &work->sweep;
            sweep->pairs = pairs;
            sweep->source = call->staged[work->source].laid_out;
            sweep->companion = call->staged[work->companion].laid_out;
            sweep->groups = call->mixing->groups;
            sweep->panels = call->panels;
            if (call->mixing->bias && !call->transposed) sweep->bias = take_bias(call, &arena);
            take_tables(call, work, &arena);
            work->scratch = take(&arena, call->threads, sizeof(struct scratch));
            for (int slot = 0; slot < call->threads; slot++) {
                struct scratch scratch = take_scratch(call, work, &arena);
                if (work->scratch) work->scratch[slot] = scratch;
            }
        }
        if (counting && !(space = take_workspace(arena.used))) return NULL;
    }
    for (int64_t first = 0; first < call->mixing->batch; first += call->chunk) run_chunk(call, first);
    return space;
}

/* ---- the two operations ---- */

int ring_conv_forward(const struct ring_pass *forward, const struct ring_mixing *mixing, const struct ring_maps *x,
                      const struct ring_maps *y) {
    struct call call = begin_call(mixing, forward->rings, x->channels, y->channels);
    if (mixing->batch == 0) return 0;
    stage(&call, 0, x, forward->source);
    call.packed = call.depthwise; /* its kernels are among the sweep's tables */
    call.works = 1;
    call.work[0] = (struct work){.tile = call.set->forward_tile, .target = y};
    call.work[0].sweep = (struct sweep){
        .pass = forward, .source_group = call.in_group, .target_group = call.out_group,
    };
    struct workspace *space = run(&call);
    if (!space) return -1;
    return_workspace(space);
    return 0;
}

/* dweight (out, in_group, rings), the workers' shares added in the order of their numbers. */
static void add_weight_share(void *pointer, int slot) {
    const struct call *call = pointer;
    const struct scratch *scratch = call->work[0].scratch;
    const int64_t rings = call->rings, in_group = call->in_group, out_group = call->out_group;
    const int64_t out = call->mixing->groups * out_group, padded = round_up(in_group, call->set->panel);
    const int64_t channels = round_up(out, call->set->lanes), end = share(out, slot + 1, call->threads);
    for (int64_t o = share(out, slot, call->threads); o < end; o++)
        for (int64_t ring = 0; ring < rings; ring++) {
            const int64_t row = (o / out_group * rings + ring) * out_group + o % out_group;
            const int64_t from = call->depthwise ? ring * channels + o : row * padded;
            for (int64_t c = 0; c < in_group; c++) {
                float sum = 0;
                for (int worker = 0; worker < call->threads; worker++) sum += scratch[worker].accumulated[from + c];
                call->dweight[(o * in_group + c) * rings + ring] = sum;
            }
        }
}

static void add_basis(const struct call *call, const struct work *work, float *dbasis) {
    const int64_t rings = call->rings, orbits = work->sweep.pass->orbits, width = 2 * call->set->lanes;
    for (int64_t orbit = 0; orbit < orbits; orbit++)
        for (int64_t ring = 0; ring < rings; ring++) {
            double sum = 0;
            for (int worker = 0; worker < call->threads; worker++)
                for (int64_t lane = 0; lane < width; lane++)
                    sum += work->scratch[worker].accumulated[(orbit * rings + ring) * width + lane];
            dbasis[ring * orbits + orbit] = (float)sum;
        }
}

int ring_conv_backward(const struct ring_pass *forward, const struct ring_pass *adjoint,
                       const struct ring_mixing *mixing, const struct ring_maps *dy, const struct ring_maps *x,
                       const struct ring_maps *dx, float *dweight, float *dbasis) {
    struct call call = begin_call(mixing, forward->rings, x->channels, dy->channels);
    const int64_t weights = mixing->groups * call.out_group * call.in_group * call.rings;
    if (mixing->batch == 0) {
        if (dweight) memset(dweight, 0, sizeof(float) * (size_t)weights);
        if (dbasis) memset(dbasis, 0, sizeof(float) * (size_t)(call.rings * forward->orbits));
        return 0;
    }
    call.transposed = 1;
    stage(&call, 0, dy, forward->target);
    if (dweight || dbasis) stage(&call, 1, x, forward->source);
    if (dx || dweight) {
        struct work *work = &call.work[call.works++];
        *work = (struct work){.tile = call.set->backward_tile, .source = 0, .companion = 1, .target = dx};
        work->sweep = (struct sweep){
            .pass = adjoint, .source_group = call.out_group, .target_group = call.in_group,
            .companion_group = call.in_group,
        };
        if (dweight && call.depthwise)
            work->accumulated = call.rings * call.staged[0].laid_out.channels;
        else if (dweight)
            work->accumulated = call.rings * mixing->groups * call.out_group * round_up(call.in_group, call.set->panel);
    }
    if (dbasis) {
        struct work *work = &call.work[call.works++];
        *work = (struct work){.tile = call.set->basis_tile, .source = 1, .companion = 0};
        work->sweep = (struct sweep){
            .pass = forward, .source_group = call.in_group, .target_group = call.out_group,
            .companion_group = call.out_group,
        };
        work->accumulated = call.rings * forward->orbits * 2 * call.set->lanes;
    }
    struct workspace *space = run(&call);
    if (!space) return -1;
    if (dweight) {
        call.dweight = dweight;
        in_parallel(add_weight_share, &call, call.threads);
    }
    if (dbasis) add_basis(&call, &call.work[call.works - 1], dbasis);
    return_workspace(space);
    return 0;
}

#include "harmonic_calls.h"
