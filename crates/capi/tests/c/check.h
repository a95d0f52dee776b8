/* Common to all tests: packets, and a check that names its line. */
#include <flowgauge.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__,         \
                    #condition, fg_error());                                                    \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

#define BURST 32

/* A burst of 60-byte UDP packets, each from a different source port. */
struct burst {
    unsigned char bytes[BURST][60];
    const void *data[BURST];
    uint32_t captured[BURST], wire[BURST];
};

static inline void make(struct burst *burst, unsigned char host)
{
    static const unsigned char packet[] = {
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0,
        0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1,
        0, 0, 0, 53, 0, 26, 0, 0,
    };
    memset(burst, 0, sizeof *burst);
    for (int i = 0; i < BURST; i++) {
        memcpy(burst->bytes[i], packet, sizeof packet);
        burst->bytes[i][29] = host;
        burst->bytes[i][35] = (unsigned char)i;
        burst->data[i] = burst->bytes[i];
        burst->captured[i] = burst->wire[i] = sizeof burst->bytes[i];
    }
}

static inline int push(fg_meter *meter, struct burst *burst, int64_t now_ns)
{
    return fg_push(meter, BURST, burst->data, burst->captured, burst->wire, now_ns);
}

/* The number behind the first "name": in a line of JSON, or -1. */
static inline long long number(const char *line, const char *name)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *at = line ? strstr(line, quoted) : NULL;
    return at ? strtoll(at + strlen(quoted), NULL, 10) : -1;
}
