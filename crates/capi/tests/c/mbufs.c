/* Packets in the program's own structures give the same report as the same packets in arrays. */
#include "check.h"

/* As an mbuf: the buffer holds the beginning of the packet. */
struct mbuf {
    uint32_t wire;
    uint16_t captured, start;
    void *buffer;
};

/* As a packet that is always whole. */
struct packet {
    char name[3];
    void *buffer;
    uint16_t start;
    uint32_t length;
} __attribute__((packed));

#define PLACE(TYPE, FIELD) ((uint16_t)offsetof(struct TYPE, FIELD))

static const fg_mbuf_layout of_mbuf = {
    .buffer = PLACE(mbuf, buffer), .start = PLACE(mbuf, start),
    .captured = PLACE(mbuf, captured), .wire = PLACE(mbuf, wire),
};
static const fg_mbuf_layout of_packet = {
    .buffer = PLACE(packet, buffer), .start = PLACE(packet, start),
    .captured = PLACE(packet, length), .wire = PLACE(packet, length),
};

#define PACKETS (4 * BURST)

static char last[1 << 16];

static void take(void *user, const fg_report *report)
{
    (void)user;
    if (strstr(report->bytes, "\"type\":\"epoch\""))
        snprintf(last, sizeof last, "%s", report->bytes);
}

static fg_group *opened(void)
{
    uint64_t seed = 1;
    fg_group *group;
    fg_settings settings = { .size = sizeof settings, .options = "key=five-tuple memory=4MiB", .seed = &seed,
                             .queues = 1, .pace = FG_REPLAY, .take = take };
    CHECK(fg_open(&settings, &group) == FG_OK);
    return group;
}

int main(void)
{
    static struct burst burst;
    static struct mbuf mbufs[PACKETS];
    static struct packet packets[PACKETS];
    static const void *data[PACKETS], *of_mbufs[PACKETS], *of_packets[PACKETS];
    static uint32_t captured[PACKETS], wire[PACKETS], whole[PACKETS];
    static const uint32_t counts[] = { 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100, PACKETS };
    static char expected[sizeof last], of_whole[sizeof last];
    make(&burst, 5);
    for (int i = 0; i < PACKETS; i++) {
        unsigned char *bytes = burst.bytes[i % BURST];
        /* Packets are cut in their addresses, in their ports or not at all; and one starts in its buffer. */
        uint32_t length = i % 5 == 0 ? 20 : i % 5 == 1 ? 36 : 60;
        uint16_t start = i % 3 == 0 ? 200 : 0;
        data[i] = bytes, captured[i] = length, wire[i] = 70000 + (uint32_t)i, whole[i] = 60;
        mbufs[i] = (struct mbuf){ wire[i], (uint16_t)length, start, bytes - start };
        packets[i] = (struct packet){ "", bytes - start, start, 60 };
        of_mbufs[i] = &mbufs[i], of_packets[i] = &packets[i];
    }

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint32_t count = counts[i];
        fg_group *group = opened();
        CHECK(fg_push(fg_queue(group, 0), count, data, captured, wire, 0) == FG_OK);
        CHECK(fg_close(group) == FG_OK);
        CHECK(number(last, "malformed") == (count + 4) / 5 + (count + 3) / 5);
        memcpy(expected, last, sizeof last);
        group = opened();
        CHECK(fg_push_mbufs(fg_queue(group, 0), count, of_mbufs, &of_mbuf, 0) == FG_OK);
        CHECK(fg_close(group) == FG_OK);
        CHECK(!strcmp(last, expected));

        group = opened();
        CHECK(fg_push(fg_queue(group, 0), count, data, whole, whole, 0) == FG_OK);
        CHECK(fg_close(group) == FG_OK);
        CHECK(number(last, "keyed") == count);
        memcpy(of_whole, last, sizeof last);
        group = opened();
        CHECK(fg_push_mbufs(fg_queue(group, 0), count, of_packets, &of_packet, 0) == FG_OK);
        CHECK(fg_close(group) == FG_OK);
        CHECK(!strcmp(last, of_whole));
    }
    return 0;
}
