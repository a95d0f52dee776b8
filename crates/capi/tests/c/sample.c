/* A sampler before headers: the inline test skips the packets that the meter would, and the account has them,
 * whichever function the packets are pushed by. */
#include "check.h"

#define BURSTS 5000

static char last[1 << 16];

static void take(void *user, const fg_report *report)
{
    (void)user;
    if (strstr(report->bytes, "\"type\":\"epoch\""))
        snprintf(last, sizeof last, "%s", report->bytes);
}

/* As the program's own structure describes a packet. */
struct packet {
    const void *buffer;
    uint32_t wire;
    uint16_t start, captured;
};

static const fg_mbuf_layout layout = {
    .buffer = offsetof(struct packet, buffer), .start = offsetof(struct packet, start),
    .captured = offsetof(struct packet, captured), .wire = offsetof(struct packet, wire),
};

/* Who decides which packets of a burst are pushed. */
enum decides { INLINE, CALL, MBUFS };

/* Pushes the wanted packets of bursts of 1 to 32; returns their number, and that of all packets. */
static long long run(enum decides decides, const char *options, long long *all)
{
    static struct packet packets[BURST];
    static const void *mbufs[BURST];
    static struct burst burst, wanted;
    uint64_t seed = 1;
    long long pushed = 0, packets_of_all = 0, bytes_of_all = 0;
    fg_group *group;
    fg_settings settings = { .size = sizeof settings, .options = options, .seed = &seed, .queues = 1,
                             .pace = FG_REPLAY, .take = take };
    CHECK(fg_open(&settings, &group) == FG_OK);
    fg_meter *meter = fg_queue(group, 0);
    make(&burst, 3);
    for (int i = 0; i < BURST; i++) {
        burst.wire[i] = 60 + 10 * i;
        packets[i] = (struct packet){ burst.bytes[i], burst.wire[i], 0, 60 };
        mbufs[i] = &packets[i];
    }
    for (int i = 0; i < BURSTS; i++) {
        int64_t now = i * INT64_C(1000);
        uint32_t burst_packets = 1 + i % BURST, bytes = 0, count = 0;
        for (uint32_t at = 0; at < burst_packets; at++)
            bytes += burst.wire[at];
        packets_of_all += burst_packets;
        bytes_of_all += bytes;
        if (decides == MBUFS) {
            if (!fg_skip_mbufs(meter, burst_packets, mbufs, &layout, now))
                CHECK(fg_push_mbufs(meter, burst_packets, mbufs, &layout, now) == FG_OK);
            continue;
        }
        uint64_t mask = decides == INLINE ? fg_want(meter, burst_packets, bytes, now)
                                          : fg_pick(meter, burst_packets, bytes, now);
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
    CHECK(number(last, "read") == packets_of_all);
    if (decides == MBUFS)
        pushed = number(last, "keyed");
    CHECK(number(last, "keyed") == pushed);
    CHECK(number(last, "skipped") == packets_of_all - pushed);
    CHECK(number(last, "skipped_bytes") == bytes_of_all - number(last, "keyed_bytes"));
    *all = packets_of_all;
    return pushed;
}

int main(void)
{
    const char *uniform = "key=source accelerator=uniform:sample=100,before=headers memory=4MiB";
    long long all, pushed = run(INLINE, uniform, &all);
    static char with_inline[sizeof last];
    CHECK(pushed > all / 120 && pushed < all / 80);
    memcpy(with_inline, last, sizeof last);
    CHECK(run(CALL, uniform, &all) == pushed);
    CHECK(!strcmp(with_inline, last));
    CHECK(run(MBUFS, uniform, &all) == pushed);
    CHECK(!strcmp(with_inline, last));
    for (enum decides decides = INLINE; decides <= MBUFS; decides++) {
        pushed = run(decides, "key=source memory=4MiB", &all);
        CHECK(pushed == all);
    }
    return 0;
}
