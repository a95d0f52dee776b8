/* A sampler before headers: the inline test skips the packets that the meter would, and the account has them. */
#include "check.h"

#define BURSTS 5000

static char last[1 << 16];

static void take(void *user, const fg_report *report)
{
    (void)user;
    if (strstr(report->bytes, "\"type\":\"epoch\""))
        snprintf(last, sizeof last, "%s", report->bytes);
}

/* Pushes the wanted packets of each burst; returns their number. */
static long long run(int with_inline, const char *options)
{
    static struct burst burst, wanted;
    uint64_t seed = 1;
    long long pushed = 0;
    fg_group *group;
    fg_settings settings = { .size = sizeof settings, .options = options, .seed = &seed, .queues = 1,
                             .pace = FG_REPLAY, .take = take };
    CHECK(fg_open(&settings, &group) == FG_OK);
    fg_meter *meter = fg_queue(group, 0);
    CHECK(fg_samples(meter) == (strstr(options, "before=headers") != NULL));
    make(&burst, 3);
    for (int i = 0; i < BURSTS; i++) {
        int64_t now = i * INT64_C(1000);
        uint64_t mask = with_inline ? fg_want(meter, BURST, BURST * 60, now)
                                    : fg_pick(meter, BURST, BURST * 60, now);
        uint32_t count = 0;
        for (; mask; mask &= mask - 1, count++) {
            int at = __builtin_ctzll(mask);
            wanted.data[count] = burst.data[at];
            wanted.captured[count] = burst.captured[at];
            wanted.wire[count] = burst.wire[at];
        }
        CHECK(fg_push(meter, count, wanted.data, wanted.captured, wanted.wire, now) == FG_OK);
        pushed += count;
    }
    CHECK(fg_close(group) == FG_OK);
    CHECK(number(last, "read") == (long long)BURSTS * BURST);
    CHECK(number(last, "keyed") == pushed);
    CHECK(number(last, "skipped") == (long long)BURSTS * BURST - pushed);
    CHECK(number(last, "skipped_bytes") == 60 * number(last, "skipped"));
    return pushed;
}

int main(void)
{
    const char *uniform = "key=source accelerator=uniform:sample=100,before=headers memory=4MiB";
    long long pushed = run(1, uniform);
    static char with_inline[sizeof last];
    CHECK(pushed > BURSTS * BURST / 120 && pushed < BURSTS * BURST / 80);
    memcpy(with_inline, last, sizeof last);
    CHECK(run(0, uniform) == pushed);
    CHECK(!strcmp(with_inline, last));
    CHECK(run(1, "key=source memory=4MiB") == (long long)BURSTS * BURST);
    return 0;
}
