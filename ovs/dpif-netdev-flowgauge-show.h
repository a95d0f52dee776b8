/* The reports of libflowgauge and the state of the measurement, as
 * flowgauge/show prints them. */

#ifndef DPIF_NETDEV_FLOWGAUGE_SHOW_H
#define DPIF_NETDEV_FLOWGAUGE_SHOW_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ds;
struct ovs_list;

/* The state of the measurement, which the caller keeps unchanged while
 * flowgauge_format_status() runs. */
struct flowgauge_status {
    const char *state;
    const char *cause;               /* NULL unless measurement failed. */
    const char *library;             /* Path of the library. */
    const char *options;
    const char *next_options;        /* For the next epoch, or NULL. */
    const struct ovs_list *taps;     /* Of 'struct flowgauge_tap's. */
    unsigned long long int past_measured; /* Packets of removed taps. */
    unsigned long long int past_missed;
    uint64_t n_dropped;              /* Packets pushed after a defect. */
    unsigned int n_cut_short;        /* Epochs reported early. */
    const char *cut_short_by;        /* Why the last of them was, or NULL. */
};

/* Any thread may call this. */
void flowgauge_keep_report(const char *json, size_t length);

void flowgauge_format_status(const struct flowgauge_status *, bool as_json,
                             struct ds *);

#endif /* dpif-netdev-flowgauge-show.h */
