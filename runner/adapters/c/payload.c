/* payload.c: the dtypes and the meaning of a tensor's bytes.
 *
 * Its law: SPEC §3.1 and §3.2; F§4 to F§8 and RULINGS ("layout details that the text only names") for the order of bits
 * and tables; RULINGS for overlays ("overwrite the base; out of range or short: refuse").
 *
 * Values are float32, "bit-exact to the formula, left to right": products only, which no compiler can fuse or reorder.
 */
#include "cmf.h"

#include <float.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "float arithmetic must round to float");

enum { GROUP = 32, NIBBLES = 16, RUNGS = 32 };

static uint64_t rows(const Tensor *t) { return t->shape[0]; }
static uint64_t columns(const Tensor *t) { return t->shape[1]; }
static uint64_t groups_a_row(const Tensor *t) { return columns(t) / GROUP; }
static uint64_t groups(const Tensor *t) { return t->elements / GROUP + (t->elements % GROUP != 0); }

/* -- numbers ---------------------------------------------------------------------------------------------------- */

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void put_bits(uint8_t *out, uint64_t i, uint32_t bits) {
    for (int k = 0; k < 4; k++) out[4 * i + (unsigned)k] = (uint8_t)(bits >> 8 * k);
}

static void put(uint8_t *out, uint64_t i, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_bits(out, i, bits);
}

/* IEEE half to float, as bits: a NaN keeps its payload, in the upper bits. */
static uint32_t half_bits(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3FF;
    if (exponent == 31) return sign | 0x7F800000 | fraction << 13;
    if (exponent) return sign | (exponent + 112) << 23 | fraction << 13;
    if (!fraction) return sign;
    for (exponent = 113; !(fraction & 0x400); exponent--) fraction <<= 1; /* a subnormal half is a normal float */
    return sign | exponent << 23 | (fraction & 0x3FF) << 13;
}

static float half(const uint8_t *p) { return from_bits(half_bits(le16(p))); }

/* 2^x rounded to float, from a series of double precision: exp2f lives in libm, which isn't linked. */
static float exp2_float(float x) {
    if (x != x) return x;
    if (x >= 128) return from_bits(0x7F800000);
    if (x < -151) return 0;
    int whole = (int)(x < 0 ? x - 0.5f : x + 0.5f);
    double y = (x - (double)whole) * 0.693147180559945309417, sum = 1, term = 1; /* |y| <= ln 2 / 2 */
    for (int k = 1; k <= 14; k++) sum += term *= y / k;
    for (; whole > 0; whole--) sum *= 2;
    for (; whole < 0; whole++) sum /= 2;
    return (float)sum;
}

/* -- decoders: `out` holds elements float32, and every check has passed ------------------------------------------ */

static void decode_f32(const Tensor *t, uint8_t *out) {
    for (uint64_t i = 0; i < t->elements; i++) put_bits(out, i, le32(t->data.at + 4 * i));
}

static void decode_f16(const Tensor *t, uint8_t *out) {
    for (uint64_t i = 0; i < t->elements; i++) put_bits(out, i, half_bits(le16(t->data.at + 2 * i)));
}

static void decode_bf16(const Tensor *t, uint8_t *out) {
    for (uint64_t i = 0; i < t->elements; i++) put_bits(out, i, (uint32_t)le16(t->data.at + 2 * i) << 16);
}

/* [int8 : out·in][f16 : out], w = q·scale[o] */
static void decode_q8_row(const Tensor *t, uint8_t *out) {
    const uint8_t *q = t->data.at, *scale = q + t->elements;
    for (uint64_t o = 0, at = 0; o < rows(t); o++)
        for (uint64_t i = 0; i < columns(t); i++, at++) put(out, at, (float)(int8_t)q[at] * half(scale + 2 * o));
}

/* [int8][f16 row-scale][f16 col-field], w = q·scale[o]·col[i] */
static void decode_q8_2f(const Tensor *t, uint8_t *out) {
    const uint8_t *q = t->data.at, *scale = q + t->elements, *field = scale + 2 * rows(t);
    for (uint64_t o = 0, at = 0; o < rows(t); o++)
        for (uint64_t i = 0; i < columns(t); i++, at++)
            put(out, at, (float)(int8_t)q[at] * half(scale + 2 * o) * half(field + 2 * i));
}

/* One group of nibbles: element 2k is the low one, 2k + 1 the high one; w = (q − 8)·scale. */
static void put_nibbles(uint8_t *out, uint64_t at, uint64_t count, const uint8_t *nibbles, float scale) {
    for (uint64_t i = 0; i < count; i++) put(out, at + i, (float)((nibbles[i / 2] >> i % 2 * 4 & 15) - 8) * scale);
}

