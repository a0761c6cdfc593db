/* The two operations of the harmonics, included by ring_conv.c behind its own. */

static int harmonics_begin(struct call *call, const struct ring_pass *forward, const struct ring_mixing *mixing,
                           int64_t in, int64_t out) {
    *call = begin_call(mixing, forward->rings, in, out);
    return !call->depthwise; /* one channel per group has a mixing of its own, which lengths have no use for yet */
}

static void set_pairs(struct sweep *sweep, const struct ring_pairs *pairs) {
    sweep->odd_pairs = pairs->odd;
    sweep->even_pairs = pairs->even;
    sweep->pair_order = pairs->order;
}

int ring_harmonics_forward(const struct ring_pass *forward, const struct ring_mixing *mixing,
                           const struct ring_pairs *pairs, const struct ring_maps *x, const struct ring_maps *y) {
    struct call call;
    if (!harmonics_begin(&call, forward, mixing, x->channels, y->channels)) return -2;
    if (mixing->batch == 0) return 0;
    stage(&call, 0, x, forward->source);
    call.works = 1;
    call.work[0] = (struct work){.tile = call.set->harmonic_tile, .target = y};
    call.work[0].sweep = (struct sweep){
        .pass = forward, .source_group = call.in_group, .target_group = call.out_group,
    };
    set_pairs(&call.work[0].sweep, pairs);
    struct workspace *space = run(&call);
    if (!space) return -1;
    return_workspace(space);
    return 0;
}

/* dweight (out, in_group, pairs), the workers' shares added in the order of their numbers. */
static void add_harmonic_weight_share(void *pointer, int slot) {
    const struct call *call = pointer;
    const struct scratch *scratch = call->work[0].scratch;
    const int64_t pairs = call->rings, in_group = call->in_group, out_group = call->out_group;
    const int64_t out = call->mixing->groups * out_group, padded = round_up(out_group, call->set->panel);
    const int64_t end = share(out, slot + 1, call->threads);
    for (int64_t o = share(out, slot, call->threads); o < end; o++)
        for (int64_t c = 0; c < in_group; c++)
            for (int64_t pair = 0; pair < pairs; pair++) {
                const int64_t from = ((o / out_group * pairs + pair) * in_group + c) * padded + o % out_group;
                float sum = 0;
                for (int worker = 0; worker < call->threads; worker++) sum += scratch[worker].accumulated[from];
                call->dweight[(o * in_group + c) * pairs + pair] = sum;
            }
}

int ring_harmonics_backward(const struct ring_pass *forward, const struct ring_pass *adjoint,
                            const struct ring_mixing *mixing, const struct ring_pairs *pairs,
                            const struct ring_maps *dy, const struct ring_maps *x, const struct ring_maps *dx,
                            float *dweight, float *dbasis) {
    struct call call;
    if (!harmonics_begin(&call, forward, mixing, x->channels, dy->channels)) return -2;
    const int64_t count = call.rings, weights = mixing->groups * call.out_group * call.in_group * count;
    if (mixing->batch == 0) {
        if (dweight) memset(dweight, 0, sizeof(float) * (size_t)weights);
        if (dbasis) memset(dbasis, 0, sizeof(float) * (size_t)(count * forward->orbits));
        return 0;
    }
    call.transposed = 1;
    stage(&call, 0, dy, forward->target);
    stage(&call, 1, x, forward->source);
    call.pair_sites = sites_of(forward->target);
    call.staged[PAIRS].laid_out.channels = 2 * count * call.staged[1].laid_out.channels;

    struct work *pull = &call.work[call.works++];
    *pull = (struct work){.tile = call.set->harmonic_pull_tile, .source = 1, .companion = 0, .with_lengths = 1};
    pull->sweep = (struct sweep){
        .pass = forward, .source_group = call.in_group, .target_group = call.out_group,
        .companion_group = call.out_group, .with_basis = dbasis != NULL,
    };
    set_pairs(&pull->sweep, pairs);
    if (dweight)
        pull->sweep.weight_floats = count * mixing->groups * call.in_group * round_up(call.out_group, call.set->panel);
    const int64_t basis_floats = dbasis ? count * forward->orbits * 2 * call.set->lanes : 0;
    /* At least one, since what accumulates also has room for the companion. */
    pull->accumulated = most(1, pull->sweep.weight_floats + basis_floats);
    if (dx) {
        struct work *spread = &call.work[call.works++];
        *spread = (struct work){.tile = call.set->harmonic_spread_tile, .source = PAIRS, .companion = 0, .target = dx,
                                .response_rings = 1};
        spread->sweep = (struct sweep){
            .pass = adjoint, .source_group = call.out_group, .target_group = call.in_group,
        };
        set_pairs(&spread->sweep, pairs);
    }
    struct workspace *space = run(&call);
    if (!space) return -1;
    if (dweight) {
        call.dweight = dweight;
        in_parallel(add_harmonic_weight_share, &call, call.threads);
    }
    if (dbasis) {
        for (int slot = 0; slot < call.threads; slot++) pull->scratch[slot].accumulated += pull->sweep.weight_floats;
        add_basis(&call, pull, dbasis);
    }
    return_workspace(space);
    return 0;
}
