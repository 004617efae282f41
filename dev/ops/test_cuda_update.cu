/* Exact sums, the loss and AdamW on the GPU (or on host_cuda) against plain loops in double. */
#include "dev/ops/test_cuda.cuh"

#include "llmc/compute/cuda/adamw.cuh"
#include "llmc/compute/cuda/exact.cuh"

static const double U = FP32_ROUNDING;
typedef std::vector<int64_t> Integers;

/* Values of all sizes, to the largest that is allowed. */
static Floats wide_values(size_t count, float limit, uint32_t stream)
{
    Floats values = normal_values(count, 1, stream);
    for (size_t i = 0; i < count; i++) {
        values[i] = fminf(fmaxf(ldexpf(values[i], (int)(i % 70) - 60), -limit), limit);
    }
    return values;
}

static Integers some_sums(size_t count)
{
    Integers sums(count);
    for (size_t i = 0; i < count; i++) {
        sums[i] = ((int64_t)i - 40) * 123456789012345;
    }
    return sums;
}

/* ---- exact sums --------------------------------------------------------------------------------------- */

static void check_fold(const Floats &values, float limit, bool is_first)
{
    char where[120];
    Integers sums = some_sums(values.size()), expected = sums;
    int64_t bad = 3, not_finite = 5;
    for (size_t i = 0; i < values.size(); i++) {
        bool is_good = fabsf(values[i]) <= limit;
        int64_t added = is_good ? llrint((double)values[i] * EXACT_SCALE) : 0;
        expected[i] = added + (is_first ? 0 : sums[i]);
        bad += !is_good;
        not_finite += !isfinite(values[i]);
    }
    Device<int64_t> d_sums(sums), d_bad(Integers{3}), d_not_finite(Integers{5});
    Device<float> d_values(values);
    ExactFold fold = {d_sums.data, d_values.data, (int64_t)values.size(), limit,
                      d_bad.data,  is_first,      d_not_finite.data};
    exact_fold(&fold, 0);
    snprintf(where, sizeof(where), "%zu values, limit %g, is_first %d", values.size(), limit, is_first);
    check_same(where, "sums", d_sums.read(), expected);
    check_same(where, "bad", d_bad.read(), Integers{bad});
    check_same(where, "not finite", d_not_finite.read(), Integers{not_finite});
}

static void test_exact_sums(void **state)
{
    (void)state;
    for (bool is_first : {false, true}) {
        check_fold({1.5f}, 1024, is_first);
        check_fold(wide_values(1003, 1024, 1), 1024, is_first);
        check_fold(wide_values(64, 25.6f, 2), 25.6f, is_first);
        /* halves round to even; the limit itself is good */
        check_fold({0x1p-53f, 0x1.8p-52f, -0x1.8p-52f, 0x1.4p-51f, 0x1p-149f, -0.0f, 1024, -1024}, 1024,
                   is_first);
    }
}

static void test_exact_sums_count_what_is_bad(void **state)
{
    (void)state;
    Floats values = wide_values(300, 1024, 1);
    values[0] = NAN;
    values[7] = INFINITY;
    values[8] = -INFINITY;
    values[255] = nextafterf(1024, 2048);
    values[299] = -3e38f;
    check_fold(values, 1024, true);
    check_fold(values, 1024, false);
    check_fold(values, 0x1p-3f, false);
}

/* ---- the loss ----------------------------------------------------------------------------------------- */

