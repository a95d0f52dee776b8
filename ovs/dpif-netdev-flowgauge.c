#include <config.h>

#include "dpif-netdev-flowgauge.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "dp-packet.h"
#include "dpdk.h"
#include "dpif-netdev.h"
#include "dpif-netdev-flowgauge-show.h"
#include "flowgauge.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "ovs-numa.h"
#include "ovs-rcu.h"
#include "smap.h"
#include "timeval.h"
#include "unixctl.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(flowgauge);

#ifndef FLOWGAUGE_LIBRARY
#define FLOWGAUGE_LIBRARY "/usr/local/lib/libflowgauge.so.1"
#endif

#define TICK_USEC 10000              /* Interval to advance a meter. */
#define WAKE_MSEC 100                /* Wake-up interval, main thread. */
#define CLOCK_STEP_USEC 10000        /* A larger difference is a step. */
#define CLOCK_READ_USEC 1000         /* Longest time between two reads. */

/* The functions of the library; 'open' is NULL until it is loaded. */
static struct {
    uint32_t (*abi_version)(void);
    const char *(*error)(void);
    int (*open)(const struct fg_settings *, struct fg_group **);
    struct fg_meter *(*queue)(const struct fg_group *, uint32_t);
    int (*push_mbufs)(struct fg_meter *, uint32_t, const void *const *,
                      const struct fg_mbuf_layout *, int64_t);
    int (*advance)(struct fg_meter *, int64_t);
    int (*dropped)(const struct fg_group *, uint64_t *);
    int (*close)(struct fg_group *);
} library;

/* The meters of all taps, opened together. */
struct group {
    struct fg_group *handle;
    char *options;
    unsigned int taps_version;       /* Of the taps when it was opened. */
    atomic_bool epoch_closed;        /* Since the last change of options. */
    uint64_t n_past;                 /* Its packets in 'past_dropped'. */
    bool died;                       /* The log says so already. */
};

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;

/* The configuration in the database. */
static bool enabled OVS_GUARDED_BY(mutex);
static char *options OVS_GUARDED_BY(mutex);

static struct ovs_list taps OVS_GUARDED_BY(mutex)
    = OVS_LIST_INITIALIZER(&taps);
static unsigned int taps_version OVS_GUARDED_BY(mutex);

/* Packets of removed taps, and dropped ones of groups that are closed or
 * will be. */
static unsigned long long int past_measured OVS_GUARDED_BY(mutex);
static unsigned long long int past_missed OVS_GUARDED_BY(mutex);
static uint64_t past_dropped OVS_GUARDED_BY(mutex);

static struct group *group OVS_GUARDED_BY(mutex);
static char *failure OVS_GUARDED_BY(mutex); /* Why there is no group. */
static unsigned int n_cut_short OVS_GUARDED_BY(mutex);
static const char *cut_short_by OVS_GUARDED_BY(mutex);

/* Whether packets without a meter count as missed. */
static atomic_bool awaited = false;

/* Microseconds between the monotonic and the wall clock. */
static atomic_llong wall_offset = 0;

static int64_t
wall_ns(long long int now)
{
    long long int offset;

    atomic_read_relaxed(&wall_offset, &offset);
    return (now + offset) * 1000;
}

static void
follow_wall_clock(void)
{
    long long int offset, before, current;

    /* If the thread is preempted between the reads, they are of different
     * times. */
    do {
        before = time_usec();
        current = time_wall_usec() - before;
    } while (time_usec() - before > CLOCK_READ_USEC);

    atomic_read_relaxed(&wall_offset, &offset);
    if (llabs(current - offset) > CLOCK_STEP_USEC) {
        atomic_store_relaxed(&wall_offset, current);
    }
}

static void
add_to(atomic_ullong *counter, unsigned long long int n)
{
    unsigned long long int old;

    /* Only one thread writes. */
    atomic_read_relaxed(counter, &old);
    atomic_store_relaxed(counter, old + n);
}

/* Where the fields of a packet are.  The buffer holds its first segment. */
static const struct fg_mbuf_layout layout = {
#ifdef DPDK_NETDEV
    .buffer = offsetof(struct dp_packet, mbuf.buf_addr),
    .start = offsetof(struct dp_packet, mbuf.data_off),
    .captured = offsetof(struct dp_packet, mbuf.data_len),
    .wire = offsetof(struct dp_packet, mbuf.pkt_len),
#else
    .buffer = offsetof(struct dp_packet, base_),
    .start = offsetof(struct dp_packet, data_ofs),
    .captured = offsetof(struct dp_packet, size_),
    .wire = offsetof(struct dp_packet, size_),
#endif
};

