//! Rivals of algorithms: the same structures in the crate datasketches, which takes one key at a
//! time, and a part of an algorithm alone.

use datasketches::countmin::CountMinSketch;
use datasketches::frequencies::FrequentItemsSketch;
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::summary::Options;
use flowgauge_core::summary::instant::WorkingSet;

use super::contestant::{Cataloged, Contestant};
use super::stream::Stream;

/// Capacity of the table of frequent items in keys, of which three quarters are used.
const FREQUENT: usize = 1024;

/// Another implementation.
pub(super) struct Rival {
    pub(super) name: &'static str,
    pub(super) build: fn() -> Box<dyn Contestant>,
    /// Its memory, if the summary compared with it gets the same.
    pub(super) memory: Option<fn() -> usize>,
    /// The target speed-up.
    pub(super) speedup: Option<f64>,
}

/// Count-Min with the same number and width of counters.
pub(super) const COUNT_MIN: Rival = Rival {
    name: "datasketches CountMinSketch",
    build: || of(|| CountMinSketch::<u32>::new(4, 1 << 16).ok(), CountMinSketch::update),
    memory: None,
    speedup: Some(5.0),
};

/// Frequent items, whose error depends on memory. Space-Saving with m counters in the same memory
/// has smaller errors: at most N/m, where a table of 1024 has 3.5 N/1024, and about N/750 over
/// backbone traffic.
pub(super) const FREQUENT_ITEMS: Rival = Rival {
    name: "datasketches FrequentItemsSketch",
    build: || of(frequent, FrequentItemsSketch::update),
    memory: Some(frequent_bytes),
    speedup: Some(2.0),
};

/// InstaMeasure's flow table without the regulator, with the same number of entries.
pub(super) const WORKING_SET: Rival =
    Rival { name: "its table alone", build: working_set, memory: None, speedup: Some(3.0) };

/// # Panics
/// The operating system refuses the memory.
fn working_set() -> Box<dyn Contestant> {
    let options = Options::new(0, 1).with([("entries", 1 << 23)]);
    let table = WorkingSet::from_options(&options, 0).expect("there is as much memory");
    Box::new(Cataloged::of(Box::new(table)))
}

fn frequent() -> Option<FrequentItemsSketch<u64>> {
    FrequentItemsSketch::new(FREQUENT).ok()
}

/// Measured bytes of the full-size table, which the library grows itself.
fn frequent_bytes() -> usize {
    let Some(mut sketch) = frequent() else { return 0 };
    (0..FREQUENT as u64).for_each(|key| sketch.update(key));
    sketch.estimated_size()
}

struct Sketch<S, N, U> {
    new: N,
    update: U,
    filled: Option<S>,
}

impl<S, N: Fn() -> Option<S>, U: Fn(&mut S, u64)> Contestant for Sketch<S, N, U> {
    fn begin(&mut self, earlier: &[Key8]) {
        self.filled = (self.new)();
        self.count(earlier);
    }

    fn take(&mut self, stream: &mut Stream) -> usize {
        self.count(&stream.keys);
        stream.keys.len()
    }
}

impl<S, N: Fn() -> Option<S>, U: Fn(&mut S, u64)> Sketch<S, N, U> {
    fn count(&mut self, keys: &[Key8]) {
        let Some(sketch) = &mut self.filled else { return };
        for &key in Key8::words(keys) {
            (self.update)(sketch, key);
        }
    }
}

fn of<S: 'static>(
    new: impl Fn() -> Option<S> + 'static,
    update: impl Fn(&mut S, u64) + 'static,
) -> Box<dyn Contestant> {
    Box::new(Sketch { new, update, filled: None })
}