/* [u8 : ceil(n/32)·16][f16 : ceil(n/32)], over the flattened tensor */
static void decode_q4_block(const Tensor *t, uint8_t *out) {
    const uint8_t *nibbles = t->data.at, *scale = nibbles + NIBBLES * groups(t);
    for (uint64_t g = 0; g < groups(t); g++) {
        uint64_t left = t->elements - GROUP * g;
        put_nibbles(out, GROUP * g, left < GROUP ? left : GROUP, nibbles + NIBBLES * g, half(scale + 2 * g));
    }
}

/* [f16 scale][16B nibbles] a group */
static void decode_q4_tiled(const Tensor *t, uint8_t *out) {
    for (uint64_t g = 0; g < groups(t); g++) {
        const uint8_t *tile = t->data.at + (2 + NIBBLES) * g;
        put_nibbles(out, GROUP * g, GROUP, tile + 2, half(tile));
    }
}

/* [nibbles][rows × (f16 lo, f16 step)][codes: 5 bits LSB-first, each row on whole bytes], scale = 2^(lo + code·step) by
 * the ladder t[0] = 2^lo, t[c] = t[c−1]·2^step (F§5). */
static void decode_q4tp(const Tensor *t, uint8_t *out) {
    uint64_t width = groups_a_row(t), stride = (5 * width + 7) / 8;
    const uint8_t *params = t->data.at + NIBBLES * groups(t), *codes = params + 4 * rows(t);
    for (uint64_t r = 0; r < rows(t); r++, codes += stride) {
        float ladder[RUNGS] = {exp2_float(half(params + 4 * r))}, ratio = exp2_float(half(params + 4 * r + 2));
        for (int c = 1; c < RUNGS; c++) ladder[c] = ladder[c - 1] * ratio;
        for (uint64_t g = 0; g < width; g++) {
            uint64_t bit = 5 * g, byte = bit / 8;
            unsigned both = codes[byte] | (byte + 1 < stride ? codes[byte + 1] : 0u) << 8;
            uint64_t group = r * width + g;
            put_nibbles(out, GROUP * group, GROUP, t->data.at + NIBBLES * group, ladder[both >> bit % 8 & 31]);
        }
    }
}

/* [u8 bits][f16 scales](vbit_ro: [u32 offsets])[rows, MSB-first], w = (u − L)·scale[r,g], L = 2^(b−1) − 1. The offsets
 * say no more than the widths do, and were checked to say the same. */
static void decode_vbit_at(const Tensor *t, uint8_t *out, uint64_t head) {
    const uint8_t *widths = t->data.at, *scales = widths + rows(t), *packed = widths + head;
    for (uint64_t r = 0, at = 0; r < rows(t); r++) {
        unsigned width = widths[r], have = 0, window = 0;
        int middle = (1 << (width - 1)) - 1;
        for (uint64_t i = 0; i < columns(t); i++, at++) {
            if (have < width) window = window << 8 | *packed++, have += 8;
            have -= width;
            int code = (int)(window >> have & ((1u << width) - 1));
            put(out, at, (float)(code - middle) * half(scales + 2 * (at / GROUP)));
        }
    }
}

/* [f16 scale][4B sign bits] a group, w = s·(2·bit − 1); bit k of byte j is weight 8j + k. */
static void decode_q1(const Tensor *t, uint8_t *out) {
    for (uint64_t g = 0; g < groups(t); g++) {
        const uint8_t *tile = t->data.at + 6 * g;
        for (unsigned i = 0; i < GROUP; i++)
            put(out, GROUP * g + i, half(tile) * (float)(2 * (tile[2 + i / 8] >> i % 8 & 1) - 1));
    }
}

/* [f16 scale][7B base-3] a group, five digits a byte, least significant first: 0 → 0, 1 → +s, 2 → −s. */
static void decode_q1t_base(const Tensor *t, uint8_t *out) {
    static const uint8_t POWER[5] = {1, 3, 9, 27, 81};
    for (uint64_t g = 0; g < groups(t); g++) {
        const uint8_t *tile = t->data.at + 9 * g;
        float value[3] = {0, half(tile), -half(tile)};
        for (unsigned i = 0; i < GROUP; i++) put(out, GROUP * g + i, value[tile[2 + i / 5] / POWER[i % 5] % 3]);
    }
}

/* -- the table (§3.1) -------------------------------------------------------------------------------------------- */

