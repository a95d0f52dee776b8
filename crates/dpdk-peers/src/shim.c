/* DPDK's sketch and hash table, behind functions that take many keys at once. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_hash.h>
#include <rte_malloc.h>
#include <rte_member.h>

/* Number of keys looked up at once. */
#define BURST 32

/* An exact counting table: a counter for each position of a key. */
struct peer_table {
	struct rte_hash *hash;
	uint64_t *counts;
	size_t counters;
	size_t bytes;
};

/* Bytes that DPDK has allocated. */
static size_t allocated(void)
{
	struct rte_malloc_socket_stats stats;

	return rte_malloc_get_socket_stats(0, &stats) == 0 ? stats.heap_allocsz_bytes : 0;
}

/* Writes an unused name. */
static void name_next(char *name, size_t size)
{
	static unsigned int number;

	snprintf(name, size, "peer_%u", number++);
}

/* Creates a sketch for keys of 8 bytes. With `weighted`, it takes weights and updates all rows at
 * once. */
struct rte_member_setsum *peer_sketch_new(float error_rate, float sample_rate, uint32_t top,
					  int weighted)
{
	char name[RTE_MEMBER_NAMESIZE];
	struct rte_member_parameters parameters;

	memset(&parameters, 0, sizeof(parameters));
	name_next(name, sizeof(name));
	parameters.name = name;
	parameters.type = RTE_MEMBER_TYPE_SKETCH;
	parameters.key_len = sizeof(uint64_t);
	parameters.prim_hash_seed = 1;
	parameters.sec_hash_seed = 2;
	parameters.error_rate = error_rate;
	parameters.sample_rate = sample_rate;
	parameters.top_k = top;
	parameters.extra_flag = weighted ? RTE_MEMBER_SKETCH_COUNT_BYTE : 0;
	return rte_member_create(&parameters);
}

void peer_sketch_clear(struct rte_member_setsum *sketch)
{
	rte_member_reset(sketch);
}

/* Counts each key once. */
void peer_sketch_add(struct rte_member_setsum *sketch, const uint64_t *keys, size_t count)
{
	size_t i;

	if (sketch->count_byte) {
		for (i = 0; i < count; i++)
			rte_member_add_byte_count(sketch, &keys[i], 1);
	} else {
		for (i = 0; i < count; i++)
			rte_member_add(sketch, &keys[i], 1);
	}
}

uint64_t peer_sketch_count(struct rte_member_setsum *sketch, uint64_t key)
{
	uint64_t count = 0;

	rte_member_query_count(sketch, &key, &count);
	return count;
}

/* Bytes of the counters. */
size_t peer_sketch_bytes(const struct rte_member_setsum *sketch)
{
	return sizeof(uint64_t) * sketch->num_row * sketch->num_col;
}

void peer_sketch_free(struct rte_member_setsum *sketch)
{
	rte_member_free(sketch);
}

void peer_table_free(struct peer_table *table)
{
	if (table == NULL)
		return;
	rte_hash_free(table->hash);
	free(table->counts);
	free(table);
}

/* Creates a table with room for `entries` keys of 8 bytes. */
struct peer_table *peer_table_new(uint32_t entries)
{
	char name[RTE_HASH_NAMESIZE];
	struct rte_hash_parameters parameters;
	size_t before = allocated();
	struct peer_table *table = calloc(1, sizeof(*table));

	if (table == NULL)
		return NULL;
	memset(&parameters, 0, sizeof(parameters));
	name_next(name, sizeof(name));
	parameters.name = name;
	parameters.entries = entries;
	parameters.key_len = sizeof(uint64_t);
	table->hash = rte_hash_create(&parameters);
	if (table->hash != NULL) {
		table->counters = (size_t)rte_hash_max_key_id(table->hash) + 1;
		table->counts = calloc(table->counters, sizeof(*table->counts));
	}
	if (table->counts == NULL) {
		peer_table_free(table);
		return NULL;
	}
	table->bytes = allocated() - before + table->counters * sizeof(*table->counts);
	return table;
}

void peer_table_clear(struct peer_table *table)
{
	rte_hash_reset(table->hash);
	memset(table->counts, 0, table->counters * sizeof(*table->counts));
}

/* Counts each key once. Returns the number of keys without room. */
size_t peer_table_add(struct peer_table *table, const uint64_t *keys, size_t count)
{
	const void *burst[BURST];
	int32_t places[BURST];
	size_t i, at, some, lost = 0;

	for (at = 0; at < count; at += some) {
		some = count - at < BURST ? count - at : BURST;
		for (i = 0; i < some; i++)
			burst[i] = &keys[at + i];
		rte_hash_lookup_bulk(table->hash, burst, some, places);
		for (i = 0; i < some; i++) {
			/* The key may be new, or have been added within this burst. */
			if (places[i] < 0)
				places[i] = rte_hash_add_key(table->hash, burst[i]);
			if (places[i] < 0)
				lost++;
			else
				table->counts[places[i]]++;
		}
	}
	return lost;
}

uint64_t peer_table_count(const struct peer_table *table, uint64_t key)
{
	int32_t place = rte_hash_lookup(table->hash, &key);

	return place < 0 ? 0 : table->counts[place];
}

size_t peer_table_bytes(const struct peer_table *table)
{
	return table->bytes;
}