static void check_loss(const Floats &losses, int slots)
{
    char where[120];
    Integers tail = {int64_t(1) << 51, 2, 7};
    Device<int64_t> d_tail(tail);
    Device<float> d_losses(losses);
    Device<double> d_mean(1);
    LossFold fold = {d_tail.data, d_losses.data, (int64_t)losses.size(), slots};
    exact_fold_loss(&fold, 0);
    mean_loss(d_mean.data, d_losses.data, (int64_t)losses.size(), 0);
    double mean = 0, size = 0;
    for (float loss : losses) {
        mean += loss / (double)losses.size();
        size += fabs(loss / (double)losses.size());
    }
    bool is_good = fabs(mean / slots) <= EXACT_LIMIT / slots;
    double error = 0x1p-53 * ((double)losses.size() + 8) * size;
    Integers found = d_tail.read();
    snprintf(where, sizeof(where), "%zu losses, %d slots", losses.size(), slots);
    double sum = (double)(found[TAIL_LOSS] - tail[TAIL_LOSS]) / EXACT_SCALE;
    check_close(where, "tail", TAIL_LOSS, sum, is_good ? mean / slots : 0,
                is_good ? error / slots + 0x1p-52 : 0);
    check_close(where, "tail", TAIL_BAD, (double)found[TAIL_BAD], is_good ? 2 : 3, 0);
    check_close(where, "tail", TAIL_NOT_FINITE, (double)found[TAIL_NOT_FINITE], isfinite(mean) ? 7 : 8, 0);
    if (isfinite(mean)) {
        check_close(where, "mean", 0, d_mean.read()[0], mean, error);
    } else {
        assert_false(isfinite(d_mean.read()[0]));
    }
}

static void test_loss(void **state)
{
    (void)state;
    Floats losses = normal_values(1025, 3, 1);
    check_loss({10.825f}, 1);
    check_loss(losses, 1);
    check_loss(losses, 40);
    check_loss(normal_values(33, 1, 2), 7);
    check_loss({2000, 2000}, 3);
    losses[1024] = NAN;
    check_loss(losses, 4);
    losses[1024] = INFINITY;
    check_loss(losses, 4);
}

/* ---- gradients and AdamW ------------------------------------------------------------------------------ */

typedef enum Form { SUMS, ROUNDED, AS_THEY_ARE, FORMS } Form;
static const char *const form_names[FORMS] = {"exact sums", "fp32, rounded", "fp32 as it is"};

/* An arena of three tensors with gaps between them, one of them longer than a chunk. */
static const ArenaChunk chunks[] = {
    {0, 33, 1}, {64, ARENA_CHUNK, 1}, {64 + ARENA_CHUNK, 5, 1}, {ARENA_CHUNK + 128, 260, 0}};
enum { CHUNKS = sizeof(chunks) / sizeof(chunks[0]), ARENA = ARENA_CHUNK + 128 + 260 + 12 };

struct UpdateCase {
    Form form;
    float clip; /* as a part of the norm; 0: none */
    bool has_low;
    int64_t tail_bad;
    float spoiled; /* if not 0, what one gradient is replaced by */
};

struct State {
    Floats weights, moment1, moment2, gradients; /* gradients as the optimizer is to see them */
    Integers sums;
    std::vector<bf16> low;
};

static State state_before(const UpdateCase *c)
{
    State s = {normal_values(ARENA, 1, 1),
               normal_values(ARENA, 0.01f, 2),
               normal_values(ARENA, 0.001f, 3),
               normal_values(ARENA, 0.05f, 4),
               Integers(ARENA),
               std::vector<bf16>(ARENA, 0x1234)};
    for (size_t i = 0; i < ARENA; i++) {
        s.moment2[i] *= s.moment2[i];
        s.gradients[i] = ldexpf(s.gradients[i], -(int)(i % 50)); /* small ones show the rounding */
        s.sums[i] = llrint((double)s.gradients[i] * EXACT_SCALE) + (c->form == SUMS ? (int64_t)(i % 3) : 0);
    }
    if (c->spoiled != 0) {
        s.gradients[64 + 9999] = c->spoiled;
    }
    return s;
}

static float seen_gradient(const State *s, Form form, size_t i)
{
    return form == AS_THEY_ARE ? s->gradients[i] : (float)((double)s->sums[i] / EXACT_SCALE);
}

static Gradients device_gradients(Form form, const Device<int64_t> &sums, const Device<float> &values)
{
    return Gradients{form == SUMS ? sums.data : NULL, values.data, form == ROUNDED,
                     form == AS_THEY_ARE ? 3e38f : 1024.0f};
}

