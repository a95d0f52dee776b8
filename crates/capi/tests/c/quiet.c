/* Pushes in every way between two calls of getppid: within epochs, at their ends, and while skipping. */
#define _GNU_SOURCE
#include "check.h"
#include <sys/syscall.h>
#include <unistd.h>

static void ignore(void *user, const fg_report *report)
{
    (void)user, (void)report;
}

static fg_group *opened(const char *options)
{
    fg_group *group;
    fg_settings settings = { .size = sizeof settings, .options = options, .queues = 1, .take = ignore };
    CHECK(fg_open(&settings, &group) == FG_OK);
    return group;
}

int main(void)
{
    static struct burst burst;
    fg_headers headers = { .version = 4, .protocol = 17, .has_ports = 1, .wire = 60 };
    fg_group *every = opened("key=source epoch=10ms memory=4MiB");
    fg_group *few = opened("accelerator=uniform:sample=100,before=headers epoch=10ms memory=4MiB");
    fg_meter *all = fg_queue(every, 0), *some = fg_queue(few, 0);
    make(&burst, 1);
    syscall(SYS_getppid);
    for (int i = 0; i < 5000; i++) {
        int64_t now = i * INT64_C(20000);
        uint32_t wanted = (uint32_t)__builtin_popcountll(fg_want(some, BURST, BURST * 60, now));
        CHECK(fg_push(some, wanted, burst.data, burst.captured, burst.wire, now) == FG_OK);
        CHECK(push(all, &burst, now) == FG_OK);
        CHECK(fg_push_parsed(all, 1, &headers, now) == FG_OK);
        CHECK(fg_advance(all, now) == FG_OK);
    }
    syscall(SYS_getppid);
    CHECK(fg_close(every) == FG_OK && fg_close(few) == FG_OK);
    return 0;
}
