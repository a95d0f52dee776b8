/* Functions for the ports of DPDK that Rust can call: DPDK's own functions are inline. */

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <rte_cpuflags.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

/* Maximum number of packets received at once. */
#define BURST 32
/* Bytes of a buffer before and for a packet, as drivers expect. */
#define DATA_BYTES RTE_MBUF_DEFAULT_BUF_SIZE
/* Buffers in the cache of a thread. */
#define CACHE 256
/* Packets that a queue of a port holds, if the port allows it. */
#define DESCRIPTORS 1024

/* Received packets; the same as in shim.rs. */
struct shim_burst {
	struct rte_mbuf *packets[BURST];
	struct {
		const uint8_t *bytes;
		size_t captured;
	} frames[BURST];
	uint32_t wire[BURST];
	uint64_t cycles;
};

/* Counters of a port; the same as in shim.rs. */
struct shim_counters {
	uint64_t missed;
	uint64_t errors;
	uint64_t no_buffers;
};

static int has_avx;

/* DPDK is compiled for SSE. Its instructions are slow while the upper halves of vector registers are
 * not zero, and the measuring code leaves them so. */
static inline void clear_vectors(void)
{
#ifdef __x86_64__
	if (has_avx)
		__asm__ volatile("vzeroupper");
#endif
}

/* Starts DPDK. Returns 0 or the error. Keeps the thread's processor affinity. */
int shim_start(int count, char **arguments)
{
	cpu_set_t before;
	int known = pthread_getaffinity_np(pthread_self(), sizeof(before), &before);
	int started = rte_eal_init(count, arguments);

#ifdef __x86_64__
	has_avx = rte_cpu_get_flag_enabled(RTE_CPUFLAG_AVX) == 1;
#endif
	if (known == 0)
		pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
	return started < 0 ? rte_errno : 0;
}

void shim_stop(void)
{
	rte_eal_cleanup();
}

const char *shim_reason(int reason)
{
	return rte_strerror(reason);
}

/* The number of a port, or -1. */
int shim_find(const char *name)
{
	uint16_t port;

	return rte_eth_dev_get_port_by_name(name, &port) == 0 ? port : -1;
}

/* Writes the name and sets the number of the next port from this number on; 0 after the last port. */
int shim_name(uint16_t *port, char name[RTE_ETH_NAME_MAX_LEN])
{
	uint64_t next = rte_eth_find_next(*port);

	if (next >= RTE_MAX_ETHPORTS)
		return 0;
	*port = next;
	return rte_eth_dev_get_name_by_port(next, name) == 0;
}

/* Sets the maximum numbers of receive and send queues of a port. Returns 0 or a negative error. */
int shim_queues(uint16_t port, uint16_t *receiving, uint16_t *sending)
{
	struct rte_eth_dev_info info;
	int failed = rte_eth_dev_info_get(port, &info);

	if (failed)
		return failed;
	*receiving = info.max_rx_queues;
	*sending = info.max_tx_queues;
	return 0;
}

/* Minimum number of buffers of one queue of a port: those in its descriptors, in a thread's cache and in
 * two bursts. With fewer, a card would find none. */
unsigned int shim_least_buffers(void)
{
	return DESCRIPTORS + CACHE + 2 * BURST;
}

/* Creates the buffers of one queue of a port, or returns NULL. */
struct rte_mempool *shim_pool(const char *name, uint16_t port, unsigned int buffers)
{
	return rte_pktmbuf_pool_create(name, buffers, CACHE, 0, DATA_BYTES,
				       rte_eth_dev_socket_id(port));
}

/* Size of a buffer. */
size_t shim_buffer_bytes(void)
{
	return sizeof(struct rte_mbuf) + DATA_BYTES;
}

