/* Measurement of the packets that a datapath receives, by libflowgauge.
 *
 * Every thread that receives packets has a tap, which holds the thread's
 * meter while measurement is on.  All meters belong to one group.  The main
 * thread opens and closes it when the database or the threads change.
 *
 * The library is loaded at run time from the path FLOWGAUGE_LIBRARY, which is
 * fixed when the switch is built: write access to the database must not allow
 * loading code. */

#ifndef DPIF_NETDEV_FLOWGAUGE_H
#define DPIF_NETDEV_FLOWGAUGE_H 1

#include "openvswitch/compiler.h"
#include "openvswitch/list.h"
#include "openvswitch/thread.h"
#include "ovs-atomic.h"

struct dp_packet_batch;
struct fg_meter;
struct smap;

/* The tap of a thread.  Only this thread measures through it. */
struct flowgauge_tap {
    struct ovs_list node;            /* In the list of all taps. */
    ATOMIC(struct fg_meter *) meter; /* NULL while nothing is measured. */
    atomic_ullong n_measured;        /* Packets pushed into a meter. */
    atomic_ullong n_missed;          /* Packets received without a meter
                                      * while measurement was on. */
    long long int next_tick;         /* When to advance the meter, in us. */

    /* Whether the main thread advances the meter, because the tap's thread
     * sleeps.  That thread does not take the mutex while it polls. */
    struct ovs_mutex rest_mutex;
    bool resting OVS_GUARDED;

    char *datapath;
    unsigned core_id;                /* Or NON_PMD_CORE_ID. */
};

/* The main thread calls these. */
void flowgauge_init(void);
void flowgauge_set_config(const struct smap *other_config);
void flowgauge_run(void);
void flowgauge_wait(void);
void flowgauge_tap_init(struct flowgauge_tap *, const char *datapath,
                        unsigned core_id);
void flowgauge_tap_destroy(struct flowgauge_tap *);

/* The tap's own thread calls these.  'now' is its time in microseconds. */
void flowgauge_tap_set_resting(struct flowgauge_tap *, bool resting);
void flowgauge_tap_advance(struct flowgauge_tap *, long long int now);
void flowgauge_tap_measure(struct flowgauge_tap *,
                           const struct dp_packet_batch *, long long int now);

/* Ends epochs on time when no packets arrive. */
static inline void
flowgauge_tap_tick(struct flowgauge_tap *tap, long long int now)
{
    if (OVS_UNLIKELY(now >= tap->next_tick)) {
        flowgauge_tap_advance(tap, now);
    }
}

#endif /* dpif-netdev-flowgauge.h */