typedef enum { RESERVED, RAW, ANY, MATRIX, GROUPED } Shape; /* MATRIX: "仅限二维"; GROUPED: and "in % 32 == 0" */

/* The bytes whose number the shape tells: so many an element, a group of 32, a row, a column, and once; and `bits` a
 * group, each row of them on whole bytes. That is the whole payload, unless more follows whose length only the payload
 * tells: then `tail` checks it. */
typedef struct Dtype {
    Shape shape;
    uint8_t element, group, row, column, once, bits;
    void (*decode)(const Tensor *t, uint8_t *out);
    Verdict (*tail)(const Tensor *t);
} Dtype;

static uint64_t head_size(const Dtype *d, const Tensor *t) {
    uint64_t r = d->shape >= MATRIX ? rows(t) : 0, c = d->shape >= MATRIX ? columns(t) : 0;
    if (t->elements >> 59) return UINT64_MAX; /* no file holds it; below, nothing wraps */
    return d->element * t->elements + d->group * groups(t) + d->row * r + d->column * c + d->once +
           r * ((d->bits * (c / GROUP) + 7) / 8);
}

enum { VBIT_GROUP = 2, VBIT_ROW = 1, RO_ROW = VBIT_ROW + 4, RO_ONCE = 4, Q1S_GROUP = 6, Q1T_GROUP = 9 };

static uint64_t vbit_head(const Tensor *t) { return VBIT_GROUP * groups(t) + VBIT_ROW * rows(t); }
static uint64_t vbit_ro_head(const Tensor *t) { return VBIT_GROUP * groups(t) + RO_ROW * rows(t) + RO_ONCE; }
static void decode_vbit(const Tensor *t, uint8_t *out) { decode_vbit_at(t, out, vbit_head(t)); }
static void decode_vbit_ro(const Tensor *t, uint8_t *out) { decode_vbit_at(t, out, vbit_ro_head(t)); }

/* Widths are of {3, 4, 5, 6, 8}, the rows fill what is left exactly, and a table of offsets, if any, says so too. */
static Verdict check_rows(const Tensor *t, uint64_t head, const uint8_t *offsets) {
    uint64_t end = 0;
    for (uint64_t r = 0; r < rows(t); r++) {
        unsigned width = t->data.at[r];
        MUST(width >= 3 && width <= 8 && width != 7, PARSE, "a width other than 3, 4, 5, 6, 8");
        MUST(!offsets || le32(offsets + 4 * r) == end, PARSE, "a row's offset isn't where the row before it ends");
        end += columns(t) * width / 8; /* 32 codes are whole bytes: there is never a pad bit (F§8) */
    }
    MUST(!offsets || le32(offsets + 4 * rows(t)) == end, PARSE, "the last offset isn't where the last row ends");
    MUST(end == t->data.len - head, BOUNDS, "the rows' widths disagree with the payload's length");
    return ACCEPT;
}

static Verdict check_vbit(const Tensor *t) { return check_rows(t, vbit_head(t), NULL); }
static Verdict check_vbit_ro(const Tensor *t) {
    return check_rows(t, vbit_ro_head(t), t->data.at + VBIT_GROUP * groups(t) + VBIT_ROW * rows(t));
}

/* q1s: [u32 count] count × {[u32 flat index][f16 value]} */
static const uint8_t *q1s_overlay(const Tensor *t) { return t->data.at + Q1S_GROUP * groups(t); }

static Verdict check_q1s(const Tensor *t) {
    const uint8_t *overlay = q1s_overlay(t);
    uint64_t count = le32(overlay);
    MUST(count <= (t->data.len - Q1S_GROUP * groups(t) - 4) / 6, BOUNDS, "more outliers than the payload holds");
    for (uint64_t k = 0; k < count; k++)
        MUST(le32(overlay + 4 + 6 * k) < t->elements, BOUNDS, "an outlier outside the tensor");
    return ACCEPT;
}

static void decode_q1s(const Tensor *t, uint8_t *out) {
    const uint8_t *overlay = q1s_overlay(t);
    decode_q1(t, out);
    for (uint64_t k = 0; k < le32(overlay); k++)
        put_bits(out, le32(overlay + 4 + 6 * k), half_bits(le16(overlay + 8 + 6 * k)));
}

/* q1t: [u32 row_ptr[rows + 1]] {[u16 col][f16 value]}; row r has those in [row_ptr[r], row_ptr[r + 1]). */
static const uint8_t *q1t_pointers(const Tensor *t) { return t->data.at + Q1T_GROUP * groups(t); }
static const uint8_t *q1t_entries(const Tensor *t) { return q1t_pointers(t) + 4 * (rows(t) + 1); }

