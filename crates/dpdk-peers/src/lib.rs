//! Structures of an installed DPDK: its sketch (`rte_member`) and its hash table (`rte_hash`), for keys
//! of eight bytes. Only the lab uses them, to measure them beside those of flowgauge.
#![cfg(feature = "dpdk")]

use std::ffi::{CStr, c_char, c_int};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// What the shim has of each; nobody looks inside.
#[repr(C)]
struct RawSketch([u8; 0]);
#[repr(C)]
struct RawTable([u8; 0]);

// SAFETY: these are the functions of `shim.c`, and their types are the same there.
unsafe extern "C" {
    fn shim_start() -> c_int;
    fn shim_reason(reason: c_int) -> *const c_char;
    fn shim_sketch_new(error: f32, sample: f32, top: u32, weighted: c_int) -> *mut RawSketch;
    fn shim_sketch_clear(sketch: *mut RawSketch);
    fn shim_sketch_add(sketch: *mut RawSketch, keys: *const u64, count: usize);
    fn shim_sketch_count(sketch: *mut RawSketch, key: u64) -> u64;
    fn shim_sketch_bytes(sketch: *const RawSketch) -> usize;
    fn shim_sketch_free(sketch: *mut RawSketch);
    fn shim_table_new(entries: u32) -> *mut RawTable;
    fn shim_table_clear(table: *mut RawTable);
    fn shim_table_add(table: *mut RawTable, keys: *const u64, count: usize) -> usize;
    fn shim_table_count(table: *const RawTable, key: u64) -> u64;
    fn shim_table_bytes(table: *const RawTable) -> usize;
    fn shim_table_free(table: *mut RawTable);
}

/// DPDK, started without huge pages, devices or root.
#[derive(Clone, Copy, Debug)]
pub struct Dpdk(());

impl Dpdk {
    /// Starts it, once in a process. It takes 512 MiB of address space.
    ///
    /// # Errors
    /// With DPDK's reason, when it does not start.
    pub fn start() -> Result<Self, String> {
        static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
        let started = STARTED.get_or_init(|| {
            // SAFETY: it is called once.
            let reason = unsafe { shim_start() };
            if reason == 0 {
                return Ok(());
            }
            // SAFETY: what is returned is a text that stays until the thread asks for another.
            Err(unsafe { CStr::from_ptr(shim_reason(reason)) }.to_string_lossy().into_owned())
        });
        started.clone().map(|()| Self(()))
    }
}

/// The sketch of `rte_member`: Count-Min of counters of 64 bits, and a heap of the heaviest keys.
#[derive(Debug)]
pub struct Sketch(NonNull<RawSketch>);

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
    pub fn new(Dpdk(()): Dpdk, shape: Shape) -> Option<Self> {
        let Shape { error, sample, top, weighted } = shape;
        // SAFETY: DPDK was started.
        NonNull::new(unsafe { shim_sketch_new(error, sample, top, weighted.into()) }).map(Self)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        // SAFETY: it is there until it is dropped, and nobody else has it.
        unsafe { shim_sketch_clear(self.0.as_ptr()) }
    }

    /// Counts each key once.
    pub fn add(&mut self, keys: &[u64]) {
        // SAFETY: it is there until it is dropped, nobody else has it, and there are so many keys.
        unsafe { shim_sketch_add(self.0.as_ptr(), keys.as_ptr(), keys.len()) }
    }

    /// The estimate of a key.
    pub fn count(&self, key: u64) -> u64 {
        // SAFETY: it is there until it is dropped, and is only read.
        unsafe { shim_sketch_count(self.0.as_ptr(), key) }
    }

    /// Bytes of its counters.
    pub fn memory_bytes(&self) -> usize {
        // SAFETY: it is there until it is dropped, and is only read.
        unsafe { shim_sketch_bytes(self.0.as_ptr()) }
    }
}

impl Drop for Sketch {
    fn drop(&mut self) {
        // SAFETY: it was made by the shim, and nobody has it any more.
        unsafe { shim_sketch_free(self.0.as_ptr()) }
    }
}

/// An exact counting table: `rte_hash`, and a counter of 64 bits for each of its positions.
#[derive(Debug)]
pub struct Table {
    table: NonNull<RawTable>,
    /// Packets that found no room.
    lost: usize,
}

impl Table {
    /// Makes one with room for so many keys; `None` where DPDK refuses.
    pub fn new(Dpdk(()): Dpdk, entries: u32) -> Option<Self> {
        // SAFETY: DPDK was started.
        let table = NonNull::new(unsafe { shim_table_new(entries) })?;
        Some(Self { table, lost: 0 })
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.lost = 0;
        // SAFETY: it is there until it is dropped, and nobody else has it.
        unsafe { shim_table_clear(self.table.as_ptr()) }
    }

    /// Counts each key once.
    pub fn add(&mut self, keys: &[u64]) {
        // SAFETY: it is there until it is dropped, nobody else has it, and there are so many keys.
        self.lost += unsafe { shim_table_add(self.table.as_ptr(), keys.as_ptr(), keys.len()) };
    }

    /// The count of a key.
    pub fn count(&self, key: u64) -> u64 {
        // SAFETY: it is there until it is dropped, and is only read.
        unsafe { shim_table_count(self.table.as_ptr(), key) }
    }

    /// Packets that found no room since it was empty.
    pub fn lost(&self) -> usize {
        self.lost
    }

    /// Bytes that DPDK gave it, and those of the counters.
    pub fn memory_bytes(&self) -> usize {
        // SAFETY: it is there until it is dropped, and is only read.
        unsafe { shim_table_bytes(self.table.as_ptr()) }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: it was made by the shim, and nobody has it any more.
        unsafe { shim_table_free(self.table.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key `i` of a thousand comes `i` times.
    fn keys() -> Vec<u64> {
        (0..1000).flat_map(|i| std::iter::repeat_n(i, i as usize)).collect()
    }

    #[test]
    fn tables_count_exactly_and_say_what_found_no_room() {
        let Ok(dpdk) = Dpdk::start() else { panic!("DPDK does not start") };
        let Some(mut table) = Table::new(dpdk, 2048) else { panic!("DPDK makes no table") };
        for _ in 0..2 {
            table.clear();
            table.add(&keys());
            assert!((0..1000).all(|key| table.count(key) == key));
            assert_eq!((table.count(1000), table.lost()), (0, 0));
        }
        assert!(table.memory_bytes() > 2048 * 16, "{}", table.memory_bytes());
        let Some(mut small) = Table::new(dpdk, 64) else { panic!("DPDK makes no table") };
        small.add(&keys());
        let counted: u64 = (0..1000).map(|key| small.count(key)).sum();
        assert!(small.lost() > 0);
        assert_eq!(counted as usize + small.lost(), keys().len());
    }

    #[test]
    fn sketches_count_at_least_what_there_was() {
        let Ok(dpdk) = Dpdk::start() else { panic!("DPDK does not start") };
        for weighted in [false, true] {
            let shape = Shape { error: 0.0005, sample: 1.0, top: 100, weighted };
            let Some(mut sketch) = Sketch::new(dpdk, shape) else { panic!("it makes no sketch") };
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
