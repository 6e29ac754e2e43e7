/* container.c: the file, its envelope, its directory, its sections and the chain of hashes.
 *
 * Its law: SPEC §1 (envelope), §1.2 (what must be refused, and as what), §3 (directory), §5 and §7 (structure of masks
 * and sparse index), §8 (hash64, section hashes). "文件要么有效，要么 open() 返回错误 —— 不存在第三种状态".
 *
 * Every offset, length and count is compared with what is there before it is used, and none of them is allocated by:
 * beyond the file itself there is one sort index of names (16 bytes a record) and one of JSON keys.
 */
#define _POSIX_C_SOURCE 200809L
#include "cmf.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENVELOPE = 128, RECORD = 56, DIR_HEAD = 16, MASKS_HEAD = 8, INDEX_HEAD = 8, INDEX_ENTRY = 16 };
enum { READ_MAX = 64 << 20, NAME_BYTES_MAX = 256 << 20 };

const char *const SECTION_NAME[SECTIONS] = {"header", "dir", "data", "masks", "vocab", "index"};
static const char *const PAST_END[SECTIONS] = {"header past the end", "directory past the end", "data past the end",
                                               "masks past the end",  "vocab past the end",     "index past the end"};

/* -- hash64 (§8, F§1) ------------------------------------------------------------------------------------------- */

static uint64_t fmix64(uint64_t x) {
    x ^= x >> 33;
    x *= 0xFF51AFD7ED558CCD;
    x ^= x >> 33;
    x *= 0xC4CEB9FE1A85EC53;
    return x ^ x >> 33;
}

/* The salt stands outside fmix64 (RULINGS): the sum doesn't see the order of words, nor pairs of equal ones. */
uint64_t hash64(Span b) {
    uint64_t sum = 0, salt = 0, i = 0;
    for (; b.len - i >= 8; i += 8, salt += 0x9E3779B97F4A7C15) sum ^= fmix64(le64(b.at + i)) ^ salt;
    if (i < b.len) {
        uint8_t last[8] = {0};
        memcpy(last, b.at + i, b.len - i);
        sum ^= fmix64(le64(last)) ^ salt;
    }
    return fmix64(sum ^ b.len);
}

/* -- the file --------------------------------------------------------------------------------------------------- */

static Verdict read_all(Model *m, int fd) {
    uint8_t *bytes = malloc(m->file.len + 1);
    MUST(bytes, FAULT, "out of memory");
    m->file.at = bytes;
    for (uint64_t got = 0; got < m->file.len;) {
        ssize_t n = read(fd, bytes + got, m->file.len - got);
        MUST(n > 0, OTHER, "the file can't be read");
        got += (uint64_t)n;
    }
    return ACCEPT;
}

static Verdict map_all(Model *m, int fd) {
    void *bytes = mmap(NULL, m->file.len, PROT_READ, MAP_PRIVATE, fd, 0);
    MUST(bytes != MAP_FAILED, FAULT, "the file can't be mapped");
    m->file.at = bytes;
    m->mapped = true;
    return ACCEPT;
}

static Verdict load(Model *m, int fd) {
    struct stat status;
    MUST(fstat(fd, &status) == 0 && S_ISREG(status.st_mode), OTHER, "not a regular file");
    m->file.len = (uint64_t)status.st_size;
    return m->file.len <= READ_MAX ? read_all(m, fd) : map_all(m, fd);
}

/* O_NONBLOCK: to open a pipe that nobody writes to must not hang. */
Verdict model_load(Model *m, const char *path) {
    *m = (Model){0};
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    MUST(fd >= 0, OTHER, "the file can't be opened");
    Verdict v = load(m, fd);
    close(fd);
    return v;
}

void model_close(Model *m) {
    if (m->mapped) munmap((void *)m->file.at, m->file.len);
    else free((void *)m->file.at);
    *m = (Model){0};
}

/* -- envelope (§1) ---------------------------------------------------------------------------------------------- */

