//! Data structures of an installed DPDK for keys of eight bytes: its sketch (`rte_member`) and its
//! hash table (`rte_hash`). Only the lab uses them, for comparison with those of flowgauge.
#![cfg(feature = "dpdk")]

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::Arc;

use flowgauge_dpdk::Dpdk;

/// A sketch of the shim, opaque to Rust.
#[repr(C)]
struct RawSketch([u8; 0]);
/// A table of the shim, opaque to Rust.
#[repr(C)]
struct RawTable([u8; 0]);

// SAFETY: these functions are defined in `shim.c` with the same types.
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

/// Arguments to start DPDK without huge pages, devices or root, with 512 MiB of address space. Its
/// vector code may use all instruction sets of the processor.
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

/// The sketch of `rte_member`: Count-Min with 64-bit counters, and a heap of the heaviest keys.
#[derive(Debug)]
pub struct Sketch {
    raw: NonNull<RawSketch>,
    _dpdk: Arc<Dpdk>,
}

/// The parameters of a [`Sketch`].
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The sketch has `4 / error` columns; if not weighted, `4 / error / sample`.
    pub error: f32,
    /// The share of updated rows; if weighted, the share of packets whose keys are looked up in the
    /// heap.
    pub sample: f32,
    /// Number of keys in the heap. Not a power of two, because DPDK then allocates one entry too
    /// few.
    pub top: u32,
    /// Whether to use the sketch that takes weights. It updates rows with vector instructions if it
    /// can.
    pub weighted: bool,
}

impl Sketch {
    /// A new sketch; `None` if DPDK refuses.
    pub fn new(dpdk: &Arc<Dpdk>, shape: Shape) -> Option<Self> {
        let Shape { error, sample, top, weighted } = shape;
        // SAFETY: DPDK was started, and runs as long as `dpdk` is held.
        let sketch = NonNull::new(unsafe { peer_sketch_new(error, sample, top, weighted.into()) })?;
        Some(Self { raw: sketch, _dpdk: Arc::clone(dpdk) })
    }

    /// Clears all counts.
    pub fn clear(&mut self) {
        // SAFETY: the pointer is valid until drop, and the borrow is exclusive.
        unsafe { peer_sketch_clear(self.raw.as_ptr()) }
    }

    /// Counts each key once.
    pub fn add(&mut self, keys: &[u64]) {
        // SAFETY: the pointer is valid until drop, the borrow is exclusive, and there are this many
        // keys.
        unsafe { peer_sketch_add(self.raw.as_ptr(), keys.as_ptr(), keys.len()) }
    }

    /// The estimate of a key.
    pub fn count(&self, key: u64) -> u64 {
        // SAFETY: the pointer is valid until drop, and the call only reads.
        unsafe { peer_sketch_count(self.raw.as_ptr(), key) }
    }

    /// Bytes of the counters.
    pub fn memory_bytes(&self) -> usize {
        // SAFETY: the pointer is valid until drop, and the call only reads.
        unsafe { peer_sketch_bytes(self.raw.as_ptr()) }
    }
}

impl Drop for Sketch {
    fn drop(&mut self) {
        // SAFETY: the shim created it, and nothing uses it any more.
        unsafe { peer_sketch_free(self.raw.as_ptr()) }
    }
}

/// An exact counting table: `rte_hash`, with a 64-bit counter for each position.
#[derive(Debug)]
pub struct Table {
    raw: NonNull<RawTable>,
    _dpdk: Arc<Dpdk>,
    /// Number of packets without room.
    lost: usize,
}

impl Table {
    /// A new table with room for `entries` keys; `None` if DPDK refuses.
    pub fn new(dpdk: &Arc<Dpdk>, entries: u32) -> Option<Self> {
        // SAFETY: DPDK was started, and runs as long as `dpdk` is held.
        let table = NonNull::new(unsafe { peer_table_new(entries) })?;
        Some(Self { raw: table, _dpdk: Arc::clone(dpdk), lost: 0 })
    }

    /// Clears all counts.
    pub fn clear(&mut self) {
        self.lost = 0;
        // SAFETY: the pointer is valid until drop, and the borrow is exclusive.
        unsafe { peer_table_clear(self.raw.as_ptr()) }
    }

    /// Counts each key once.
    pub fn add(&mut self, keys: &[u64]) {
        // SAFETY: the pointer is valid until drop, the borrow is exclusive, and there are this many
        // keys.
        self.lost += unsafe { peer_table_add(self.raw.as_ptr(), keys.as_ptr(), keys.len()) };
    }

    /// The count of a key.
    pub fn count(&self, key: u64) -> u64 {
        // SAFETY: the pointer is valid until drop, and the call only reads.
        unsafe { peer_table_count(self.raw.as_ptr(), key) }
    }

    /// Number of packets without room since the table was empty.
    pub fn lost(&self) -> usize {
        self.lost
    }

    /// Bytes allocated by DPDK, plus bytes of the counters.
    pub fn memory_bytes(&self) -> usize {
        // SAFETY: the pointer is valid until drop, and the call only reads.
        unsafe { peer_table_bytes(self.raw.as_ptr()) }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: the shim created it, and nothing uses it any more.
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

    /// A thousand keys; key `i` occurs `i` times.
    fn keys() -> Vec<u64> {
        (0..1000).flat_map(|i| std::iter::repeat_n(i, i as usize)).collect()
    }

    #[test]
    fn tables_count_exactly_and_report_keys_without_room() {
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
    fn sketches_never_underestimate() {
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
