/* libflowgauge: traffic measurement for programs that have packets. See libflowgauge(3).
 *
 * Pointers are NULL or point to what is described, texts end in a zero, and arrays have as many items as
 * the call says. A function that returns an int returns FG_OK or a negative code, whose reason is in
 * fg_error. Closed handles of groups and meters are an error; that of a meter may become one of a new
 * meter after 4096 more meters were closed.
 *
 * Generated from crates/capi/src/lib.rs by its test `header`; edit that file, and cbindgen.toml. */

#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 The version of this interface. Programs and libraries with the same number are compatible.
 */
#define FG_ABI_VERSION 1

/*
 The call succeeded.
 */
#define FG_OK 0

/*
 There are no more reports.
 */
#define FG_END 1

/*
 An argument is `NULL` or out of range, or the size or pace in the settings is wrong.
 */
#define FG_EINVAL -1

/*
 The group or meter was closed before.
 */
#define FG_ECLOSED -2

/*
 Another thread uses the meter or polls the group, or the call comes from the function that takes a
 report and may wait for it to return: closing and polling, and pushing with `FG_REPLAY`.
 */
#define FG_EBUSY -3

/*
 The group no longer measures, because of a defect or a failed thread.
 */
#define FG_EDEAD -4

/*
 The settings are invalid: the options, the YAML text, the number of queues or the seed file.
 */
#define FG_EOPTIONS -5

/*
 The operating system refused memory, a thread or random bits.
 */
#define FG_EFAILED -6

/*
 A meter never waits: if no summaries are free, an epoch continues into the next one, and its
 report says so. Updates, forecasts and the task `findings` are refused. An epoch is 10 s unless
 the options say otherwise; `fg_advance` tells it the time.
 */
#define FG_LIVE 0

/*
 A meter waits for free summaries, for its reports to be taken, and for queues that are some
 epochs behind, so reports depend only on the packets: give each queue a thread of its own. All
 packets are one epoch unless the options say otherwise.
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
 Maximum number of packets in a burst for `fg_want`.
 */
#define FG_WANT_MOST 64

/*
 A group of meters. Opaque.
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
   Whether a snapshot holds the seed: keep it secret from senders of packets.
   */
  uint32_t secret;
  /*
   The name of the measurement.
   */
  const char *measurement;
  /*
   The number of the epoch; in a total, the number of epochs.
   */
  uint64_t epoch;
  /*
   The line with its newline, or the snapshot; followed by a zero byte.
   */
  const char *bytes;
  /*
   Length in bytes, without the zero byte.
   */
  size_t length;
} fg_report;

/*
 Takes a report.
 */
typedef void (*fg_take)(void *user, const struct fg_report *report);

/*
 The settings to open a group with. Unset fields are 0.
 */
typedef struct fg_settings {
  /*
   `sizeof(struct fg_settings)`.
   */
  size_t size;
  /*
   Measurements, one per line, in the form of `--measure`: `NAME: OPTION=VALUE …`. The name may
   be omitted if there is only one. `NULL` for all defaults.
   */
  const char *options;
  /*
   Instead of options: the text of a file for `-C`.
   */
  const char *yaml;
  /*
   A file with the secret behind the seed, so that snapshots of several hosts can be merged.
   */
  const char *seed_file;
  /*
   A known seed, for tests and comparisons. By default it is random.
   */
  const uint64_t *seed;
  /*
   Takes reports, on a thread of the library. `NULL` if they are polled.
   */
  fg_take take;
  /*
   The argument for `take`.
   */
  void *user;
  /*
   Number of meters, 1 to 256: one for each thread that has packets.
   */
  uint32_t queues;
  /*
   `FG_LIVE` or `FG_REPLAY`.
   */
  uint32_t pace;
  /*
   Whether to follow tunnels to the inner packet.
   */
  uint32_t inner;
  /*
   Whether to store each closed epoch as a snapshot too.
   */
  uint32_t snapshots;
} fg_settings;

/*
 A meter. Only the functions in this header may use the fields.
 */
