/* engine.c: what a dense model computes - Llama, with the biases of Qwen 2 and the norms of Qwen 3 where they are there.
 *
 * Its law: §2, "capability dispatch is driven by the tensors that are present", and the numbers of Hugging Face. A token at
 * a time, so that it can't matter how a text is cut into calls. A tensor that is missing, has another shape or has no part
 * in the forward is a refusal, and so is a field that would make it another forward; nothing is guessed.
 */
#include "cmf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 128 };

typedef struct {
    float *in, *post, *q, *k, *v, *o, *bq, *bk, *bv, *nq, *nk, *gate, *up, *down; /* b: biases, n: norms; NULL: none */
    uint32_t inner;
    float *keys, *values; /* [tokens, kv · dim] so far */
} Layer;

typedef struct {
    const Model *m;
    float **decoded; /* by place in the directory; NULL: not asked for */
    Layer *layers;
    size_t built; /* layers */
    uint32_t hidden, heads, kv, dim, vocab;
    double eps, theta;
    bool plus_one; /* "gemma": x̂·(1+w) */
    float *embed, *norm, *head, *scratch, *scores;
} Engine;

/* -- the header ---------------------------------------------------------------------------------------------------- */

static const char *const FOREIGN[] = {"yarn", "rope_freq_factors", "rope_local_base_freq", "sliding_window", "hidden_act",
    "embed_multiplier", "logit_multiplier", "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping",
    "attention_heads_per_layer", "mla", "num_loops"};

static const uint8_t *field(const uint8_t *arch, const char *key) {
    const uint8_t *value = json_get(arch, key);
    return value && *value != 'n' ? value : NULL; /* null says nothing */
}

static bool whole(const uint8_t *arch, const char *key, uint32_t *out) {
    const uint8_t *value = field(arch, key);
    bool huge;
    uint64_t number;
    if (!value || !json_u64(value, &huge, &number) || huge || number == 0 || number > UINT32_MAX) return false;
    *out = (uint32_t)number;
    return true;
}

/* The text that json_check accepted ends a number before it ends itself. */
static double real(const uint8_t *arch, const char *key, double otherwise) {
    const uint8_t *value = field(arch, key);
    if (!value) return otherwise;
    return *value == '-' || (*value >= '0' && *value <= '9') ? strtod((const char *)value, NULL) : NAN;
}

/* -- tensors ------------------------------------------------------------------------------------------------------- */

/* The values of a tensor of that name: [rows] where cols is 0, else [rows, cols]. *out stays NULL where it isn't there. */
static Verdict may(Engine *e, const char *name, uint32_t rows, uint32_t cols, float **out) {
    Tensor t;
    *out = NULL;
    for (uint64_t i = 0; i < e->m->count; i++) {
        TRY(model_tensor(e->m, i, &t));
        if (t.name.len != strlen(name) || memcmp(t.name.at, name, t.name.len) != 0) continue;
        MUST(t.ndim == (cols ? 2 : 1) && t.shape[0] == rows && (!cols || t.shape[1] == cols), OTHER, "a tensor has a shape that the model can't have");
        TRY(payload_check(&t));
        if (!e->decoded[i]) {
            uint8_t *raw = malloc(4 * t.elements + 1); /* as in reader.c: bounded by the payload */
            if (!raw) REFUSE(FAULT, "out of memory");
            payload_decode(&t, raw);
            e->decoded[i] = (float *)(void *)raw;
            for (uint64_t k = 0; k < t.elements; k++) {
                uint32_t bits = le32(raw + 4 * k);
                memcpy(raw + 4 * k, &bits, 4);
            }
        }
        *out = e->decoded[i];
        return ACCEPT;
    }
    return ACCEPT;
}

static Verdict need(Engine *e, const char *name, uint32_t rows, uint32_t cols, float **out) {
    TRY(may(e, name, rows, cols, out));
    MUST(*out, OTHER, "a tensor that the model needs is missing");
    return ACCEPT;
}

