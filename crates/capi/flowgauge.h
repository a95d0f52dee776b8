/* libflowgauge: traffic measurement for programs that have packets. See libflowgauge(3).
 *
 * Pointers are NULL or point to what is described, texts end in a zero, and arrays have as many items as
 * the call says. A function that returns an int returns FG_OK or a negative code, whose reason is in
 * fg_error. Handles of groups and meters may be used at any time: closed ones are an error.
 *
 * Generated from crates/capi/src/lib.rs by its test `header`; edit that file, and cbindgen.toml. */

#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 The version of this interface. Programs and libraries of one number fit together.
 */
#define FG_ABI_VERSION 1

/*
 The call did what it should.
 */
#define FG_OK 0

/*
 There are no more reports.
 */
#define FG_END 1

/*
 An argument is `NULL` or out of range.
 */
#define FG_EINVAL -1

/*
 The group or meter was closed before.
 */
#define FG_ECLOSED -2

/*
 Another thread uses the meter or polls the group, or the call comes from the function that takes a
 report.
 */
#define FG_EBUSY -3

/*
 The group measures no more, because of a defect or since a thread of it failed.
 */
#define FG_EDEAD -4

/*
 The options or the YAML text are not understood, or ask for what cannot be.
 */
#define FG_EOPTIONS -5

/*
 The operating system refused memory, a thread or random bits.
 */
#define FG_EFAILED -6

/*
 A meter never waits: where no summaries are free, an epoch goes on into the next one, whose report
 says so. An epoch is 10 s unless the options say otherwise, and `fg_advance` tells the time.
 */
#define FG_LIVE 0

/*
 A meter waits for free summaries and for its reports to be taken, so that these depend on the packets
 alone. All packets are one epoch unless the options say otherwise.
 */
#define FG_REPLAY 1

/*
 A report: a line of JSON, as `flowgauge --format json` writes it.
 */
#define FG_JSON 1

/*
 A snapshot, as `flowgauge --save` writes it to a file.
 */
#define FG_SNAPSHOT 2

/*
 Packets of a burst that `fg_want` takes at most.
 */
#define FG_WANT_MOST 64

/*
 A group of meters. Never look behind the pointer.
 */
typedef struct fg_group fg_group;

/*
 A report or a snapshot. All of it is valid until the function that takes it returns.
 */
typedef struct fg_report {
  /*
   `FG_JSON` or `FG_SNAPSHOT`.
   */
  uint32_t kind;
  /*
   Whether a snapshot holds the seed: keep it from everyone who may send packets.
   */
  uint32_t secret;
  /*
   The name of the measurement.
   */
  const char *measurement;
  /*
   The number of the epoch; of a total how many there were.
   */
  uint64_t epoch;
  /*
   The line with its end, or the snapshot; a zero follows.
   */
  const char *bytes;
  /*
   How many bytes there are, without the zero.
   */
  size_t length;
} fg_report;

/*
 Takes a report.
 */
typedef void (*fg_take)(void *user, const struct fg_report *report);

/*
 What a group is opened with. What is not set is 0.
 */
typedef struct fg_settings {
  /*
   `sizeof(struct fg_settings)`.
   */
  size_t size;
  /*
   Measurements, one a line, each as `--measure` takes it: `NAME: OPTION=VALUE …`. A name may be left
   out where there is one. `NULL` for all defaults.
   */
  const char *options;
  /*
   Instead of options: the text of a file as `-C` takes it.
   */
  const char *yaml;
  /*
   A file with the secret that the seed is made of, for snapshots of several hosts to be merged.
   */
  const char *seed_file;
  /*
   A seed that is known, for tests and comparisons. By default it is random.
   */
  const uint64_t *seed;
  /*
   Takes reports, on a thread of the library. `NULL` where they are polled.
   */
  fg_take take;
  /*
   What it is called with.
   */
  void *user;
  /*
   Meters, 1 to 256: one for each thread that has packets.
   */
  uint32_t queues;
  /*
   `FG_LIVE` or `FG_REPLAY`.
   */
  uint32_t pace;
  /*
   Whether tunnels are followed to the packet inside.
   */
  uint32_t inner;
  /*
   Whether each closed epoch is stored as a snapshot, too.
   */
  uint32_t snapshots;
} fg_settings;

/*
 A meter. The fields are for `fg_want` alone.
 */
typedef struct fg_meter {
  /*
   Packets that are surely not wanted, from the next one on.
   */
  uint64_t ahead;
  /*
   Time of the last packet.
   */
  int64_t last_ns;
  /*
   Time after which any packet may be wanted.
   */
  int64_t until_ns;
  /*
   Bytes of the packets skipped since the last call.
   */
  uint64_t skipped_bytes;
  /*
   Whether not all packets are wanted.
   */
  uint32_t samples;
} fg_meter;

/*
 The headers of a packet that the program has read already.
 */