typedef struct fg_meter {
  /*
   Number of packets, from the next one on, that are certainly not wanted.
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
   Whether some packets may be unwanted.
   */
  uint32_t samples;
} fg_meter;

/*
 How a program's own structures describe a packet: where in them, in bytes from their start, four
 fields are. Those of DPDK's `rte_mbuf` are `buf_addr`, `data_off`, `data_len` and `pkt_len`.
 */
typedef struct fg_mbuf_layout {
  /*
   The place of the pointer to the buffer.
   */
  uint16_t buffer;
  /*
   The place of a `uint16_t`: at which byte of the buffer the packet starts.
   */
  uint16_t start;
  /*
   The place of a `uint16_t`: how many bytes of the packet the buffer holds. It equals `wire` if
   the buffer always holds the whole packet.
   */
  uint16_t captured;
  /*
   The place of a `uint32_t`: how many bytes the packet has on the wire.
   */
  uint16_t wire;
} fg_mbuf_layout;

/*
 The headers of a packet that the program has already parsed.
 */
typedef struct fg_headers {
  /*
   Source address in network order; an IPv4 address is in the first four bytes.
   */
  uint8_t source[16];
  /*
   Destination address, likewise.
   */
  uint8_t destination[16];
  /*
   Source port in host byte order.
   */
  uint16_t source_port;
  /*
   Destination port in host byte order.
   */
  uint16_t destination_port;
  /*
   Bytes on the wire.
   */
  uint32_t wire;
  /*
   4 or 6; any other number if the packet is not IP.
   */
  uint8_t version;
  /*
   The protocol; for IPv6, of the first header that is not an extension.
   */
  uint8_t protocol;
  /*
   Whether there are ports: not in later fragments, nor if the protocol has none.
   */
  uint8_t has_ports;
  /*
   Must be 0.
   */
  uint8_t reserved;
} fg_headers;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The version of the library's interface, to compare with `FG_ABI_VERSION`.
 */
uint32_t fg_abi_version(void);

/*
 Why the last failed call on this thread failed, in one line. Valid until another call fails.
 */
const char *fg_error(void);

/*
 Opens a group, and reserves all its memory. Starts threads on the cores that the program's main
 thread may use at this time.
 */
int fg_open(const struct fg_settings *settings, struct fg_group **group);

/*
 The meter of a queue, counted from 0, or `NULL` if there is none. It is for one thread at a
 time.
 */
struct fg_meter *fg_queue(const struct fg_group *group, uint32_t queue);

/*
 Sets the link type of this meter's packets, as pcap numbers them. The default is 1, Ethernet.
 */
int fg_link(struct fg_meter *meter, uint32_t link);

/*
 The slow path of `fg_want`, for packets that may be wanted. Call `fg_want` instead.
 */
uint64_t fg_pick(struct fg_meter *meter, uint32_t packets, uint64_t bytes, int64_t now_ns);

/*
 Measures packets that arrived at `now_ns`, in nanoseconds since the UNIX epoch. Packet `i` has
 `captured[i]` captured bytes at `data[i]` (none if `data[i]` is `NULL`), and `wire[i]` bytes on
 the wire.
 */
int fg_push(struct fg_meter *meter,
            uint32_t packets,
            const void *const *data,
            const uint32_t *captured,
            const uint32_t *wire,
            int64_t now_ns);

/*
 Measures packets that the program describes in structures of its own. They arrived at `now_ns`.
 If a sampler decides before headers, it is asked about these packets here: do not call `fg_want`.
 */
int fg_push_mbufs(struct fg_meter *meter,
                  uint32_t packets,
                  const void *const *mbufs,
                  const struct fg_mbuf_layout *layout,
                  int64_t now_ns);

/*
 Measures packets whose headers the program has parsed. A measurement with a filter counts them
 as filtered, since filters need the packet's bytes. A measurement whose key has a MAC address, the
 VLAN or TCP flags counts them as packets without a key.
 */
int fg_push_parsed(struct fg_meter *meter,
                   uint32_t packets,
                   const struct fg_headers *headers,
                   int64_t now_ns);

