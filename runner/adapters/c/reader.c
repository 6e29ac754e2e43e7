/* reader.c: answers the questions of INTERPRETING.md about .cmf files, a line on stdin, a line on stdout.
 *
 * Its law: INTERPRETING.md. "A request is one line of ASCII of at most 64 KiB, its members always in the order id, op,
 * file, then those of the operation, with no space between tokens" - so strstr and strtoull read it; a line that isn't
 * like that gets an error. Replies are ASCII: a string that isn't plain is told as {"hex": "…"}.
 */
#define _POSIX_C_SOURCE 200809L
#include "cmf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 64 << 10, PROBLEMS = 1000, SELF = 4096 };

typedef struct {
    char id[24]; /* as it came: digits, or null if it can't be read */
    const char *op, *file, *out, *as, *rows, *tokens, *split; /* the last two: lists, not cut */
    bool under; /* a task or a skill is named */
    bool indexed;
    uint64_t index;
} Request;

/* -- replies ---------------------------------------------------------------------------------------------------- */

static const char *const KIND_NAME[] = {
    [INVALID_MAGIC] = "InvalidMagic", [UNSUPPORTED_VERSION] = "UnsupportedVersion",
    [UNSUPPORTED_FEATURE] = "UnsupportedFeature", [BOUNDS] = "Bounds", [PARSE] = "Parse", [OTHER] = "Other",
};

static void begin(const Request *r, const char *outcome) { printf("{\"id\":%s,\"%s\":{", r->id, outcome); }
static void end(void) { puts("}}"); }

static void say(const Request *r, const char *outcome) {
    begin(r, outcome);
    end();
}

static void say_error(const Request *r, const char *message) {
    begin(r, "error");
    printf("\"message\":\"%s\"", message);
    end();
}

static void say_refused(const Request *r, Verdict v) {
    if (v.kind == FAULT) {
        say_error(r, v.why);
        return;
    }
    begin(r, "refused");
    printf("\"kind\":\"%s\",\"message\":\"%s\"", KIND_NAME[v.kind], v.why);
    end();
}

/* What goes before the next item of a list. */
static const char *comma(bool *more) {
    const char *text = *more ? "," : "";
    *more = true;
    return text;
}

static void print_string(FILE *to, Span s) {
    bool plain = true;
    for (uint64_t i = 0; i < s.len; i++) plain &= s.at[i] >= ' ' && s.at[i] <= '~' && s.at[i] != '"' && s.at[i] != '\\';
    fputs(plain ? "\"" : "{\"hex\":\"", to);
    if (plain) fwrite(s.at, 1, s.len, to);
    else
        for (uint64_t i = 0; i < s.len; i++) fprintf(to, "%02x", s.at[i]);
    fputs(plain ? "\"" : "\"}", to);
}

/* -- operations on an open file --------------------------------------------------------------------------------- */

static void do_open(const Request *r, const Model *m) {
    bool more = false;
    begin(r, "ok");
    printf("\"tensors\":%" PRIu64 ",\"sections\":[", m->count);
    for (unsigned s = MASKS; s < SECTIONS; s++)
        if (m->section[s].len) printf("%s\"%s\"", comma(&more), SECTION_NAME[s]);
    putchar(']');
    end();
}

static void do_verify(const Request *r, const Model *m) {
    static Problem problems[PROBLEMS];
    size_t count = model_verify(m, problems, PROBLEMS);
    bool more = false;
    begin(r, "ok");
    printf("\"sound\":%s,\"problems\":[", count ? "false" : "true");
    for (size_t k = 0; k < count; k++) {
        const Problem *p = &problems[k];
        printf("%s{\"where\":\"%s\",", comma(&more), p->where);
        if (strcmp(p->where, "tensor") == 0) printf("\"index\":%" PRIu64 ",", p->index);
        printf("\"kind\":\"%s\"}", p->kind);
    }
    putchar(']');
    end();
}

/* "Longer answers go to the new file that the request names in `out`." */
static void say_written(const Request *r, FILE *to) {
    bool good = to && !ferror(to);
    if (to && fclose(to) != 0) good = false;
    if (good) say(r, "ok");
    else say_error(r, "out can't be written");
}

static void write_span(const Request *r, Span bytes) {
    FILE *to = fopen(r->out, "wb");
    if (to) fwrite(bytes.at, 1, bytes.len, to);
    say_written(r, to);
}

static void do_header(const Request *r, const Model *m) { write_span(r, m->section[HEADER]); }