void
flowgauge_tap_measure(struct flowgauge_tap *tap,
                      const struct dp_packet_batch *batch, long long int now)
{
    const void *const *packets = (const void *const *) batch->packets;
    uint32_t n = dp_packet_batch_size(batch);
    int64_t now_ns = wall_ns(now);
    struct fg_meter *meter;

    atomic_read_explicit(&tap->meter, &meter, memory_order_acquire);
    if (!meter) {
        bool is_awaited;

        atomic_read_relaxed(&awaited, &is_awaited);
        if (is_awaited) {
            add_to(&tap->n_missed, n);
        }
        return;
    }

    if (!fg_skip_mbufs(meter, n, packets, &layout, now_ns)) {
        library.push_mbufs(meter, n, packets, &layout, now_ns);
    }
    add_to(&tap->n_measured, n);
}

/* Advances the meter of a tap.  Returns FG_EDEAD if its group is dead. */
static int
advance_tap(struct flowgauge_tap *tap, long long int now)
{
    struct fg_meter *meter;

    tap->next_tick = now + TICK_USEC;
    atomic_read_explicit(&tap->meter, &meter, memory_order_acquire);
    return meter ? library.advance(meter, wall_ns(now)) : FG_OK;
}

void
flowgauge_tap_advance(struct flowgauge_tap *tap, long long int now)
{
    advance_tap(tap, now);
}

void
flowgauge_tap_set_resting(struct flowgauge_tap *tap, bool resting)
{
    ovs_mutex_lock(&tap->rest_mutex);
    tap->resting = resting;
    ovs_mutex_unlock(&tap->rest_mutex);
}

void
flowgauge_tap_init(struct flowgauge_tap *tap, const char *datapath,
                   unsigned core_id)
{
    atomic_init(&tap->meter, NULL);
    atomic_init(&tap->n_measured, 0);
    atomic_init(&tap->n_missed, 0);
    tap->next_tick = 0;
    ovs_mutex_init(&tap->rest_mutex);
    tap->resting = core_id == NON_PMD_CORE_ID;
    tap->datapath = xstrdup(datapath);
    tap->core_id = core_id;

    ovs_mutex_lock(&mutex);
    ovs_list_push_back(&taps, &tap->node);
    taps_version++;
    ovs_mutex_unlock(&mutex);
}

/* Loads the library.  Returns NULL, or an error that the caller must free. */
static char *
load_library(void)
{
    uint32_t version;
    void *handle;

    if (library.open) {
        return NULL;
    }
    handle = dlopen(FLOWGAUGE_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        return xasprintf("%s; install libflowgauge at this path", dlerror());
    }
#define FIND(NAME) library.NAME = dlsym(handle, "fg_" #NAME)
    FIND(abi_version);
    FIND(error);
    FIND(queue);
    FIND(push_mbufs);
    FIND(advance);
    FIND(dropped);
    FIND(close);
    version = library.abi_version ? library.abi_version() : 0;
    if (version != FG_ABI_VERSION) {
        dlclose(handle);
        return xasprintf("%s has ABI version %"PRIu32", but this switch needs "
                         "version %d; install that version and restart "
                         "the switch, or build the switch again",
                         FLOWGAUGE_LIBRARY, version, FG_ABI_VERSION);
    }
    FIND(open);
#undef FIND
    return NULL;
}

/* Takes a report in a thread of the library. */
static void
take_report(void *group_, const struct fg_report *report)
{
    struct group *from = group_;

    flowgauge_keep_report(report->bytes, report->length);
    atomic_store_relaxed(&from->epoch_closed, true);
}

/* Removes the cores of polling threads from the affinity of the main thread,
 * which the library's threads inherit.  Returns whether that succeeded. */
static bool
leave_polling_cores(cpu_set_t *before)
    OVS_REQUIRES(mutex)
{
    const struct flowgauge_tap *tap;
    cpu_set_t cores;

    if (sched_getaffinity(0, sizeof *before, before)) {
        return false;
    }
    cores = *before;
    LIST_FOR_EACH (tap, node, &taps) {
        if (tap->core_id < CPU_SETSIZE) {
            CPU_CLR(tap->core_id, &cores);
        }
    }
    return CPU_COUNT(&cores) && !sched_setaffinity(0, sizeof cores, &cores);
}