static Verdict envelope(Model *m) {
    const uint8_t *e = m->file.at;
    MUST(m->file.len >= ENVELOPE, BOUNDS, "shorter than the envelope");
    MUST(memcmp(e, "CMF\x01", 4) == 0, INVALID_MAGIC, "magic isn't CMF 01");
    MUST(le32(e + 0x04) == 2, UNSUPPORTED_VERSION, "version isn't 2");
    MUST((le32(e + 0x0C) & ~FEATURES) == 0, UNSUPPORTED_FEATURE, "a required feature is unknown");
    for (unsigned s = 0; s < SECTIONS; s++) {
        uint64_t off = le64(e + 0x10 + 16 * s), len = le64(e + 0x18 + 16 * s);
        if (s >= MASKS && (off == 0 || len == 0)) continue; /* "0 = absent" (§1, ENV-011, ENV-012) */
        MUST(within(off, len, m->file.len), BOUNDS, PAST_END[s]);
        m->section[s] = (Span){e + off, len};
    }
    MUST(m->section[HEADER].len > 0, BOUNDS, "no header");
    MUST(m->section[DIR].len >= DIR_HEAD, BOUNDS, "no directory");
    MUST(le64(e + 0x30) % 4096 == 0, BOUNDS, "data_off isn't a multiple of 4096");
    return ACCEPT;
}

/* -- directory (§3) --------------------------------------------------------------------------------------------- */

/* The product of the shape; false past 2^64. The shape's tail beyond ndim is ignored (DIR-014). */
static bool volume(const uint32_t *shape, unsigned ndim, uint64_t *product) {
    *product = 1;
    for (unsigned d = 0; d < ndim; d++)
        if (shape[d] == 0) *product = 0;
    for (unsigned d = 0; d < ndim && *product; d++) {
        if (*product > UINT64_MAX / shape[d]) return false;
        *product *= shape[d];
    }
    return true;
}

Verdict model_tensor(const Model *m, uint64_t i, Tensor *t) {
    const uint8_t *r = m->section[DIR].at + DIR_HEAD + RECORD * i;
    uint32_t name_off = le32(r);
    uint16_t name_len = le16(r + 4);
    Span data = m->section[DATA];
    *t = (Tensor){.dtype = r[6], .ndim = r[7], .off = le64(r + 32), .hash = le64(r + 48)};
    for (unsigned d = 0; d < 6; d++) t->shape[d] = le32(r + 8 + 4 * d);
    uint64_t nbytes = le64(r + 40);

    MUST(within(name_off, name_len, m->pool.len), BOUNDS, "a tensor's name is outside the pool");
    MUST(t->dtype < DTYPES, PARSE, "dtype unknown");
    MUST(t->ndim <= 6, PARSE, "ndim above 6");
    MUST(within(t->off, nbytes, data.len), BOUNDS, "a tensor is outside the data");
    MUST(t->off % 64 == 0, BOUNDS, "a tensor's offset isn't a multiple of 64");
    MUST(volume(t->shape, t->ndim, &t->elements), BOUNDS, "a shape's product is past 2^64");
    t->name = (Span){m->pool.at + name_off, name_len};
    t->data = (Span){data.at + t->off, nbytes};
    return payload_shape(t);
}

static int compare_names(const void *a, const void *b) {
    const Span *x = a, *y = b;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return memcmp(x->at, y->at, x->len);
}

static Verdict names(const Model *m, Span *index) {
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < m->count; i++) {
        Tensor t;
        TRY(model_tensor(m, i, &t));
        /* Names may share their bytes (DIR-008), so a small pool can spell out terabytes of them. */
        MUST((bytes += t.name.len) <= NAME_BYTES_MAX, OTHER, "more than 256 MiB of names");
        MUST(utf8_valid(t.name), PARSE, "a tensor's name isn't UTF-8");
        index[i] = t.name;
    }
    qsort(index, m->count, sizeof *index, compare_names);
    for (uint64_t i = 1; i < m->count; i++)
        MUST(compare_names(&index[i - 1], &index[i]) != 0, PARSE, "a tensor's name is there twice");
    return ACCEPT;
}

static Verdict directory(Model *m) {
    Span dir = m->section[DIR];
    uint64_t count = le64(dir.at), pool_off = le64(dir.at + 8);
    MUST(count <= (dir.len - DIR_HEAD) / RECORD, BOUNDS, "more records than the directory holds");
    MUST(pool_off >= DIR_HEAD + RECORD * count && pool_off <= dir.len, BOUNDS, "the name pool is outside its place");
    m->count = count;
    m->pool = (Span){dir.at + pool_off, dir.len - pool_off};
    Span *index = malloc(count * sizeof *index + 1);
    MUST(index, FAULT, "out of memory");
    Verdict v = names(m, index);
    free(index);
    return v;
}

/* -- masks (§5) and sparse index (§7): structure only ------------------------------------------------------------ */

