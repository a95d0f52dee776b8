#include <config.h>

#include "dpif-netdev-flowgauge-show.h"

#include <stdlib.h>
#include <string.h>

#include "dpif-netdev.h"
#include "dpif-netdev-flowgauge.h"
#include "flowgauge.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "openvswitch/list.h"
#include "openvswitch/thread.h"
#include "ovs-atomic.h"
#include "util.h"

#define KEPT_REPORTS 64
#define KEPT_BYTES (16 * 1024 * 1024)

/* A report from the library. */
struct report {
    struct ovs_list node;
    size_t length;
    char json[];
};

/* Reports of all groups, oldest first. */
static struct ovs_mutex reports_mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list reports OVS_GUARDED_BY(reports_mutex)
    = OVS_LIST_INITIALIZER(&reports);
static size_t n_reports OVS_GUARDED_BY(reports_mutex);
static size_t report_bytes OVS_GUARDED_BY(reports_mutex);
static unsigned long long int n_forgotten OVS_GUARDED_BY(reports_mutex);

/* Keeps a copy of a report, which may end in newlines. */
void
flowgauge_keep_report(const char *json, size_t length)
{
    struct report *report;

    while (length && json[length - 1] == '\n') {
        length--;
    }
    report = xmalloc(sizeof *report + length + 1);
    memcpy(report->json, json, length);
    report->json[length] = '\0';
    report->length = length;

    ovs_mutex_lock(&reports_mutex);
    ovs_list_push_back(&reports, &report->node);
    n_reports++;
    report_bytes += length;
    while (n_reports > KEPT_REPORTS
           || (n_reports > 1 && report_bytes > KEPT_BYTES)) {
        report = CONTAINER_OF(ovs_list_pop_front(&reports),
                              struct report, node);
        n_reports--;
        report_bytes -= report->length;
        n_forgotten++;
        free(report);
    }
    ovs_mutex_unlock(&reports_mutex);
}

static char *
tap_name(const struct flowgauge_tap *tap)
{
    return (tap->core_id == NON_PMD_CORE_ID
            ? xasprintf("main thread of %s", tap->datapath)
            : xasprintf("core %u of %s", tap->core_id, tap->datapath));
}

static void
put_counts(struct ds *reply, const char *name,
           unsigned long long int measured, unsigned long long int missed)
{
    ds_put_format(reply, "%s: %llu packets", name, measured);
    if (missed) {
        ds_put_format(reply, ", and %llu before it had a meter", missed);
    }
    ds_put_char(reply, '\n');
}

static void
format_text(const struct flowgauge_status *status, struct ds *reply)
    OVS_REQUIRES(reports_mutex)
{
    const struct flowgauge_tap *tap;

    ds_put_format(reply, "state: %s\n", status->state);
    if (status->cause) {
        ds_put_format(reply, "cause: %s\n", status->cause);
    }
    ds_put_format(reply, "library: %s (ABI version %d)\n",
                  status->library, FG_ABI_VERSION);
    ds_put_format(reply, "options: %s\n", status->options);
    if (status->next_options) {
        ds_put_format(reply, "next options: %s\n", status->next_options);
    }
    LIST_FOR_EACH (tap, node, status->taps) {
        unsigned long long int measured, missed;
        char *name = tap_name(tap);

        atomic_read_relaxed(&tap->n_measured, &measured);
        atomic_read_relaxed(&tap->n_missed, &missed);
        put_counts(reply, name, measured, missed);
        free(name);
    }
    put_counts(reply, "ended threads",
               status->past_measured, status->past_missed);
    ds_put_format(reply, "dropped: %"PRIu64" packets\n", status->n_dropped);
    ds_put_format(reply, "epochs reported early: %u", status->n_cut_short);
    if (status->cut_short_by) {
        ds_put_format(reply, " (last: %s)", status->cut_short_by);
    }
    ds_put_format(reply, "\nreports: %"PRIuSIZE" kept, %llu forgotten; "
                  "'flowgauge/show json' prints them\n",
                  n_reports, n_forgotten);
}

static struct json *
threads_to_json(const struct ovs_list *taps)
{
    struct json *threads = json_array_create_empty();
    const struct flowgauge_tap *tap;

    LIST_FOR_EACH (tap, node, taps) {
        struct json *thread = json_object_create();
        unsigned long long int measured, missed;

        atomic_read_relaxed(&tap->n_measured, &measured);
        atomic_read_relaxed(&tap->n_missed, &missed);
        json_object_put_string(thread, "datapath", tap->datapath);
        if (tap->core_id != NON_PMD_CORE_ID) {
            json_object_put(thread, "core",
                            json_integer_create(tap->core_id));
        }
        json_object_put(thread, "packets", json_integer_create(measured));
        json_object_put(thread, "missed", json_integer_create(missed));
        json_array_add(threads, thread);
    }
    return threads;
}

/* Appends the members of an object, without the brace that ends it. */
static void
put_open_object(struct ds *reply, struct json *object)
{
    json_to_ds(object, JSSF_SORT, reply);
    ds_chomp(reply, '}');
    json_destroy(object);
}

static void
format_json(const struct flowgauge_status *status, struct ds *reply)
    OVS_REQUIRES(reports_mutex)
{
    struct json *object = json_object_create();
    const struct report *report;
    const char *separator = "";

    json_object_put_string(object, "state", status->state);
    if (status->cause) {
        json_object_put_string(object, "cause", status->cause);
    }
    json_object_put_string(object, "library", status->library);
    json_object_put_string(object, "options", status->options);
    if (status->next_options) {
        json_object_put_string(object, "next_options", status->next_options);
    }
    json_object_put(object, "dropped",
                    json_integer_create(status->n_dropped));
    json_object_put(object, "past_packets",
                    json_integer_create(status->past_measured));
    json_object_put(object, "past_missed",
                    json_integer_create(status->past_missed));
    json_object_put(object, "cut_short",
                    json_integer_create(status->n_cut_short));
    json_object_put(object, "forgotten", json_integer_create(n_forgotten));
    json_object_put(object, "threads", threads_to_json(status->taps));
    put_open_object(reply, object);

    /* Reports are JSON already. */
    ds_put_cstr(reply, ",\"reports\":[");
    LIST_FOR_EACH (report, node, &reports) {
        ds_put_format(reply, "%s%s", separator, report->json);
        separator = ",";
    }
    ds_put_cstr(reply, "]}");
}

/* Appends the status and, as JSON, the reports. */
void
flowgauge_format_status(const struct flowgauge_status *status, bool as_json,
                        struct ds *reply)
{
    ovs_mutex_lock(&reports_mutex);
    if (as_json) {
        format_json(status, reply);
    } else {
        format_text(status, reply);
    }
    ovs_mutex_unlock(&reports_mutex);
}