/* The first dimension of a matrix; 0 if it isn't there. */
static uint32_t height(const Engine *e, const char *name) {
    Tensor t;
    for (uint64_t i = 0; i < e->m->count && model_tensor(e->m, i, &t).kind == ACCEPTED; i++)
        if (t.name.len == strlen(name) && memcmp(t.name.at, name, t.name.len) == 0) return t.ndim ? t.shape[0] : 0;
    return 0;
}

static Verdict layer(Engine *e, size_t number) {
    Layer *l = &e->layers[number];
    char name[NAME];
    uint32_t wide = e->heads * e->dim, narrow = e->kv * e->dim, hidden = e->hidden;
#define AT(rest) (snprintf(name, sizeof name, "model.layers.%zu." rest, number), name)
    l->inner = height(e, AT("mlp.gate_proj.weight"));
    const struct { const char *name; uint32_t rows, cols; float **out; bool needed; } parts[] = {
        {"input_layernorm.weight", hidden, 0, &l->in, true}, {"post_attention_layernorm.weight", hidden, 0, &l->post, true},
        {"self_attn.q_proj.weight", wide, hidden, &l->q, true}, {"self_attn.k_proj.weight", narrow, hidden, &l->k, true},
        {"self_attn.v_proj.weight", narrow, hidden, &l->v, true}, {"self_attn.o_proj.weight", hidden, wide, &l->o, true},
        {"self_attn.q_proj.bias", wide, 0, &l->bq, false}, {"self_attn.k_proj.bias", narrow, 0, &l->bk, false},
        {"self_attn.v_proj.bias", narrow, 0, &l->bv, false}, {"self_attn.q_norm.weight", e->dim, 0, &l->nq, false},
        {"self_attn.k_norm.weight", e->dim, 0, &l->nk, false}, {"mlp.gate_proj.weight", l->inner, hidden, &l->gate, true},
        {"mlp.up_proj.weight", l->inner, hidden, &l->up, true}, {"mlp.down_proj.weight", hidden, l->inner, &l->down, true},
    };
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        snprintf(name, sizeof name, "model.layers.%zu.%s", number, parts[k].name);
        TRY((parts[k].needed ? need : may)(e, name, parts[k].rows, parts[k].cols, parts[k].out));
    }
    return ACCEPT;
}

static Verdict build(Engine *e, uint32_t *positions) {
    const uint8_t *header = e->m->section[HEADER].at, *arch = json_get(header, "arch");
    uint32_t layers;
    bool tied;
    MUST(arch && *arch == '{', OTHER, "the header has no arch");
    MUST(whole(arch, "hidden_size", &e->hidden) && whole(arch, "num_layers", &layers) && whole(arch, "num_attention_heads", &e->heads)
         && whole(arch, "num_kv_heads", &e->kv) && whole(arch, "head_dim", &e->dim) && whole(arch, "vocab_size", &e->vocab)
         && whole(arch, "max_position_embeddings", positions), OTHER, "a size in arch is missing or no size");
    MUST(e->heads % e->kv == 0 && e->dim % 2 == 0 && (uint64_t)e->heads * e->dim <= UINT32_MAX, OTHER, "heads that don't go together");
    for (size_t k = 0; k < sizeof FOREIGN / sizeof *FOREIGN; k++) MUST(!field(arch, FOREIGN[k]), OTHER, "a field of arch asks for another forward");
    e->eps = real(arch, "rms_norm_eps", NAN), e->theta = real(arch, "rope_theta", NAN);
    MUST(e->eps > 0 && e->theta > 1 && real(arch, "partial_rotary_factor", 1) == 1, OTHER, "a number of arch is missing or no such number");
    const uint8_t *style = field(arch, "norm_style"), *tie = field(arch, "tie_word_embeddings");
    e->plus_one = json_is(style, "gemma");
    MUST(e->plus_one || json_is(style, "qwen"), OTHER, "norm_style is neither of the two");
    tied = tie && *tie == 't';

    TRY(need(e, "model.embed_tokens.weight", e->vocab, e->hidden, &e->embed));
    TRY(need(e, "model.norm.weight", e->hidden, 0, &e->norm));
    TRY(may(e, "lm_head.weight", e->vocab, e->hidden, &e->head));
    if (!e->head) e->head = tied ? e->embed : NULL;
    MUST(e->head, OTHER, "no lm_head.weight, and it isn't tied");
    MUST(layers <= e->m->count, OTHER, "more layers than tensors");
    e->layers = calloc(layers, sizeof *e->layers);
    if (!e->layers) REFUSE(FAULT, "out of memory");
    for (; e->built < layers; e->built++) TRY(layer(e, e->built));
    for (uint64_t i = 0; i < e->m->count; i++) {
        Tensor t;
        TRY(model_tensor(e->m, i, &t));
        bool skill = t.name.len > 6 && memcmp(t.name.at, "skill.", 6) == 0;
        MUST(e->decoded[i] || skill, OTHER, "a tensor has no part in this forward");
    }
    return ACCEPT;
}

