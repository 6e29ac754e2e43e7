/* cmf.h: what the five parts of the reader share.
 *
 *   json.c       strict JSON over strict UTF-8
 *   container.c  the file: envelope, directory, sections, hashes
 *   payload.c    the meaning of a tensor's bytes
 *   engine.c     what a dense model computes
 *   reader.c     the questions and answers of INTERPRETING.md
 *
 * Its law: SPEC.zh.md, quoted below as §n; FACTS.md (F§n) where the text names bytes without spelling them out;
 * RULES.md (by rule id) and RULINGS.md, which wins over all.
 */
#ifndef CMF_H
#define CMF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(sizeof(size_t) == 8, "offsets of the format are u64: a 64-bit host maps any of them");

/* A stretch of the file. Nothing is copied out of it. */
typedef struct {
    const uint8_t *at;
    uint64_t len;
} Span;

/* §1.2 names the first five refusals. FAULT is ours (no memory), and says nothing about the file. */
typedef enum { ACCEPTED, INVALID_MAGIC, UNSUPPORTED_VERSION, UNSUPPORTED_FEATURE, BOUNDS, PARSE, OTHER, FAULT } Kind;

typedef struct {
    Kind kind;
    const char *why;
} Verdict;

#define ACCEPT ((Verdict){ACCEPTED, ""})
#define REFUSE(kind, why) return (Verdict){(kind), (why)}
#define MUST(truth, kind, why) do { if (!(truth)) REFUSE(kind, why); } while (0)
#define TRY(step) do { Verdict v_ = (step); if (v_.kind != ACCEPTED) return v_; } while (0)

/* "所有整数均为小端序": every integer is little-endian (§1), and none is sure to be aligned. */
static inline uint16_t le16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t le32(const uint8_t *p) { return le16(p) | (uint32_t)le16(p + 2) << 16; }
static inline uint64_t le64(const uint8_t *p) { return le32(p) | (uint64_t)le32(p + 4) << 32; }

/* [off, off + len) lies in [0, size); written so that nothing can wrap (ENV-016). */
static inline bool within(uint64_t off, uint64_t len, uint64_t size) { return off <= size && len <= size - off; }

/* json.c. The walkers take values of a text that json_check accepted, and need no bounds: its own brace ends it. */
bool utf8_valid(Span text);
Verdict json_check(Span text);                                        /* one object, strict, nothing after it */
const uint8_t *json_get(const uint8_t *object, const char *ascii_key); /* its value, or NULL */
const uint8_t *json_first(const uint8_t *array);                       /* an element, or NULL */
const uint8_t *json_next(const uint8_t *element);
bool json_is(const uint8_t *value, const char *ascii);                 /* a string of exactly these characters */
bool json_u64(const uint8_t *value, bool *huge, uint64_t *out); /* a non-negative integer; huge: past 2^64 - 1 */
bool json_hex64(const uint8_t *value, uint64_t *out);           /* a string of exactly 16 hex digits */

/* container.c */
enum { HEADER, DIR, DATA, MASKS, VOCAB, INDEX, SECTIONS }; /* in the envelope's order */
#define FEATURES (1u << 0 | 1u << 1 | 1u << 2 | 1u << 6)   /* §1.1: TENSOR_DIR, BINARY_MASKS, QUANT_2F, SKILL_FILE */

typedef struct {
    Span file;
    bool mapped;
    Span section[SECTIONS]; /* len 0: absent */
    uint64_t count;         /* tensors */
    Span pool;              /* their names */
} Model;

typedef struct {
    Span name, data;
    uint8_t dtype, ndim;
    uint32_t shape[6];
    uint64_t elements, off, hash;
} Tensor;

typedef struct {
    const char *where, *kind;
    uint64_t index; /* of the tensor, if where is "tensor" */
} Problem;

extern const char *const SECTION_NAME[SECTIONS];

uint64_t hash64(Span bytes);
Verdict model_load(Model *m, const char *path); /* the bytes, whatever they are */
Verdict model_open(Model *m, const char *path); /* a valid file, or a refusal: "不存在第三种状态" */
void model_close(Model *m);                     /* after either, whatever its verdict */
Verdict model_tensor(const Model *m, uint64_t i, Tensor *t);
size_t model_verify(const Model *m, Problem *list, size_t room);

/* payload.c */
enum { DTYPES = 16 };
bool dtype_read(unsigned id);           /* one of the table that isn't reserved */
Verdict payload_shape(const Tensor *t); /* what open can know: shape and size agree with the dtype */
Verdict payload_check(const Tensor *t); /* what decoding relies on: the rest of the payload is sound */
void payload_decode(const Tensor *t, uint8_t *out); /* after the check: elements × little-endian float32 */

/* engine.c */
Verdict engine_logits(const Model *m, const uint64_t *tokens, size_t count, bool last, float **logits, uint32_t *vocab);
        /* *logits: rows × vocab of the caller's to free, whatever the verdict; last: one row */

#endif
