/* Any misuse is an error with a text, and never a crash. */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

static fg_group *closing;
static fg_meter *pushing;
static int closed_inside = 1, polled_inside = 1, pushed_inside = 1, ended_inside = 1, reports;

static void close_inside(void *user, const fg_report *report)
{
    (void)user, (void)report;
    reports++;
    closed_inside = fg_close(closing);
    polled_inside = fg_poll(closing, 0, close_inside, NULL);
    pushed_inside = fg_advance(pushing, 1);
    ended_inside = fg_end(pushing);
}

static void check_inside(int taken)
{
    CHECK(reports == taken);
    CHECK(closed_inside == FG_EBUSY && polled_inside == FG_EBUSY);
    CHECK(pushed_inside == FG_EBUSY && ended_inside == FG_EBUSY);
}

/* A child process has no threads of the group. */
static void fork_with(fg_group *group)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(fg_close(group) == FG_EDEAD && strstr(fg_error(), "process") ? 0 : 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void refused(fg_settings settings, int code, const char *text)
{
    fg_group *group = (fg_group *)&settings;
    settings.size = sizeof settings;
    CHECK(fg_open(&settings, &group) == code);
    CHECK(group == NULL);
    CHECK(strstr(fg_error(), text));
}

static fg_group *opened(fg_take take)
{
    uint64_t seed = 1;
    fg_group *group;
    fg_settings settings = { .size = sizeof settings, .options = "key=source memory=1MiB", .seed = &seed,
                             .queues = 2, .pace = FG_REPLAY, .take = take };
    CHECK(fg_open(&settings, &group) == FG_OK);
    return group;
}

int main(void)
{
    static struct burst burst;
    fg_settings settings = { .size = sizeof settings, .queues = 1 };
    fg_group *group;
    fg_meter *meter;
    fg_headers headers = { .version = 4 };
    fg_mbuf_layout layout = { 0 };
    uint64_t dropped;
    make(&burst, 1);

    CHECK(fg_abi_version() == FG_ABI_VERSION);
    CHECK(!*fg_error());

    /* NULL. */
    CHECK(fg_open(NULL, &group) == FG_EINVAL && group == NULL);
    CHECK(fg_open(&settings, NULL) == FG_EINVAL);
    CHECK(fg_queue(NULL, 0) == NULL && strstr(fg_error(), "NULL"));
    CHECK(fg_link(NULL, 1) == FG_EINVAL);
    CHECK(fg_want(NULL, 1, 60, 0) == 0);
    CHECK(!fg_skip_mbufs(NULL, 1, burst.data, &layout, 0));
    CHECK(push(NULL, &burst, 0) == FG_EINVAL);
    CHECK(fg_push_mbufs(NULL, 1, burst.data, &layout, 0) == FG_EINVAL);
    CHECK(fg_push_parsed(NULL, 1, &headers, 0) == FG_EINVAL);
    CHECK(fg_advance(NULL, 0) == FG_EINVAL);
    CHECK(fg_end(NULL) == FG_EINVAL);
    CHECK(fg_poll(NULL, 0, close_inside, NULL) == FG_EINVAL);
    CHECK(fg_dropped(NULL, &dropped) == FG_EINVAL);
    CHECK(fg_close(NULL) == FG_EINVAL);

    /* Settings. */
    settings.size = 8;
    CHECK(fg_open(&settings, &group) == FG_EINVAL);
    refused((fg_settings){ .queues = 0 }, FG_EOPTIONS, "queues");
    refused((fg_settings){ .queues = 1, .pace = 7 }, FG_EINVAL, "pace");
    refused((fg_settings){ .queues = 1, .options = "kye=source" }, FG_EOPTIONS, "did you mean 'key'");
    refused((fg_settings){ .queues = 1, .options = "a: key=source\na: key=pair" }, FG_EOPTIONS, "'a'");
    refused((fg_settings){ .queues = 1, .options = "algorithm=auto" }, FG_EOPTIONS, "auto");
    refused((fg_settings){ .queues = 1, .options = "memory=1" }, FG_EOPTIONS, "emory");
    refused((fg_settings){ .queues = 1, .options = "memory=2TiB" }, FG_EFAILED, "lower");
    refused((fg_settings){ .queues = 257 }, FG_EOPTIONS, "queues");
    refused((fg_settings){ .queues = 1, .options = "updates=1s" }, FG_EOPTIONS, "updates");
    refused((fg_settings){ .queues = 1, .options = "task=findings" }, FG_EOPTIONS, "findings");
    refused((fg_settings){ .queues = 1, .options = "algorithm=linear-table:state=ewma task=changes" },
            FG_EOPTIONS, "forecasts");
    refused((fg_settings){ .queues = 2, .options = "epoch=100p" }, FG_EOPTIONS, "");
    refused((fg_settings){ .queues = 1, .yaml = "measurements: 7" }, FG_EOPTIONS, "line 1");
    refused((fg_settings){ .queues = 1, .yaml = "", .options = "" }, FG_EOPTIONS, "not both");
    refused((fg_settings){ .queues = 1, .options = "key=\xff" }, FG_EOPTIONS, "UTF-8");
    refused((fg_settings){ .queues = 1, .seed_file = "/no/such/file" }, FG_EOPTIONS, "/no/such/file");

    /* Arguments. */
    group = opened(NULL);
    CHECK(fg_queue(group, 2) == NULL);
    meter = fg_queue(group, 0);
    CHECK(meter && meter == fg_queue(group, 0) && meter != fg_queue(group, 1));
    CHECK(fg_push(meter, 1, NULL, burst.captured, burst.wire, 0) == FG_EINVAL);
    CHECK(fg_push(meter, 1, burst.data, NULL, burst.wire, 0) == FG_EINVAL);
    CHECK(fg_push(meter, 1, burst.data, burst.captured, NULL, 0) == FG_EINVAL);
    CHECK(fg_push(meter, 0, NULL, NULL, NULL, 0) == FG_OK);
    CHECK(fg_push_mbufs(meter, 1, NULL, &layout, 0) == FG_EINVAL);
    CHECK(fg_push_mbufs(meter, 1, burst.data, NULL, 0) == FG_EINVAL && strstr(fg_error(), "layout"));
    CHECK(fg_push_mbufs(meter, 0, NULL, NULL, 0) == FG_OK);
    CHECK(fg_push_parsed(meter, 1, NULL, 0) == FG_EINVAL);
    CHECK(fg_want(meter, 0, 0, 1) == 0);
    for (uint32_t packets = 1; packets <= 64; packets++)
        CHECK(fg_want(meter, packets, 60, 1) == UINT64_MAX >> (64 - packets));
    CHECK(fg_want(meter, 65, 60, 1) == 0 && strstr(fg_error(), "64"));
    CHECK(fg_link(meter, 1 << 16) == FG_EINVAL);
    CHECK(fg_poll(group, 0, NULL, NULL) == FG_EINVAL);
    CHECK(fg_dropped(group, NULL) == FG_EINVAL);
    CHECK(fg_dropped(group, &dropped) == FG_OK && dropped == 0);

    /* The wrong order, and twice. */
    CHECK(push(meter, &burst, 1) == FG_OK);
    CHECK(fg_end(meter) == FG_OK);
    CHECK(fg_end(meter) == FG_ECLOSED);
    CHECK(push(meter, &burst, 2) == FG_ECLOSED && strstr(fg_error(), "closed"));
    CHECK(fg_dropped(group, &dropped) == FG_OK && dropped == BURST);
    CHECK(push(fg_queue(group, 1), &burst, 2) == FG_OK);
    CHECK(fg_close(group) == FG_OK);
    CHECK(fg_close(group) == FG_ECLOSED);
    CHECK(push(meter, &burst, 2) == FG_ECLOSED);
    CHECK(fg_push_mbufs(meter, 1, burst.data, &layout, 2) == FG_ECLOSED);
    CHECK(fg_want(meter, 8, 480, 2) == 0);
    CHECK(fg_advance(meter, 3) == FG_ECLOSED && fg_end(meter) == FG_ECLOSED);
    CHECK(fg_queue(group, 0) == NULL && fg_poll(group, 0, close_inside, NULL) == FG_ECLOSED);

    /* In the function that takes reports. */
    group = opened(NULL);
    pushing = fg_queue(group, 0);
    closing = opened(close_inside);
    CHECK(fg_poll(closing, 0, close_inside, NULL) == FG_EINVAL);
    CHECK(fg_close(closing) == FG_OK);
    check_inside(2);
    closing = opened(NULL);
    CHECK(fg_end(fg_queue(closing, 0)) == FG_OK && fg_end(fg_queue(closing, 1)) == FG_OK);
    while (fg_poll(closing, 1000, close_inside, NULL) == FG_OK)
        ;
    check_inside(4);
    CHECK(fg_close(closing) == FG_OK);
    CHECK(fg_advance(pushing, 1) == FG_OK);
    fork_with(group);
    CHECK(fg_close(group) == FG_OK);

    /* A long-closed handle never reaches another meter, and memory does not grow. */
    for (int i = 0; i < 10; i++) {
        group = opened(NULL);
        CHECK(fg_queue(group, 0) != meter && push(meter, &burst, 2) == FG_ECLOSED);
        CHECK(fg_close(group) == FG_OK);
    }
    return 0;
}