/* -- the forward --------------------------------------------------------------------------------------------------- */

static void norm(const Engine *e, const float *x, const float *w, uint32_t n, float *out) {
    double squares = 0;
    for (uint32_t i = 0; i < n; i++) squares += (double)x[i] * x[i];
    float root = (float)sqrt(squares / n + e->eps);
    for (uint32_t i = 0; i < n; i++) out[i] = x[i] / root * (e->plus_one ? 1 + w[i] : w[i]);
}

/* out = W·x + b, or out += W·x. */
static void product(const float *w, const float *x, const float *bias, uint32_t rows, uint32_t cols, float *out, bool add) {
    for (uint32_t r = 0; r < rows; r++) {
        double sum = 0;
        for (uint32_t c = 0; c < cols; c++) sum += (double)w[(size_t)r * cols + c] * x[c];
        out[r] = (add ? out[r] : 0) + (float)sum + (bias ? bias[r] : 0);
    }
}

/* Norms and rotates heads in place: pairs (i, i + dim/2), frequencies and angles in float32. */
static void turn(const Engine *e, float *x, uint32_t heads, const float *w, size_t position) {
    uint32_t half = e->dim / 2;
    for (float *h = x; h < x + (size_t)heads * e->dim; h += e->dim) {
        if (w) norm(e, h, w, e->dim, h);
        for (uint32_t i = 0; i < half; i++) {
            float angle = (float)position * (1 / powf((float)e->theta, (float)(2 * i) / (float)e->dim));
            float c = cosf(angle), s = sinf(angle), a = h[i], b = h[i + half];
            h[i] = a * c - b * s, h[i + half] = b * c + a * s;
        }
    }
}

/* The values that a head sees, by softmax of q·k/√dim over the positions up to this one. */
static void attend(const Engine *e, const Layer *l, const float *q, size_t position, uint32_t head, float *out) {
    uint32_t width = e->kv * e->dim, at = head / (e->heads / e->kv) * e->dim;
    double top = -INFINITY, total = 0;
    for (size_t p = 0; p <= position; p++) {
        double sum = 0;
        for (uint32_t i = 0; i < e->dim; i++) sum += (double)q[i] * l->keys[p * width + at + i];
        e->scores[p] = (float)(sum / sqrt(e->dim));
        if (e->scores[p] > top) top = e->scores[p];
    }
    memset(out, 0, e->dim * sizeof *out);
    for (size_t p = 0; p <= position; p++) total += e->scores[p] = (float)exp(e->scores[p] - top);
    for (size_t p = 0; p <= position; p++)
        for (uint32_t i = 0; i < e->dim; i++) out[i] += (float)(e->scores[p] / total) * l->values[p * width + at + i];
}