static void do_tensors(const Request *r, const Model *m) {
    FILE *to = fopen(r->out, "wb");
    Tensor t;
    for (uint64_t i = 0; to && i < m->count && model_tensor(m, i, &t).kind == ACCEPTED; i++) {
        fputs("{\"name\":", to);
        print_string(to, t.name);
        fprintf(to, ",\"dtype\":%u,\"shape\":[", t.dtype);
        for (unsigned d = 0; d < t.ndim; d++) fprintf(to, "%s%" PRIu32, d ? "," : "", t.shape[d]);
        fprintf(to, "],\"off\":\"%" PRIu64 "\",\"nbytes\":\"%" PRIu64 "\",\"hash\":\"%016" PRIx64 "\"}\n", t.off,
                t.data.len, t.hash);
    }
    say_written(r, to);
}

static void do_tensor(const Request *r, const Model *m) {
    Tensor t;
    if (r->index >= m->count) {
        say_error(r, "no tensor has this index");
        return;
    }
    Verdict v = model_tensor(m, r->index, &t);
    bool raw = strcmp(r->as, "raw") == 0;
    if (v.kind == ACCEPTED && !raw) v = payload_check(&t);
    if (v.kind != ACCEPTED) {
        say_refused(r, v);
        return;
    }
    if (raw) {
        write_span(r, t.data);
        return;
    }
    uint8_t *values = malloc(4 * t.elements + 1); /* checked: a payload byte is at most 32 · 4 / 6 of these */
    if (!values) {
        say_error(r, "out of memory");
        return;
    }
    payload_decode(&t, values);
    write_span(r, (Span){values, 4 * t.elements});
    free(values);
}

/* The numbers of a list such as [3,17,5]; what is no such number is larger than any. */
static size_t numbers(const char *list, uint64_t *out) {
    size_t count = 0;
    for (const char *p = list + 1; *p && *p != ']'; count++) {
        out[count] = *p >= '0' && *p <= '9' ? strtoull(p, NULL, 10) : UINT64_MAX;
        p += strcspn(p, ",]");
        p += *p == ',';
    }
    return count;
}

static void do_logits(const Request *r, const Model *m) {
    static uint64_t tokens[LINE], split[LINE];
    size_t count = numbers(r->tokens, tokens), pieces = r->split ? numbers(r->split, split) : 0;
    uint64_t sum = 0;
    bool whole = true, last = r->rows && strcmp(r->rows, "last") == 0;
    for (size_t k = 0; k < pieces; k++) {
        whole &= split[k] > 0 && split[k] <= count;
        sum += whole ? split[k] : 0;
    }
    if (r->under || (r->split && (!whole || sum != count))) {
        say_refused(r, (Verdict){OTHER, "a task, a skill, or calls that don't add up"});
        return;
    }
    float *logits;
    uint32_t vocab;
    Verdict v = engine_logits(m, tokens, count, last, &logits, &vocab);
    FILE *to = v.kind == ACCEPTED ? fopen(r->out, "wb") : NULL;
    uint64_t rows = last ? 1 : count;
    for (uint64_t k = 0; to && k < rows * vocab; k++) {
        uint32_t bits;
        memcpy(&bits, &logits[k], 4);
        uint8_t bytes[4] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16), (uint8_t)(bits >> 24)};
        fwrite(bytes, 1, 4, to);
    }
    free(logits);
    bool good = to && !ferror(to);
    if (to && fclose(to) != 0) good = false;
    if (v.kind != ACCEPTED) say_refused(r, v);
    else if (!good) say_error(r, "out can't be written");
    else {
        begin(r, "ok");
        printf("\"shape\":[%" PRIu64 ",%" PRIu32 "]", rows, vocab);
        end();
    }
}

static void do_hash64(const Request *r, const Model *m) {
    begin(r, "ok");
    printf("\"hash\":\"%016" PRIx64 "\"", hash64(m->file));
    end();
}

/* -- operations without a file ----------------------------------------------------------------------------------- */

static void do_hello(const Request *r, const Model *m);

static void do_ping(const Request *r, const Model *m) {
    (void)m;
    say(r, "ok");
}

/* -- the table of operations -------------------------------------------------------------------------------------- */

enum { OUT = 1, AS_INDEX = 2, LAST = 4, TOKENS = 8 }; /* members that an operation needs; LAST: exit after it */

static const struct {
    const char *op;
    int needs;
    Verdict (*load)(Model *, const char *path);
    void (*answer)(const Request *, const Model *);
} OPERATION[] = {
    {"hello", 0, NULL, do_hello},
    {"ping", 0, NULL, do_ping},
    {"open", 0, model_open, do_open},
    {"header", OUT, model_open, do_header},
    {"tensors", OUT, model_open, do_tensors},
    {"tensor", OUT | AS_INDEX, model_open, do_tensor},
    {"verify", 0, model_open, do_verify},
    {"hash64", 0, model_load, do_hash64},
    {"logits", OUT | TOKENS, model_open, do_logits},
    {"bye", LAST, NULL, do_ping},
};
enum { OPERATIONS = sizeof OPERATION / sizeof *OPERATION };

