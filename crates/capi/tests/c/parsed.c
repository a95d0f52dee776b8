/* Headers parsed by the program give the same report as the packets. Snapshots arrive as bytes. */
#include "check.h"

static char last[1 << 16];
static int snapshots;

static void take(void *user, const fg_report *report)
{
    (void)user;
    if (report->kind == FG_SNAPSHOT) {
        snapshots++;
        CHECK(!report->secret && report->length > 8 && !memcmp(report->bytes, "FGSS", 4));
    } else if (strstr(report->bytes, "\"type\":\"epoch\"")) {
        snprintf(last, sizeof last, "%s", report->bytes);
    }
}

static fg_group *opened(void)
{
    uint64_t seed = 1;
    fg_group *group;
    fg_settings settings = { .size = sizeof settings, .seed = &seed, .queues = 1, .pace = FG_REPLAY,
                             .take = take, .snapshots = 1,
                             .yaml = "measurements:\n  main: { key: five-tuple, memory: 4MiB }\n" };
    CHECK(fg_open(&settings, &group) == FG_OK);
    return group;
}

int main(void)
{
    static struct burst burst;
    static char of_packets[sizeof last];
    fg_headers headers[BURST];
    make(&burst, 5);
    fg_group *group = opened();
    for (int i = 0; i < 100; i++)
        CHECK(push(fg_queue(group, 0), &burst, i) == FG_OK);
    CHECK(fg_close(group) == FG_OK);
    memcpy(of_packets, last, sizeof last);

    memset(headers, 0, sizeof headers);
    for (int i = 0; i < BURST; i++) {
        memcpy(headers[i].source, burst.bytes[i] + 26, 4);
        memcpy(headers[i].destination, burst.bytes[i] + 30, 4);
        headers[i].source_port = (uint16_t)i, headers[i].destination_port = 53;
        headers[i].version = 4, headers[i].protocol = 17, headers[i].has_ports = 1, headers[i].wire = 60;
    }
    group = opened();
    for (int i = 0; i < 100; i++)
        CHECK(fg_push_parsed(fg_queue(group, 0), BURST, headers, i) == FG_OK);
    CHECK(fg_close(group) == FG_OK);
    CHECK(number(last, "keyed") == 100 * BURST);
    CHECK(!strcmp(last, of_packets));
    CHECK(snapshots == 2);

    /* Non-IP packets have no key, and IPv6 uses the other lane. */
    headers[0].version = 0, headers[1].version = 6, headers[2].has_ports = 0;
    group = opened();
    CHECK(fg_push_parsed(fg_queue(group, 0), 3, headers, 0) == FG_OK);
    CHECK(fg_close(group) == FG_OK);
    CHECK(number(last, "no_key") == 1 && number(last, "keyed") == 2);
    return 0;
}