static void step(const Engine *e, uint32_t token, size_t position, float *logits) {
    uint32_t hidden = e->hidden, wide = e->heads * e->dim, narrow = e->kv * e->dim;
    float *x = e->scratch, *h = x + hidden, *q = h + hidden, *mixed = q + wide, *gate = mixed + wide;
    memcpy(x, e->embed + (size_t)token * hidden, hidden * sizeof *x);
    for (Layer *l = e->layers; l < e->layers + e->built; l++) {
        float *k = l->keys + position * narrow, *v = l->values + position * narrow, *up = gate + l->inner;
        norm(e, x, l->in, hidden, h);
        product(l->q, h, l->bq, wide, hidden, q, false);
        product(l->k, h, l->bk, narrow, hidden, k, false);
        product(l->v, h, l->bv, narrow, hidden, v, false);
        turn(e, q, e->heads, l->nq, position);
        turn(e, k, e->kv, l->nk, position);
        for (uint32_t head = 0; head < e->heads; head++) attend(e, l, q + head * e->dim, position, head, mixed + head * e->dim);
        product(l->o, mixed, NULL, hidden, wide, x, true);
        norm(e, x, l->post, hidden, h);
        product(l->gate, h, NULL, l->inner, hidden, gate, false);
        product(l->up, h, NULL, l->inner, hidden, up, false);
        for (uint32_t i = 0; i < l->inner; i++) gate[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
        product(l->down, gate, NULL, hidden, l->inner, x, true);
    }
    if (!logits) return;
    norm(e, x, e->norm, hidden, h);
    product(e->head, h, NULL, e->vocab, hidden, logits, false);
}

static Verdict run(Engine *e, const uint64_t *tokens, size_t count, bool last, float **logits) {
    uint32_t positions, inner = 0;
    TRY(build(e, &positions));
    MUST(count > 0 && count <= positions, OTHER, "no tokens, or more than the context holds");
    for (size_t t = 0; t < count; t++) MUST(tokens[t] < e->vocab, OTHER, "a token that the vocabulary lacks");
    size_t rows = last ? 1 : count, room = count * e->kv * e->dim;
    for (size_t i = 0; i < e->built; i++) {
        Layer *l = &e->layers[i];
        l->keys = malloc(room * sizeof(float)), l->values = malloc(room * sizeof(float));
        if (!l->keys || !l->values) REFUSE(FAULT, "out of memory");
        inner = l->inner > inner ? l->inner : inner;
    }
    e->scratch = malloc(2 * ((size_t)e->hidden + (size_t)e->heads * e->dim + inner) * sizeof(float));
    e->scores = malloc(count * sizeof(float)), *logits = malloc(rows * e->vocab * sizeof(float));
    if (!e->scratch || !e->scores || !*logits) REFUSE(FAULT, "out of memory");
    for (size_t t = 0; t < count; t++) step(e, (uint32_t)tokens[t], t, last ? (t + 1 < count ? NULL : *logits) : *logits + t * e->vocab);
    for (size_t k = 0; k < rows * e->vocab; k++) MUST(isfinite((*logits)[k]), OTHER, "logits that aren't finite");
    return ACCEPT;
}

Verdict engine_logits(const Model *m, const uint64_t *tokens, size_t count, bool last, float **logits, uint32_t *vocab) {
    Engine e = {.m = m, .decoded = calloc(m->count + 1, sizeof(float *))};
    *logits = NULL;
    Verdict v = e.decoded ? run(&e, tokens, count, last, logits) : (Verdict){FAULT, "out of memory"};
    for (size_t i = 0; e.layers && i < e.built; i++) free(e.layers[i].keys), free(e.layers[i].values);
    for (uint64_t i = 0; e.decoded && i < m->count; i++) free(e.decoded[i]);
    free(e.decoded), free(e.layers), free(e.scratch), free(e.scores);
    *vocab = e.vocab;
    return v;
}