/* Opens a group for all taps.  On failure, returns NULL and sets
 * 'failure'. */
static struct group *
open_group(void)
    OVS_REQUIRES(mutex)
{
    struct fg_settings settings = {
        .size = sizeof settings,
        .options = options,
        .take = take_report,
        .queues = ovs_list_size(&taps),
        .pace = FG_LIVE,
    };
    struct group *opened;
    cpu_set_t cores;
    bool narrowed;
    int error;

    failure = load_library();
    if (failure) {
        return NULL;
    }
    follow_wall_clock();
    opened = xzalloc(sizeof *opened);
    settings.user = opened;
    narrowed = leave_polling_cores(&cores);
    error = library.open(&settings, &opened->handle);
    if (narrowed) {
        sched_setaffinity(0, sizeof cores, &cores);
    }
    if (error != FG_OK) {
        failure = xasprintf("%s; change other_config:flowgauge-options",
                            library.error());
        free(opened);
        return NULL;
    }
    opened->options = xstrdup(options);
    opened->taps_version = taps_version;
    return opened;
}

/* Packets that were pushed into the meters of a group in vain, since a defect
 * stopped it. */
static uint64_t
dropped_packets(const struct group *of)
{
    uint64_t n = 0;

    library.dropped(of->handle, &n);
    return n;
}

/* Adds the dropped packets of a group that ends to 'past_dropped'. */
static void
keep_dropped(struct group *ending)
    OVS_REQUIRES(mutex)
{
    uint64_t n = dropped_packets(ending);

    past_dropped += n - ending->n_past;
    ending->n_past = n;
}

/* Closes a group that no thread uses, and takes its remaining reports. */
static void
close_group(struct group *closing)
    OVS_EXCLUDED(mutex)
{
    /* Threads may have dropped more since it was replaced. */
    ovs_mutex_lock(&mutex);
    keep_dropped(closing);
    ovs_mutex_unlock(&mutex);

    if (library.close(closing->handle) != FG_OK && !closing->died) {
        VLOG_WARN("measurement had stopped: %s", library.error());
    }
    free(closing->options);
    free(closing);
}

/* Gives the taps the meters of 'next', or none if it is NULL.  The open epoch
 * of the last group ends early, unless it is dead; the log and flowgauge/show
 * give 'reason'. */
static void
replace_group(struct group *next, const char *reason)
    OVS_REQUIRES(mutex)
{
    struct group *last = group;
    struct flowgauge_tap *tap;
    uint32_t queue = 0;

    LIST_FOR_EACH (tap, node, &taps) {
        struct fg_meter *meter
            = next ? library.queue(next->handle, queue++) : NULL;

        atomic_store_explicit(&tap->meter, meter, memory_order_release);
    }
    group = next;
    atomic_store_relaxed(&awaited, enabled && !failure);

    if (last) {
        keep_dropped(last);
        if (!last->died) {
            n_cut_short++;
            cut_short_by = reason;
            VLOG_INFO("%s: the open epoch is reported early", reason);
        }
        /* Threads may be in the middle of a burst. */
        ovsrcu_postpone(close_group, last);
    }
    if (next) {
        VLOG_INFO("measuring with %"PRIuSIZE" meters: %s",
                  ovs_list_size(&taps),
                  next->options[0] ? next->options : "all defaults");
    } else if (failure) {
        VLOG_ERR("not measuring: %s", failure);
    }
}

/* Adapts the group to the database and to the taps. */
static void
reconcile(void)
    OVS_REQUIRES(mutex)
{
    const char *reason = NULL;

    if (!enabled) {
        reason = "measurement was switched off";
    } else if (ovs_list_is_empty(&taps)) {
        reason = "the last datapath was deleted";
    }
    if (reason) {
        if (group) {
            replace_group(NULL, reason);
        }
        return;
    }

    if (failure) {
        return;
    }
    if (group && group->taps_version != taps_version) {
        reason = "the threads that receive packets changed";
    } else if (group && strcmp(group->options, options)) {
        bool epoch_closed;

        atomic_read_relaxed(&group->epoch_closed, &epoch_closed);
        if (!epoch_closed) {
            return;
        }
        reason = "the options changed";
    } else if (group) {
        return;
    }
    replace_group(open_group(), reason);
}

