/* json.c: strict JSON over strict UTF-8, for the header (§2) and the meta of masks (§5.1).
 *
 * Its law: RFC 8259, and the rules HDR-001 to HDR-008. "头部: UTF-8 JSON" and "没有第三种状态" together leave no room
 * for comments, NaN, BOMs, trailing bytes, lone surrogates or a key that is there twice.
 *
 * Nothing recurses, and nothing is built: a check in one pass, then walkers that find values where they stand.
 */
#include "cmf.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH = 256, NONE = -1 };

/* Well-formed UTF-8: which second bytes may follow a lead byte (Unicode, table 3-7). Shuts out overlong forms,
 * surrogates and what lies past U+10FFFF; third and fourth bytes are always 80..BF. */
static const struct {
    uint8_t first, last, second_low, second_high, length;
} UTF8[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3},
    {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
};

/* The length of the character at p, of which `left` bytes are there; 0 if it isn't one. */
static size_t utf8_length(const uint8_t *p, uint64_t left) {
    if (*p < 0x80) return 1;
    for (size_t k = 0; k < sizeof UTF8 / sizeof *UTF8; k++) {
        if (*p < UTF8[k].first || *p > UTF8[k].last) continue;
        if (UTF8[k].length > left || p[1] < UTF8[k].second_low || p[1] > UTF8[k].second_high) return 0;
        for (size_t i = 2; i < UTF8[k].length; i++)
            if ((p[i] & 0xC0) != 0x80) return 0;
        return UTF8[k].length;
    }
    return 0;
}

bool utf8_valid(Span text) {
    for (uint64_t i = 0; i < text.len;) {
        size_t length = utf8_length(text.at + i, text.len - i);
        if (!length) return false;
        i += length;
    }
    return true;
}

static const char ESCAPES[] = "\"\\/bfnrt", ESCAPED[] = "\"\\/\b\f\n\r\t";

static int hex_digit(int c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : NONE;
}