typedef struct fg_headers {
  /*
   Source address in network order; that of IPv4 in the first four bytes.
   */
  uint8_t source[16];
  /*
   Destination address, likewise.
   */
  uint8_t destination[16];
  /*
   Ports, as numbers of this machine.
   */
  uint16_t source_port;
  /*
   As above.
   */
  uint16_t destination_port;
  /*
   Bytes on the wire.
   */
  uint32_t wire;
  /*
   4 or 6; any other number for a packet that is not IP.
   */
  uint8_t version;
  /*
   The protocol; of IPv6 the first header that is not an extension.
   */
  uint8_t protocol;
  /*
   Whether there are ports: not in later fragments, nor where the protocol has none.
   */
  uint8_t has_ports;
  /*
   0.
   */
  uint8_t reserved;
} fg_headers;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The version of the library's interface: to be compared with `FG_ABI_VERSION`.
 */
uint32_t fg_abi_version(void);

/*
 Why the last call that failed on this thread did, in one line. It is valid until another call fails.
 */
const char *fg_error(void);

/*
 Opens a group, and reserves all its memory. It begins threads, which run where the program's main
 thread may at this time.
 */
int fg_open(const struct fg_settings *settings, struct fg_group **group);

/*
 The meter of a queue, counted from 0; `NULL` where there is none. It is for one thread at a time.
 */
struct fg_meter *fg_queue(const struct fg_group *group, uint32_t queue);

/*
 Says what the first bytes of the packets are that this meter is pushed, by the number that pcap has for
 it: 1, Ethernet, unless it is set.
 */
int fg_link(struct fg_meter *meter,
            uint32_t link);

/*
 The way of `fg_want` where a packet may be wanted. Call that instead.
 */
uint64_t fg_pick(struct fg_meter *meter, uint32_t packets, uint64_t bytes, int64_t now_ns);

/*
 Measures packets that arrived at `now_ns`, in nanoseconds since the UNIX epoch. Of packet `i` the bytes
 from `data[i]` on were captured, `captured[i]` of them (none where `data[i]` is `NULL`), and `wire[i]`
 were on the wire.
 */
int fg_push(struct fg_meter *meter,
            uint32_t packets,
            const void *const *data,
            const uint32_t *captured,
            const uint32_t *wire,
            int64_t now_ns);

/*
 Measures packets whose headers the program has read. A measurement with a filter counts them as
 filtered, since it judges bytes.
 */
int fg_push_parsed(struct fg_meter *meter,
                   uint32_t packets,
                   const struct fg_headers *headers,
                   int64_t now_ns);

/*
 Says that no packet that is older than `now_ns` will be pushed: epochs end on time where no packets
 come.
 */
int fg_advance(struct fg_meter *meter, int64_t now_ns);

/*
 Ends a queue, which has no more packets; its meter is closed. It may wait for the closing thread.
 */
int fg_end(struct fg_meter *meter);

/*
 Calls a function with each report that waits, on this thread; waits for one up to `wait_ms`
 milliseconds. `FG_END` behind the last one, when all queues have ended.
 */
int fg_poll(const struct fg_group *group, uint32_t wait_ms, fg_take take, void *user);

/*
 Counts the packets that meters of the group were pushed in vain: after its death, or while another
 thread used the meter.
 */
int fg_dropped(const struct fg_group *group, uint64_t *packets);

/*
 Closes a group: ends the queues that have not ended, and waits until the function that takes reports has
 the last one. Reports that were not polled are gone. Calls of other threads on its meters end first,
 and those that come later are refused.
 */
int fg_close(struct fg_group *group);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Says which packets of a burst of up to 64 to push, before they are touched: a bit for each, the first
 * one's lowest. They have `bytes` bytes on the wire and arrived at `now_ns`. Push those that are wanted
 * next, in their order; the others are counted as skipped. After an error none are wanted.
 *
 * Where a sampler decides before headers (accelerator=uniform:before=headers, say) and wants none of the
 * burst, it costs one branch and no call. Without such a sampler all packets are wanted.
 */
static inline uint64_t fg_want(fg_meter *meter, uint32_t packets, uint64_t bytes, int64_t now_ns)
{
    if (__builtin_expect(meter != NULL, 1)) {
        uint64_t ahead = __atomic_load_n(&meter->ahead, __ATOMIC_RELAXED);
        if ((packets <= ahead) & (now_ns >= __atomic_load_n(&meter->last_ns, __ATOMIC_RELAXED))
            & (now_ns <= __atomic_load_n(&meter->until_ns, __ATOMIC_RELAXED))) {
            bytes += __atomic_load_n(&meter->skipped_bytes, __ATOMIC_RELAXED);
            __atomic_store_n(&meter->ahead, ahead - packets, __ATOMIC_RELAXED);
            __atomic_store_n(&meter->skipped_bytes, bytes, __ATOMIC_RELAXED);
            __atomic_store_n(&meter->last_ns, now_ns, __ATOMIC_RELAXED);
            return 0;
        }
    }
    return fg_pick(meter, packets, bytes, now_ns);
}

#ifdef __cplusplus
}
#endif