/*
 Announces that no packet older than `now_ns` will be pushed, so that epochs end on time without
 packets.
 */
int fg_advance(struct fg_meter *meter, int64_t now_ns);

/*
 Ends a queue that has no more packets, and closes its meter. May wait for the closing thread.
 */
int fg_end(struct fg_meter *meter);

/*
 Calls a function with each waiting report, on this thread. Waits up to `wait_ms` milliseconds
 for the first one. Returns `FG_END` after the last one, when all queues have ended.
 */
int fg_poll(const struct fg_group *group, uint32_t wait_ms, fg_take take, void *user);

/*
 Counts the packets that were pushed to meters of the group but not measured: after the group's
 death, after the meter had ended, or while another thread used the meter.
 */
int fg_dropped(const struct fg_group *group, uint64_t *packets);

/*
 Closes a group: ends the queues that have not ended, and waits until the function that takes
 reports has returned from the last one. Reports that were not polled are lost. Other threads'
 calls on its meters finish first, and later ones are refused. Only the process that opened a group
 can close it, not its child.
 */
int fg_close(struct fg_group *group);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the next packets, which arrived at `now_ns`, are certainly not wanted. */
static inline int fg_is_ahead(const fg_meter *meter, uint32_t packets, int64_t now_ns)
{
    return (packets <= __atomic_load_n(&meter->ahead, __ATOMIC_RELAXED))
           & (now_ns >= __atomic_load_n(&meter->last_ns, __ATOMIC_RELAXED))
           & (now_ns <= __atomic_load_n(&meter->until_ns, __ATOMIC_RELAXED));
}

/* Counts the next packets as skipped. */
static inline void fg_pass(fg_meter *meter, uint32_t packets, uint64_t bytes, int64_t now_ns)
{
    uint64_t ahead = __atomic_load_n(&meter->ahead, __ATOMIC_RELAXED);
    bytes += __atomic_load_n(&meter->skipped_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&meter->ahead, ahead - packets, __ATOMIC_RELAXED);
    __atomic_store_n(&meter->skipped_bytes, bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&meter->last_ns, now_ns, __ATOMIC_RELAXED);
}

/*
 * Says which packets of a burst of up to 64 to push, before they are touched: a bit for each, the first
 * one's lowest. They have `bytes` bytes on the wire and arrived at `now_ns`. Push those that are wanted
 * next, in their order; the others are counted as skipped. After an error none are wanted.
 *
 * Where a sampler decides before headers (accelerator=uniform:before=headers, say) and wants none of the
 * burst, it costs one branch and no call. Without such a sampler all packets are wanted, which costs no
 * call either.
 */
static inline uint64_t fg_want(fg_meter *meter, uint32_t packets, uint64_t bytes, int64_t now_ns)
{
    if (__builtin_expect(meter != NULL, 1)) {
        if (fg_is_ahead(meter, packets, now_ns)) {
            fg_pass(meter, packets, bytes, now_ns);
            return 0;
        }
        if (packets < 64 && !__atomic_load_n(&meter->samples, __ATOMIC_RELAXED)) {
            return (UINT64_C(1) << packets) - 1;
        }
    }
    return fg_pick(meter, packets, bytes, now_ns);
}

/*
 * Skips a burst for fg_push_mbufs() if a sampler decides before headers and wants none of it, and counts its
 * packets. Returns 0 if some may be wanted: push the burst then. Costs no call, and without a sampler one
 * branch.
 */
static inline int fg_skip_mbufs(fg_meter *meter, uint32_t packets, const void *const *mbufs,
                                const fg_mbuf_layout *layout, int64_t now_ns)
{
    if (meter == NULL || !fg_is_ahead(meter, packets, now_ns)) {
        return 0;
    }
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < packets; i++) {
        uint32_t wire;
        memcpy(&wire, (const char *)mbufs[i] + layout->wire, sizeof wire);
        bytes += wire;
    }
    fg_pass(meter, packets, bytes, now_ns);
    return 1;
}

#ifdef __cplusplus
}
#endif