static AdamwUpdate hyperparameters(float grad_clip)
{
    AdamwUpdate a = {};
    a.grad_clip = grad_clip;
    a.decay = 1.0f - 6e-4f * 0.1f;
    a.beta1 = 0.9f;
    a.beta2 = 0.95f;
    a.step = (float)(6e-4 / (1 - pow(0.9, 3)));
    a.inverse_root = (float)(1 / sqrt(1 - pow(0.95, 3)));
    a.epsilon = 1e-8f;
    return a;
}

struct UpdateExpected {
    Expected weights, moment1, moment2;
};

static void expect_element(UpdateExpected *e, const State *s, const UpdateCase *c, const AdamwUpdate *a,
                           double norm, bool decays, size_t i)
{
    double clip = a->grad_clip > 0 && norm > a->grad_clip ? a->grad_clip / (norm + 1e-6) : 1;
    double gradient = clip * seen_gradient(s, c->form, i);
    double kept = (double)a->beta1 * s->moment1[i], added = (1 - (double)a->beta1) * gradient;
    double m = kept + added, m_error = U * (3 * fabs(kept) + 5 * fabs(added));
    double v = (double)a->beta2 * s->moment2[i] + (1 - (double)a->beta2) * gradient * gradient;
    double root = sqrt(v) * a->inverse_root, change = a->step * m / (root + a->epsilon);
    double change_error = a->step * m_error / (root + a->epsilon) + 10 * U * fabs(change);
    double weight = s->weights[i] * (double)(decays ? a->decay : 1.0f);
    e->moment1.set(i, m, m_error);
    e->moment2.set(i, v, 8 * U * v);
    e->weights.set(i, weight - change, change_error + 2 * U * (fabs(weight) + fabs(change)));
}

/* What no chunk covers stays as it was. */
static UpdateExpected expect_update(const State *s, const UpdateCase *c, const AdamwUpdate *a, double norm)
{
    UpdateExpected e = {Expected(ARENA), Expected(ARENA), Expected(ARENA)};
    for (size_t i = 0; i < ARENA; i++) {
        e.weights.set(i, s->weights[i], 0);
        e.moment1.set(i, s->moment1[i], 0);
        e.moment2.set(i, s->moment2[i], 0);
    }
    for (const ArenaChunk &chunk : chunks) {
        for (int i = 0; i < chunk.count; i++) {
            expect_element(&e, s, c, a, norm, chunk.decays, (size_t)(chunk.offset + i));
        }
    }
    return e;
}

static double expected_norm(const State *s, Form form)
{
    double sum = 0;
    for (const ArenaChunk &chunk : chunks) {
        for (int i = 0; i < chunk.count; i++) {
            double gradient = seen_gradient(s, form, (size_t)(chunk.offset + i));
            sum += gradient * gradient;
        }
    }
    return sqrt(sum);
}

static void check_low(const char *where, const UpdateCase *c, const State *before, const Floats &weights,
                      const std::vector<bf16> &found, bool is_bad)
{
    std::vector<bf16> expected = before->low;
    for (const ArenaChunk &chunk : chunks) {
        for (int64_t i = chunk.offset; i < chunk.offset + chunk.count && c->has_low && !is_bad; i++) {
            expected[(size_t)i] = bf16_from_float(weights[(size_t)i]);
        }
    }
    check_same(where, "weights_low", found, expected);
}