/* Four hex digits. The text's last byte is never one, so the first that isn't a digit ends the reading. */
static int32_t hex4(const uint8_t *p) {
    int32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(p[i]);
        if (digit == NONE) return NONE;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* The character of a checked string at *p, as a code point, or NONE at its closing quote. */
static int32_t next_char(const uint8_t **p) {
    const uint8_t *c = *p;
    if (*c == '"') return NONE;
    if (*c != '\\') {
        size_t length = utf8_length(c, 4);
        int32_t point = length == 1 ? *c : *c & (0x7F >> length);
        for (size_t i = 1; i < length; i++) point = point << 6 | (c[i] & 0x3F);
        *p = c + length;
        return point;
    }
    if (c[1] != 'u') {
        *p = c + 2;
        return ESCAPED[strchr(ESCAPES, c[1]) - ESCAPES];
    }
    int32_t unit = hex4(c + 2);
    bool pair = unit >= 0xD800 && unit <= 0xDBFF; /* json_check saw to the other half */
    *p = c + (pair ? 12 : 6);
    return pair ? 0x10000 + ((unit - 0xD800) << 10) + (hex4(c + 8) - 0xDC00) : unit;
}

/* The parser. `keys` holds where the keys of every object still open begin; `base` and `close` say, for each nesting
 * level, which of them are its own and which bracket ends it. */
typedef struct {
    const uint8_t *p, *end;
    const uint8_t **keys;
    size_t used, room;
    int depth;
    size_t base[DEPTH];
    uint8_t close[DEPTH];
} Parser;

static int peek(const Parser *j) { return j->p < j->end ? *j->p : NONE; }

static bool take(Parser *j, int c) {
    bool there = peek(j) == c;
    j->p += there;
    return there;
}

static bool is_space(int c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
static bool is_digit(int c) { return c >= '0' && c <= '9'; }

static void skip_space(Parser *j) {
    while (is_space(peek(j))) j->p++;
}

static bool digits(Parser *j) {
    if (!is_digit(peek(j))) return false;
    while (is_digit(peek(j))) j->p++;
    return true;
}

static bool number(Parser *j) {
    take(j, '-');
    if (!take(j, '0') && !digits(j)) return false;
    if (take(j, '.') && !digits(j)) return false;
    if (!take(j, 'e') && !take(j, 'E')) return true;
    if (!take(j, '+')) take(j, '-');
    return digits(j);
}

static bool escape(Parser *j) {
    int c = peek(j);
    if (c == NONE || c == 0) return false;
    j->p++;
    if (c != 'u') return strchr(ESCAPES, c) != NULL;
    int32_t unit = hex4(j->p);
    if (unit == NONE || (unit >= 0xDC00 && unit <= 0xDFFF)) return false;
    j->p += 4;
    if (unit < 0xD800 || unit > 0xDBFF) return true;
    if (!take(j, '\\') || !take(j, 'u')) return false;
    unit = hex4(j->p);
    if (unit < 0xDC00 || unit > 0xDFFF) return false;
    j->p += 4;
    return true;
}

static bool string(Parser *j) {
    if (!take(j, '"')) return false;
    for (int c; (c = peek(j)) >= 0x20;) {
        j->p++;
        if (c == '"') return true;
        if (c == '\\' && !escape(j)) return false;
    }
    return false;
}

static bool word(Parser *j, const char *text) {
    size_t length = strlen(text);
    if ((size_t)(j->end - j->p) < length || memcmp(j->p, text, length) != 0) return false;
    j->p += length;
    return true;
}

static bool scalar(Parser *j) {
    switch (peek(j)) {
    case '"': return string(j);
    case 't': return word(j, "true");
    case 'f': return word(j, "false");
    case 'n': return word(j, "null");
    default: return number(j);
    }
}

/* Keys compare as what they spell, so "\u0061" is "a". */
static int compare_keys(const void *a, const void *b) {
    const uint8_t *x = *(const uint8_t *const *)a, *y = *(const uint8_t *const *)b;
    for (;;) {
        int32_t cx = next_char(&x), cy = next_char(&y);
        if (cx != cy) return cx < cy ? -1 : 1;
        if (cx == NONE) return 0;
    }
}

static Verdict key(Parser *j) {
    if (j->used == j->room) {
        size_t room = j->room ? 2 * j->room : 64;
        const uint8_t **keys = realloc(j->keys, room * sizeof *keys);
        MUST(keys, FAULT, "out of memory");
        j->keys = keys;
        j->room = room;
    }
    skip_space(j);
    j->keys[j->used++] = j->p + 1;
    MUST(string(j), PARSE, "JSON: no key where one belongs");
    skip_space(j);
    MUST(take(j, ':'), PARSE, "JSON: no colon after a key");
    return ACCEPT;
}

static Verdict close(Parser *j) {
    size_t base = j->base[--j->depth], own = j->used - base;
    if (own > 1) qsort(j->keys + base, own, sizeof *j->keys, compare_keys);
    for (size_t i = 1; i < own; i++)
        MUST(compare_keys(&j->keys[base + i - 1], &j->keys[base + i]) != 0, PARSE, "JSON: a key is there twice");
    j->used = base;
    return ACCEPT;
}

/* One value and what encloses it: each turn of the outer loop stands where a value must begin. */
static Verdict value(Parser *j) {
    for (;;) {
        skip_space(j);
        if (peek(j) == '{' || peek(j) == '[') {
            MUST(j->depth < DEPTH, PARSE, "JSON: nested deeper than 256");
            j->base[j->depth] = j->used;
            j->close[j->depth++] = *j->p == '{' ? '}' : ']';
            j->p++;
            skip_space(j);
            if (peek(j) != j->close[j->depth - 1]) {
                if (j->close[j->depth - 1] == '}') TRY(key(j));
                continue;
            }
        } else {
            MUST(scalar(j), PARSE, "JSON: no value where one belongs");
        }
        for (;;) { /* a value ended: a comma asks for the next, a bracket ends what encloses it */
            skip_space(j);
            if (j->depth == 0) return ACCEPT;
            if (take(j, j->close[j->depth - 1])) {
                TRY(close(j));
                continue;
            }
            MUST(take(j, ','), PARSE, "JSON: no comma where one belongs");
            if (j->close[j->depth - 1] == '}') TRY(key(j));
            break;
        }
    }
}

static Verdict object(Parser *j, Span text) {
    MUST(utf8_valid(text), PARSE, "JSON: not UTF-8");
    while (j->end > j->p && is_space(j->end[-1])) j->end--;
    skip_space(j);
    MUST(peek(j) == '{' && j->end[-1] == '}', PARSE, "JSON: not an object");
    TRY(value(j));
    MUST(j->p == j->end, PARSE, "JSON: bytes after the value");
    return ACCEPT;
}

Verdict json_check(Span text) {
    Parser j = {.p = text.at, .end = text.at + text.len};
    Verdict v = object(&j, text);
    free(j.keys);
    return v;
}

/* The walkers. */

static const uint8_t *past_space(const uint8_t *p) {
    while (is_space(*p)) p++;
    return p;
}

static const uint8_t *past_string(const uint8_t *p) {
    for (p++; *p != '"'; p++) p += *p == '\\';
    return p + 1;
}

static const uint8_t *past_value(const uint8_t *p) {
    for (uint64_t depth = 0;;) {
        if (*p == '"') p = past_string(p);
        else if (*p == '{' || *p == '[') depth++, p++;
        else if (*p == '}' || *p == ']') depth--, p++;
        else if (depth) p++;
        else while (!is_space(*p) && *p != ',' && *p != ']' && *p != '}') p++;
        if (!depth) return p;
    }
}

/* string_at: the quote before it. */
static bool spells(const uint8_t *string_at, const char *ascii) {
    int32_t c;
    for (string_at++; (c = next_char(&string_at)) != NONE; ascii++)
        if (c != (unsigned char)*ascii || !c) return false;
    return !*ascii;
}

bool json_is(const uint8_t *value_at, const char *ascii) { return value_at && *value_at == '"' && spells(value_at, ascii); }

const uint8_t *json_get(const uint8_t *object_at, const char *ascii_key) {
    const uint8_t *p = past_space(object_at);
    if (*p != '{') return NULL;
    for (p = past_space(p + 1); *p == '"';) {
        const uint8_t *found = past_space(past_space(past_string(p)) + 1);
        if (spells(p, ascii_key)) return found;
        p = past_space(past_value(found));
        if (*p == ',') p = past_space(p + 1);
    }
    return NULL;
}

const uint8_t *json_first(const uint8_t *array) {
    const uint8_t *p = past_space(array + 1);
    return *p == ']' ? NULL : p;
}

const uint8_t *json_next(const uint8_t *element) {
    const uint8_t *p = past_space(past_value(element));
    return *p == ']' ? NULL : past_space(p + 1);
}

bool json_u64(const uint8_t *p, bool *huge, uint64_t *out) {
    const uint8_t *start = p;
    *out = 0;
    *huge = false;
    for (; is_digit(*p); p++) {
        unsigned digit = *p - '0';
        *huge |= *out > (UINT64_MAX - digit) / 10;
        *out = *out * 10 + digit;
    }
    return p > start && p == past_value(start);
}

bool json_hex64(const uint8_t *p, uint64_t *out) {
    *out = 0;
    if (*p++ != '"') return false;
    for (int i = 0; i < 16; i++) {
        int32_t c = next_char(&p);
        if (c > 'f' || hex_digit(c) == NONE) return false;
        *out = *out << 4 | (uint64_t)hex_digit(c);
    }
    return next_char(&p) == NONE;
}
