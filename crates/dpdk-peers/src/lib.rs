//! Structures of an installed DPDK: its sketch (`rte_member`) and its hash table (`rte_hash`), for keys
//! of eight bytes. Only the lab uses them, to measure them beside those of flowgauge.
#![cfg(feature = "dpdk")]

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::Arc;

use flowgauge_dpdk::Dpdk;

/// What the shim has of each; nobody looks inside.
#[repr(C)]
struct RawSketch([u8; 0]);
#[repr(C)]
struct RawTable([u8; 0]);

// SAFETY: these are the functions of `shim.c`, and their types are the same there.
unsafe extern "C" {
    fn peer_sketch_new(error: f32, sample: f32, top: u32, weighted: c_int) -> *mut RawSketch;
    fn peer_sketch_clear(sketch: *mut RawSketch);
    fn peer_sketch_add(sketch: *mut RawSketch, keys: *const u64, count: usize);
    fn peer_sketch_count(sketch: *mut RawSketch, key: u64) -> u64;
    fn peer_sketch_bytes(sketch: *const RawSketch) -> usize;
    fn peer_sketch_free(sketch: *mut RawSketch);
    fn peer_table_new(entries: u32) -> *mut RawTable;
    fn peer_table_clear(table: *mut RawTable);
    fn peer_table_add(table: *mut RawTable, keys: *const u64, count: usize) -> usize;
    fn peer_table_count(table: *const RawTable, key: u64) -> u64;
    fn peer_table_bytes(table: *const RawTable) -> usize;
    fn peer_table_free(table: *mut RawTable);
}

/// What DPDK is started with: neither huge pages, nor devices, nor root, and 512 MiB of address space. Its
/// vector code is allowed all that the processor has.
pub const ARGUMENTS: [&str; 10] = [
    "--no-huge",
    "--no-pci",
    "--no-shconf",
    "--no-telemetry",
    "-m",
    "512",
    "-l",
    "0",
    "--force-max-simd-bitwidth=512",
    "--log-level=*:error",
];

/// The sketch of `rte_member`: Count-Min of counters of 64 bits, and a heap of the heaviest keys.
#[derive(Debug)]
pub struct Sketch {
    raw: NonNull<RawSketch>,
    _dpdk: Arc<Dpdk>,
}

/// What a sketch is made for.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// It has `4 / error` columns; divided by `sample` too, where it is not weighted.
    pub error: f32,
    /// The share of rows that is updated, or, where it is weighted, of packets whose keys the heap is
    /// asked for.
    pub sample: f32,
    /// Keys that the heap has room for: no power of two, of which DPDK keeps one less than it asks of
    /// itself.
    pub top: u32,
    /// Whether it is the one that takes weights, and updates its rows by vector instructions where it
    /// can.
    pub weighted: bool,
}

impl Sketch {
    /// Makes one; `None` where DPDK refuses.
    pub fn new(dpdk: &Arc<Dpdk>, shape: Shape) -> Option<Self> {
        let Shape { error, sample, top, weighted } = shape;
        // SAFETY: DPDK was started, and stays so while this is there.
        let sketch = NonNull::new(unsafe { peer_sketch_new(error, sample, top, weighted.into()) })?;
        Some(Self { raw: sketch, _dpdk: Arc::clone(dpdk) })
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        // SAFETY: it is there until it is dropped, and nobody else has it.
        unsafe { peer_sketch_clear(self.raw.as_ptr()) }
    }

    /// Counts each key once.
    pub fn add(&mut self, keys: &[u64]) {
        // SAFETY: it is there until it is dropped, nobody else has it, and there are so many keys.
        unsafe { peer_sketch_add(self.raw.as_ptr(), keys.as_ptr(), keys.len()) }
    }

    /// The estimate of a key.
    pub fn count(&self, key: u64) -> u64 {
        // SAFETY: it is there until it is dropped, and is only read.
        unsafe { peer_sketch_count(self.raw.as_ptr(), key) }
    }

    /// Bytes of its counters.
    pub fn memory_bytes(&self) -> usize {
        // SAFETY: it is there until it is dropped, and is only read.
        unsafe { peer_sketch_bytes(self.raw.as_ptr()) }
    }
}