/* Configures a port: packets go to queues by the hash of their flow. */
static int configure(uint16_t port, const struct rte_eth_dev_info *info, uint16_t receiving,
		     uint16_t sending)
{
	struct rte_eth_conf conf;

	memset(&conf, 0, sizeof(conf));
	if (receiving > 1) {
		conf.rx_adv_conf.rss_conf.rss_hf = info->flow_type_rss_offloads &
			(RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
		if (conf.rx_adv_conf.rss_conf.rss_hf != 0)
			conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	}
	conf.rxmode.offloads = info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	return rte_eth_dev_configure(port, receiving, sending, &conf);
}

/* Opens a port with a receive queue for each pool, and with `sending` send queues. Returns 0 or a
 * negative error. */
int shim_open(uint16_t port, struct rte_mempool **pools, uint16_t receiving, uint16_t sending,
	      int promiscuous)
{
	uint16_t received = DESCRIPTORS, sent = DESCRIPTORS, queue;
	int socket = rte_eth_dev_socket_id(port);
	struct rte_eth_dev_info info;
	int failed = rte_eth_dev_info_get(port, &info);

	if (!failed)
		failed = configure(port, &info, receiving, sending);
	if (!failed)
		failed = rte_eth_dev_adjust_nb_rx_tx_desc(port, &received, &sent);
	for (queue = 0; !failed && queue < receiving; queue++)
		failed = rte_eth_rx_queue_setup(port, queue, received, socket, NULL, pools[queue]);
	for (queue = 0; !failed && queue < sending; queue++)
		failed = rte_eth_tx_queue_setup(port, queue, sent, socket, NULL);
	if (!failed)
		failed = rte_eth_dev_start(port);
	/* Some ports keep their counters from an earlier use. */
	if (!failed)
		(void)rte_eth_stats_reset(port);
	/* Ports without promiscuous mode work, too. */
	if (!failed && promiscuous)
		(void)rte_eth_promiscuous_enable(port);
	return failed;
}

void shim_close(uint16_t port)
{
	(void)rte_eth_dev_stop(port);
	(void)rte_eth_dev_close(port);
}

/* Whether a port loses a packet that it finds no buffer for. The drivers of cards count failed
 * allocations instead, and in `missed` the packets lost for that reason. */
int shim_needs_buffers(uint16_t port)
{
	struct rte_eth_dev_info info;

	if (rte_eth_dev_info_get(port, &info) != 0)
		return 0;
	return strcmp(info.driver_name, "net_pcap") == 0 || strcmp(info.driver_name, "net_tap") == 0;
}

/* Whether the device of a port is gone. */
int shim_is_gone(uint16_t port)
{
	return rte_eth_dev_is_removed(port) == 1;
}

/* Reads the counters of a port since it was opened. Returns 0 or the error. */
int shim_counters(uint16_t port, struct shim_counters *counters)
{
	struct rte_eth_stats stats;
	int failed = rte_eth_stats_get(port, &stats);

	if (failed)
		return failed;
	counters->missed = stats.imissed;
	counters->errors = stats.ierrors;
	counters->no_buffers = stats.rx_nombuf;
	return 0;
}

/* Gives the calling thread a cache of buffers. Without one it is slower. */
void shim_enter(void)
{
	if (rte_lcore_id() == LCORE_ID_ANY)
		(void)rte_thread_register();
}

void shim_leave(void)
{
	rte_thread_unregister();
}

/* Receives up to 32 packets. For a packet in several buffers, sets the bytes of the first one. */
unsigned int shim_receive(uint16_t port, uint16_t queue, struct shim_burst *burst)
{
	unsigned int count, i;

	clear_vectors();
	count = rte_eth_rx_burst(port, queue, burst->packets, BURST);
	for (i = 0; i < count; i++) {
		const struct rte_mbuf *packet = burst->packets[i];

		burst->frames[i].bytes = rte_pktmbuf_mtod(packet, const uint8_t *);
		burst->frames[i].captured = packet->data_len;
		burst->wire[i] = packet->pkt_len;
	}
	burst->cycles = rte_rdtsc();
	return count;
}

/* Rate of the counter that stamps bursts, in cycles per second. */
uint64_t shim_cycles_per_second(void)
{
	return rte_get_tsc_hz();
}

/* Gives buffers back. */
void shim_free(struct rte_mbuf **packets, unsigned int count)
{
	clear_vectors();
	rte_pktmbuf_free_bulk(packets, count);
}

/* Sends packets without waiting, and drops those that the port does not take. Returns the number
 * sent. */
unsigned int shim_forward(uint16_t port, uint16_t queue, struct rte_mbuf **packets,
			  unsigned int count)
{
	unsigned int sent;

	clear_vectors();
	sent = rte_eth_tx_burst(port, queue, packets, count);
	rte_pktmbuf_free_bulk(packets + sent, count - sent);
	return sent;
}
