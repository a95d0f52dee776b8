/* Measures a capture and prints reports as JSON:
 *   cc pcap.c $(pkg-config --cflags --libs flowgauge) -o pcap && ./pcap FILE 'key=source task=top' [SEED]
 * Captures are pcap in this machine's byte order. The epochs are those of 'flowgauge analyze'. */
#include <flowgauge.h>
#include <stdio.h>
#include <stdlib.h>

static void print(void *out, const fg_report *report)
{
    fwrite(report->bytes, 1, report->length, out);
}

int main(int argc, char **argv)
{
    static unsigned char bytes[1 << 18];
    struct { uint32_t magic, version, zone, accuracy, most, link; } head;
    struct { uint32_t seconds, fraction, captured, wire; } record;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    fg_settings settings = { .size = sizeof settings, .options = argc > 2 ? argv[2] : NULL,
                             .seed = argc > 3 ? &seed : NULL, .queues = 1, .pace = FG_REPLAY,
                             .take = print, .user = stdout };
    fg_group *group;
    FILE *in = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (!in || fread(&head, sizeof head, 1, in) != 1
        || (head.magic != 0xa1b2c3d4 && head.magic != 0xa1b23c4d)) {
        fprintf(stderr, "usage: pcap FILE [OPTIONS [SEED]]: a capture in this machine's byte order\n");
        return 2;
    }
    if (fg_open(&settings, &group) != FG_OK) {
        fprintf(stderr, "pcap: %s\n", fg_error());
        return 2;
    }
    fg_meter *meter = fg_queue(group, 0);
    int64_t unit = head.magic == 0xa1b2c3d4 ? 1000 : 1;
    fg_link(meter, head.link & 0xffff);
    while (fread(&record, sizeof record, 1, in) == 1 && record.captured <= sizeof bytes
           && fread(bytes, 1, record.captured, in) == record.captured) {
        const void *data = bytes;
        int64_t now = record.seconds * INT64_C(1000000000) + record.fraction * unit;
        fg_push(meter, 1, &data, &record.captured, &record.wire, now);
    }
    return fg_close(group) == FG_OK ? 0 : 1;
}