impl Drop for Sketch {
    fn drop(&mut self) {
        // SAFETY: it was made by the shim, and nobody has it any more.
        unsafe { peer_sketch_free(self.raw.as_ptr()) }
    }
}

/// An exact counting table: `rte_hash`, and a counter of 64 bits for each of its positions.
#[derive(Debug)]
pub struct Table {
    raw: NonNull<RawTable>,
    _dpdk: Arc<Dpdk>,
    /// Packets that found no room.
    lost: usize,
}

impl Table {
    /// Makes one with room for so many keys; `None` where DPDK refuses.
    pub fn new(dpdk: &Arc<Dpdk>, entries: u32) -> Option<Self> {
        // SAFETY: DPDK was started, and stays so while this is there.
        let table = NonNull::new(unsafe { peer_table_new(entries) })?;
        Some(Self { raw: table, _dpdk: Arc::clone(dpdk), lost: 0 })
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.lost = 0;
        // SAFETY: it is there until it is dropped, and nobody else has it.
        unsafe { peer_table_clear(self.raw.as_ptr()) }
    }

    /// Counts each key once.
    pub fn add(&mut self, keys: &[u64]) {
        // SAFETY: it is there until it is dropped, nobody else has it, and there are so many keys.
        self.lost += unsafe { peer_table_add(self.raw.as_ptr(), keys.as_ptr(), keys.len()) };
    }

    /// The count of a key.
    pub fn count(&self, key: u64) -> u64 {
        // SAFETY: it is there until it is dropped, and is only read.
        unsafe { peer_table_count(self.raw.as_ptr(), key) }
    }

    /// Packets that found no room since it was empty.
    pub fn lost(&self) -> usize {
        self.lost
    }

    /// Bytes that DPDK gave it, and those of the counters.
    pub fn memory_bytes(&self) -> usize {
        // SAFETY: it is there until it is dropped, and is only read.
        unsafe { peer_table_bytes(self.raw.as_ptr()) }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: it was made by the shim, and nobody has it any more.
        unsafe { peer_table_free(self.raw.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static DPDK: LazyLock<Arc<Dpdk>> = LazyLock::new(|| {
        Dpdk::start(&ARGUMENTS.map(str::to_owned)).unwrap_or_else(|error| panic!("{error}"))
    });

    /// Key `i` of a thousand comes `i` times.
    fn keys() -> Vec<u64> {
        (0..1000).flat_map(|i| std::iter::repeat_n(i, i as usize)).collect()
    }

    #[test]
    fn tables_count_exactly_and_say_what_found_no_room() {
        let Some(mut table) = Table::new(&DPDK, 2048) else { panic!("DPDK makes no table") };
        for _ in 0..2 {
            table.clear();
            table.add(&keys());
            assert!((0..1000).all(|key| table.count(key) == key));
            assert_eq!((table.count(1000), table.lost()), (0, 0));
        }
        assert!(table.memory_bytes() > 2048 * 16, "{}", table.memory_bytes());
        let Some(mut small) = Table::new(&DPDK, 64) else { panic!("DPDK makes no table") };
        small.add(&keys());
        let counted: u64 = (0..1000).map(|key| small.count(key)).sum();
        assert!(small.lost() > 0);
        assert_eq!(counted as usize + small.lost(), keys().len());
    }

    #[test]
    fn sketches_count_at_least_what_there_was() {
        for weighted in [false, true] {
            let shape = Shape { error: 0.0005, sample: 1.0, top: 100, weighted };
            let Some(mut sketch) = Sketch::new(&DPDK, shape) else { panic!("it makes no sketch") };
            for _ in 0..2 {
                sketch.clear();
                sketch.add(&keys());
                let over: u64 = (0..1000).map(|key| sketch.count(key) - key).sum();
                assert!(over < 1000, "{over}, weighted: {weighted}");
            }
            assert!(sketch.memory_bytes() > 5 * 7900 * 8, "{}", sketch.memory_bytes());
        }
    }
}