static Verdict mask_record(const uint8_t *record, uint64_t section_len) {
    static const char *const FIELD[2] = {"blob_off", "blob_len"};
    uint64_t field[2];
    for (int k = 0; k < 2; k++) {
        const uint8_t *value = json_get(record, FIELD[k]);
        bool huge;
        MUST(value && json_u64(value, &huge, &field[k]), PARSE, "a mask without an integer blob_off or blob_len");
        MUST(!huge, BOUNDS, "a mask's blob is outside the section");
    }
    MUST(within(field[0], field[1], section_len), BOUNDS, "a mask's blob is outside the section");
    return ACCEPT;
}

static Verdict masks(Span s) {
    if (!s.len) return ACCEPT;
    MUST(s.len >= MASKS_HEAD, BOUNDS, "masks shorter than their head");
    Span meta = {s.at + MASKS_HEAD, le32(s.at + 4)};
    MUST(meta.len <= s.len - MASKS_HEAD, BOUNDS, "the meta of masks is longer than the section");
    TRY(json_check(meta));
    const uint8_t *list = json_get(meta.at, "masks");
    MUST(!list || *list == '[', PARSE, "the meta's masks aren't a list");
    uint64_t found = 0;
    for (const uint8_t *record = list ? json_first(list) : NULL; record; record = json_next(record), found++)
        TRY(mask_record(record, s.len));
    MUST(found == le32(s.at), PARSE, "n_masks isn't the number of masks"); /* MASK-003 */
    return ACCEPT;
}

static Verdict sparse_index(Span s) {
    if (!s.len) return ACCEPT;
    MUST(s.len >= INDEX_HEAD, BOUNDS, "index shorter than its head");
    uint64_t entries = le32(s.at);
    MUST(entries <= (s.len - INDEX_HEAD) / INDEX_ENTRY, BOUNDS, "more entries than the index holds");
    for (uint64_t p = INDEX_HEAD; entries--;) {
        MUST(within(p, INDEX_ENTRY, s.len), BOUNDS, "an index entry past the section");
        uint64_t size = INDEX_ENTRY + 2 * (uint64_t)le32(s.at + p + 8) + le32(s.at + p + 12);
        MUST(within(p, size, s.len), BOUNDS, "an index entry past the section");
        p += (size + 3) / 4 * 4; /* the last padding may be missing (IDX-010) */
    }
    return ACCEPT;
}

Verdict model_open(Model *m, const char *path) {
    TRY(model_load(m, path));
    TRY(envelope(m));
    TRY(json_check(m->section[HEADER]));
    TRY(directory(m));
    TRY(masks(m->section[MASKS]));
    return sparse_index(m->section[INDEX]);
}

/* -- verify (§8.1) ---------------------------------------------------------------------------------------------- */

typedef struct {
    Problem *list;
    size_t used, room;
} Report;

static void add(Report *r, const char *where, const char *kind, uint64_t index) {
    if (r->used < r->room) r->list[r->used++] = (Problem){where, kind, index};
}

/* "JSON 携带 section_hashes": 16 hex digits for masks, vocab, index. A section or a hash that isn't there passes. */
static void verify_sections(const Model *m, Report *r) {
    const uint8_t *hashes = json_get(m->section[HEADER].at, "section_hashes");
    if (!hashes || *hashes == 'n') return;
    if (*hashes != '{') add(r, "section_hashes", "malformed", 0);
    for (unsigned s = MASKS; s < SECTIONS; s++) {
        const uint8_t *value = m->section[s].len ? json_get(hashes, SECTION_NAME[s]) : NULL;
        uint64_t hash;
        if (!value) continue;
        if (!json_hex64(value, &hash)) add(r, "section_hashes", "malformed", 0);
        else if (hash != hash64(m->section[s])) add(r, SECTION_NAME[s], "hash", 0);
    }
}

size_t model_verify(const Model *m, Problem *list, size_t room) {
    Report r = {list, 0, room};
    for (unsigned s = HEADER; s <= DIR; s++) {
        uint64_t hash = le64(m->file.at + 0x70 + 8 * s);
        if (hash && hash != hash64(m->section[s])) add(&r, SECTION_NAME[s], "hash", 0); /* "零 = 缺失" */
    }
    verify_sections(m, &r);
    for (uint64_t i = 0; i < m->count && r.used < room; i++) { /* a tensor's hash of 0 isn't "absent" (DIR-023) */
        Tensor t;
        if (model_tensor(m, i, &t).kind != ACCEPTED || t.hash != hash64(t.data)) add(&r, "tensor", "hash", i);
    }
    return r.used;
}