void
flowgauge_tap_destroy(struct flowgauge_tap *tap)
{
    unsigned long long int measured, missed;

    ovs_mutex_lock(&mutex);
    ovs_list_remove(&tap->node);
    atomic_read_relaxed(&tap->n_measured, &measured);
    atomic_read_relaxed(&tap->n_missed, &missed);
    past_measured += measured;
    past_missed += missed;
    taps_version++;
    if (ovs_list_is_empty(&taps)) {
        /* flowgauge_run() is not called without datapaths. */
        reconcile();
    }
    ovs_mutex_unlock(&mutex);

    ovs_mutex_destroy(&tap->rest_mutex);
    free(tap->datapath);
}

void
flowgauge_set_config(const struct smap *other_config)
{
    bool now_enabled = smap_get_bool(other_config, "flowgauge", false);
    const char *now_options = smap_get_def(other_config,
                                           "flowgauge-options", "");

    ovs_mutex_lock(&mutex);
    if (enabled != now_enabled || !options || strcmp(options, now_options)) {
        enabled = now_enabled;
        free(options);
        options = xstrdup(now_options);
        free(failure);
        failure = NULL;
        if (group) {
            atomic_store_relaxed(&group->epoch_closed, false);
        }
        atomic_store_relaxed(&awaited, enabled);
        reconcile();
    }
    ovs_mutex_unlock(&mutex);
}

/* Advances the taps whose threads sleep.  Returns false if the group is
 * dead. */
static bool
advance_resting_taps(void)
    OVS_REQUIRES(mutex)
{
    struct flowgauge_tap *tap;
    bool alive = true;

    LIST_FOR_EACH (tap, node, &taps) {
        long long int now = time_usec();

        ovs_mutex_lock(&tap->rest_mutex);
        if (tap->resting && now >= tap->next_tick) {
            alive = advance_tap(tap, now) != FG_EDEAD;
        }
        ovs_mutex_unlock(&tap->rest_mutex);
        if (!alive) {
            break;
        }
    }
    return alive;
}

void
flowgauge_run(void)
{
    ovs_mutex_lock(&mutex);
    reconcile();
    if (group) {
        follow_wall_clock();
        /* The tap of the main thread always rests. */
        if (!advance_resting_taps()) {
            failure = xasprintf("%s; switch measurement off and on",
                                library.error());
            group->died = true;
            replace_group(NULL, NULL);
        }
    }
    ovs_mutex_unlock(&mutex);
}

void
flowgauge_wait(void)
{
    ovs_mutex_lock(&mutex);
    if (group) {
        poll_timer_wait(WAKE_MSEC);
    }
    ovs_mutex_unlock(&mutex);
}

static const char *
state_name(void)
    OVS_REQUIRES(mutex)
{
    return (group ? "on" : failure ? "failed" : enabled ? "waiting" : "off");
}

static void
flowgauge_show(struct unixctl_conn *conn, int argc, const char *argv[],
               void *aux OVS_UNUSED)
{
    struct ds reply = DS_EMPTY_INITIALIZER;
    struct flowgauge_status status;

    if (argc > 1 && strcmp(argv[1], "json")) {
        unixctl_command_reply_error(conn, "usage: flowgauge/show [json]");
        return;
    }
    ovs_mutex_lock(&mutex);
    status = (struct flowgauge_status) {
        .state = state_name(),
        .cause = failure,
        .library = FLOWGAUGE_LIBRARY,
        .options = group ? group->options : options ? options : "",
        .next_options = (group && strcmp(group->options, options)
                         ? options : NULL),
        .taps = &taps,
        .past_measured = past_measured,
        .past_missed = past_missed,
        .n_dropped = past_dropped + (group ? dropped_packets(group) : 0),
        .n_cut_short = n_cut_short,
        .cut_short_by = cut_short_by,
    };
    flowgauge_format_status(&status, argc > 1, &reply);
    ovs_mutex_unlock(&mutex);
    unixctl_command_reply(conn, ds_cstr(&reply));
    ds_destroy(&reply);
}

void
flowgauge_init(void)
{
    unixctl_command_register("flowgauge/show", "[json]", 0, 1,
                             flowgauge_show, NULL);
}