static void check_update(const UpdateCase *c)
{
    char where[120];
    State s = state_before(c);
    double norm = expected_norm(&s, c->form);
    AdamwUpdate a = hyperparameters((float)(c->clip * norm));
    Integers tail = {77, c->tail_bad, c->tail_bad / 2};
    Device<float> weights(s.weights), moment1(s.moment1), moment2(s.moment2), values(s.gradients);
    Device<int64_t> sums(s.sums), bad_partial(CHUNKS), d_tail(tail);
    Device<bf16> low(s.low);
    Device<ArenaChunk> d_chunks(std::vector<ArenaChunk>(chunks, chunks + CHUNKS));
    Device<double> norm_partial(CHUNKS);
    Device<StepOutcome> outcome(1);
    a.weights = weights.data;
    a.moment1 = moment1.data;
    a.moment2 = moment2.data;
    a.weights_low = c->has_low ? (__nv_bfloat16 *)low.data : NULL;
    a.gradients = device_gradients(c->form, sums, values);
    a.chunks = d_chunks.data;
    a.chunk_count = CHUNKS;
    a.norm_partial = norm_partial.data;
    a.bad_partial = bad_partial.data;
    a.tail = d_tail.data;
    a.outcome = outcome.data;
    adamw_update(&a, 0);
    snprintf(where, sizeof(where), "%s, clip at %g of the norm, low %d, tail %d bad, spoiled by %g",
             form_names[c->form], c->clip, c->has_low, (int)c->tail_bad, c->spoiled);
    StepOutcome found = outcome.read()[0];
    int64_t bad = c->tail_bad + (c->spoiled != 0 && !(fabsf(c->spoiled) <= a.gradients.limit));
    check_close(where, "outcome.bad", 0, (double)found.bad, (double)bad, 0);
    int64_t not_finite = c->tail_bad / 2 + !isfinite(c->spoiled);
    check_close(where, "outcome.not_finite", 0, (double)found.not_finite, (double)not_finite, 0);
    check_close(where, "outcome.loss", 0, (double)found.loss, 77, 0);
    if (bad > 0) { /* a bad step changes nothing, to the bit */
        check_same(where, "weights", weights.read(), s.weights);
        check_same(where, "moment1", moment1.read(), s.moment1);
        check_same(where, "moment2", moment2.read(), s.moment2);
    } else {
        UpdateExpected e = expect_update(&s, c, &a, norm);
        check_close(where, "outcome.norm", 0, found.norm, norm, 1e-11 * norm);
        check_tensor(where, "weights", weights.read(), e.weights);
        check_tensor(where, "moment1", moment1.read(), e.moment1);
        check_tensor(where, "moment2", moment2.read(), e.moment2);
    }
    check_low(where, c, &s, weights.read(), low.read(), bad > 0);
}

static void test_adamw(void **state)
{
    (void)state;
    for (Form form : {SUMS, ROUNDED, AS_THEY_ARE}) {
        for (float clip : {0.0f, 0.3f, 1.5f}) {
            UpdateCase c = {form, clip, clip != 1.5f, 0, 0};
            check_update(&c);
        }
    }
}

static void test_bad_steps_change_nothing(void **state)
{
    (void)state;
    const UpdateCase bad[] = {{SUMS, 0, true, 1, 0},          {ROUNDED, 0, true, 0, NAN},
                              {ROUNDED, 1, false, 0, 1025},   {ROUNDED, 1, true, 2, -INFINITY},
                              {AS_THEY_ARE, 0, true, 0, NAN}, {AS_THEY_ARE, 0.5f, true, 0, INFINITY}};
    for (const UpdateCase &c : bad) {
        check_update(&c);
    }
}

static void test_gradients_as_the_optimizer_sees_them(void **state)
{
    (void)state;
    for (Form form : {SUMS, ROUNDED, AS_THEY_ARE}) {
        UpdateCase c = {form, 0, false, 0, 0};
        State s = state_before(&c);
        Device<int64_t> sums(s.sums);
        Device<float> values(s.gradients), out(1000);
        Gradients gradients = device_gradients(form, sums, values);
        gradients_read(out.data, &gradients, 77, 999, 0);
        Floats expected(999), found = out.read();
        for (size_t i = 0; i < expected.size(); i++) {
            expected[i] = seen_gradient(&s, form, 77 + i);
        }
        assert_true(isnan(found[999])); /* not one too many */
        found.resize(999);
        check_same(form_names[form], "gradients", found, expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_sums),
        cmocka_unit_test(test_exact_sums_count_what_is_bad),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_bad_steps_change_nothing),
        cmocka_unit_test(test_gradients_as_the_optimizer_sees_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