/* "Declare, then hold": the lists are read off the tables that do the work. */
static void do_hello(const Request *r, const Model *m) {
    static char self[SELF];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self);
    bool more = false;
    (void)m;
    begin(r, "ok");
    printf("\"protocol\":1,\"name\":\"cmfreader-c\",\"version\":\"1.0\",\"language\":\"C\",\"build\":\"release\"");
    printf(",\"operations\":[");
    for (int k = 0; k < OPERATIONS; k++) printf("%s\"%s\"", comma(&more), OPERATION[k].op);
    printf("],\"features\":[");
    more = false;
    for (int bit = 0; bit < 32; bit++)
        if (FEATURES >> bit & 1) printf("%s%d", comma(&more), bit);
    printf("],\"dtypes\":[");
    more = false;
    for (unsigned id = 0; id < DTYPES; id++)
        if (dtype_read(id)) printf("%s%u", comma(&more), id);
    printf("],\"families\":[\"llama\",\"qwen2\",\"qwen3\"],\"under\":[],\"kinds\":true,\"artifacts\":[");
    if (length > 0) print_string(stdout, (Span){(uint8_t *)self, (uint64_t)length});
    putchar(']');
    end();
}

/* -- requests ----------------------------------------------------------------------------------------------------- */

/* What follows the token of a member, such as `,"out":"`; NULL if it isn't there. No value holds a quote of its own. */
static char *member(char *line, const char *token) {
    char *at = strstr(line, token);
    return at ? at + strlen(token) : NULL;
}

/* Ends a string member at its closing quote; false if it has none, or isn't of the letters that are promised. */
static bool cut(char *text) {
    if (!text) return true;
    size_t length = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-");
    bool closed = text[length] == '"';
    text[length] = '\0';
    return closed;
}

static bool parse(char *line, Request *r) {
    *r = (Request){.id = "null"};
    size_t digits = strncmp(line, "{\"id\":", 6) == 0 ? strspn(line + 6, "0123456789") : 0;
    if (digits == 0 || digits >= sizeof r->id || (digits > 1 && line[6] == '0')) return false;
    memcpy(r->id, line + 6, digits);
    r->id[digits] = '\0';

    char *op = member(line, ",\"op\":\""), *file = member(line, ",\"file\":\""), *out = member(line, ",\"out\":\""),
         *as = member(line, ",\"as\":\""), *index = member(line, ",\"index\":"),
         *rows = member(line, ",\"rows\":\"");
    size_t length = strlen(line);
    if (op != line + 6 + digits + 7 || !file || line[length - 1] != '}') return false;
    r->indexed = index && strspn(index, "0123456789") > 0;
    if (r->indexed) r->index = strtoull(index, NULL, 10); /* past 2^64 it stays the largest: out of range */
    r->tokens = member(line, ",\"tokens\":["), r->split = member(line, ",\"split\":[");
    if (r->tokens) r->tokens--; /* from its bracket on */
    if (r->split) r->split--;
    r->under = member(line, ",\"task\":") || member(line, ",\"skill\":");
    if (!cut(rows) || !cut(op) || !cut(file) || !cut(out) || !cut(as)) return false;
    r->op = op, r->file = file, r->out = out, r->as = as, r->rows = rows;
    return true;
}

/* False: the last answer. */
static bool answer(char *line) {
    Request r;
    if (!parse(line, &r)) {
        say_error(&r, "malformed request");
        return true;
    }
    int k = 0;
    while (k < OPERATIONS && strcmp(r.op, OPERATION[k].op) != 0) k++;
    if (k == OPERATIONS) {
        say(&r, "unsupported");
        return true;
    }
    int needs = OPERATION[k].needs;
    bool known_as = r.as && (strcmp(r.as, "f32") == 0 || strcmp(r.as, "raw") == 0);
    if ((needs & OUT && !r.out) || (needs & TOKENS && !r.tokens) || (needs & AS_INDEX && !(r.indexed && known_as))) {
        say_error(&r, "the request lacks a member");
        return true;
    }
    Model m = {0};
    Verdict v = OPERATION[k].load ? OPERATION[k].load(&m, r.file) : ACCEPT;
    if (v.kind == ACCEPTED) OPERATION[k].answer(&r, &m);
    else say_refused(&r, v);
    model_close(&m);
    return !(needs & LAST);
}

/* One line without its end, "\n" or "\r\n". False at the end of stdin. */
static bool read_line(char *line) {
    size_t length = 0;
    int c;
    while ((c = getchar()) != EOF && c != '\n') {
        if (length < LINE) line[length] = (char)c;
        length += length <= LINE;
    }
    if (c == EOF && length == 0) return false;
    if (length > LINE) length = 0; /* too long: as malformed as an empty one */
    if (length && line[length - 1] == '\r') length--;
    line[length] = '\0';
    return true;
}

int main(void) {
    static char line[LINE + 1];
    while (read_line(line) && answer(line))
        if (fflush(stdout) != 0) return 1;
    return fflush(stdout) != 0;
}