static Verdict check_q1t(const Tensor *t) {
    const uint8_t *pointers = q1t_pointers(t), *entries = q1t_entries(t);
    MUST(le32(pointers) == 0, PARSE, "row_ptr doesn't begin with 0");
    for (uint64_t r = 0; r < rows(t); r++)
        MUST(le32(pointers + 4 * r) <= le32(pointers + 4 * r + 4), PARSE, "row_ptr decreases");
    uint64_t count = le32(pointers + 4 * rows(t));
    MUST(count <= (uint64_t)(t->data.at + t->data.len - entries) / 4, BOUNDS, "more outliers than the payload holds");
    for (uint64_t k = 0; k < count; k++)
        MUST(le16(entries + 4 * k) < columns(t), BOUNDS, "an outlier outside its row");
    return ACCEPT;
}

static void decode_q1t(const Tensor *t, uint8_t *out) {
    const uint8_t *pointers = q1t_pointers(t), *entries = q1t_entries(t);
    decode_q1t_base(t, out);
    for (uint64_t r = 0; r < rows(t); r++)
        for (uint64_t k = le32(pointers + 4 * r); k < le32(pointers + 4 * r + 4); k++)
            put_bits(out, r * columns(t) + le16(entries + 4 * k), half_bits(le16(entries + 4 * k + 2)));
}

static const Dtype DTYPE[DTYPES] = {
    /*  0 f32      */ {ANY, .element = 4, .decode = decode_f32},
    /*  1 f16      */ {ANY, .element = 2, .decode = decode_f16},
    /*  2 bf16     */ {ANY, .element = 2, .decode = decode_bf16},
    /*  3 q8_row   */ {MATRIX, .element = 1, .row = 2, .decode = decode_q8_row},
    /*  4 q4_block */ {ANY, .group = NIBBLES + 2, .decode = decode_q4_block},
    /*  5 mix8_4   */ {RESERVED},
    /*  6 u8       */ {RAW, .element = 1}, /* §12 keeps files in it: bytes, not a weight */
    /*  7 q4_col   */ {RESERVED},
    /*  8 vbit     */ {GROUPED, .group = VBIT_GROUP, .row = VBIT_ROW, .decode = decode_vbit, .tail = check_vbit},
    /*  9 q8_2f    */ {MATRIX, .element = 1, .row = 2, .column = 2, .decode = decode_q8_2f},
    /* 10 vbit_ro  */
    {GROUPED, .group = VBIT_GROUP, .row = RO_ROW, .once = RO_ONCE, .decode = decode_vbit_ro, .tail = check_vbit_ro},
    /* 11 q4_tiled */ {GROUPED, .group = 2 + NIBBLES, .decode = decode_q4_tiled},
    /* 12 q1       */ {GROUPED, .group = 6, .decode = decode_q1},
    /* 13 q1s      */ {GROUPED, .group = Q1S_GROUP, .once = 4, .decode = decode_q1s, .tail = check_q1s},
    /* 14 q1t      */ {GROUPED, .group = Q1T_GROUP, .row = 4, .once = 4, .decode = decode_q1t, .tail = check_q1t},
    /* 15 q4tp     */ {GROUPED, .group = NIBBLES, .row = 4, .bits = 5, .decode = decode_q4tp},
};

bool dtype_read(unsigned id) { return id < DTYPES && DTYPE[id].shape != RESERVED; }

Verdict payload_shape(const Tensor *t) {
    const Dtype *d = &DTYPE[t->dtype];
    MUST(d->shape < MATRIX || t->ndim == 2, PARSE, "this dtype is for two dimensions");
    MUST(d->shape < GROUPED || columns(t) % GROUP == 0, PARSE, "this dtype needs rows of whole groups of 32");
    MUST(d->shape == RESERVED || d->tail || t->data.len == head_size(d, t), BOUNDS, "nbytes disagrees with the shape");
    return ACCEPT;
}

Verdict payload_check(const Tensor *t) {
    const Dtype *d = &DTYPE[t->dtype];
    MUST(d->decode, OTHER, "this dtype has no values");
    if (!d->tail) return ACCEPT;
    MUST(t->data.len >= head_size(d, t), BOUNDS, "the payload is shorter than its fixed part");
    return d->tail(t);
}

void payload_decode(const Tensor *t, uint8_t *out) { DTYPE[t->dtype].decode(t, out); }
