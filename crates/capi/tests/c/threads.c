/* Each queue on its own thread, reports on another, and threads that come too late. */
#include "check.h"
#include <unistd.h>

#define QUEUES 2
#define BURSTS 5000

static long long read_in_all, epochs;

static void take(void *user, const fg_report *report)
{
    (void)user;
    CHECK(report->kind == FG_JSON && report->bytes[report->length] == 0);
    CHECK(!strcmp(report->measurement, "hosts"));
    if (strstr(report->bytes, "\"type\":\"epoch\""))
        read_in_all += number(report->bytes, "read"), epochs++;
}

static void *feed(void *meter)
{
    static _Thread_local struct burst burst;
    make(&burst, 7);
    for (int i = 0; i < BURSTS; i++)
        CHECK(push(meter, &burst, i * INT64_C(100000)) == FG_OK);
    CHECK(fg_end(meter) == FG_OK);
    return NULL;
}

static void *poll(void *group)
{
    int code;
    while ((code = fg_poll(group, 1000, take, NULL)) == FG_OK)
        ;
    CHECK(code == FG_END);
    return NULL;
}

static fg_group *opened(uint32_t queues, uint32_t pace, const char *options)
{
    uint64_t seed = 1;
    fg_group *group;
    fg_settings settings = { .size = sizeof settings, .options = options, .seed = &seed,
                             .queues = queues, .pace = pace };
    CHECK(fg_open(&settings, &group) == FG_OK);
    return group;
}

static void every_packet_is_counted(uint32_t pace)
{
    pthread_t feeding[QUEUES], polling;
    fg_group *group = opened(QUEUES, pace, "hosts: key=source epoch=100ms memory=4MiB");
    read_in_all = epochs = 0;
    CHECK(!pthread_create(&polling, NULL, poll, group));
    for (int i = 0; i < QUEUES; i++)
        CHECK(!pthread_create(&feeding[i], NULL, feed, fg_queue(group, i)));
    for (int i = 0; i < QUEUES; i++)
        pthread_join(feeding[i], NULL);
    pthread_join(polling, NULL);
    CHECK(read_in_all == (long long)QUEUES * BURSTS * BURST);
    CHECK(epochs <= 5 && (pace == FG_LIVE || epochs == 5));
    CHECK(fg_close(group) == FG_OK);
}

static int stop;
static long long pushed, busy, closed;

static void *rush(void *meter)
{
    static _Thread_local struct burst burst;
    make(&burst, 9);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        int code = push(meter, &burst, 1);
        long long *count = code == FG_OK ? &pushed : code == FG_EBUSY ? &busy : &closed;
        CHECK(code == FG_OK || code == FG_EBUSY || code == FG_ECLOSED);
        __atomic_fetch_add(count, BURST, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Two threads use one meter while the group is closed. */
static void threads_that_meet_are_refused(void)
{
    pthread_t rushing[2];
    uint64_t dropped = 0;
    fg_group *group = opened(1, FG_REPLAY, "hosts: key=source memory=4MiB");
    fg_meter *meter = fg_queue(group, 0);
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&rushing[i], NULL, rush, meter));
    while (!__atomic_load_n(&busy, __ATOMIC_RELAXED) || !__atomic_load_n(&pushed, __ATOMIC_RELAXED))
        CHECK(fg_dropped(group, &dropped) == FG_OK);
    CHECK(fg_close(group) == FG_OK);
    while (!__atomic_load_n(&closed, __ATOMIC_RELAXED))
        ;
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        pthread_join(rushing[i], NULL);
}

/* One burst an epoch, until the group is closed. */
static void *run_ahead(void *meter)
{
    static _Thread_local struct burst burst;
    int code;
    make(&burst, 5);
    for (int64_t epoch = 0; (code = push(meter, &burst, epoch * INT64_C(1000000000))) == FG_OK; epoch++)
        ;
    CHECK(code == FG_ECLOSED);
    return NULL;
}

/* A queue that waits for the other one, which gets no packet, does not keep the group open. */
static void a_queue_that_waits_is_closed(uint32_t ahead)
{
    pthread_t running;
    fg_group *group = opened(2, FG_REPLAY, "hosts: key=source epoch=1s memory=1MiB");
    CHECK(!pthread_create(&running, NULL, run_ahead, fg_queue(group, ahead)));
    usleep(300000);
    CHECK(fg_close(group) == FG_OK);
    pthread_join(running, NULL);
}

int main(void)
{
    alarm(300);
    a_queue_that_waits_is_closed(0);
    a_queue_that_waits_is_closed(1);
    every_packet_is_counted(FG_LIVE);
    every_packet_is_counted(FG_REPLAY);
    threads_that_meet_are_refused();
    return 0;
}
