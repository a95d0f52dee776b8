//! Meters: packets are pushed in, and epochs leave to the closer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowgauge_core::block::{Block, Parsed, ParsedColumns, ParsedRow};
use flowgauge_core::packet::Frames;
use flowgauge_kernel::Isa;

use crate::intake::{Crew, Intake};
use crate::sampling::Arrivals;
use crate::source::{Ahead, Skipped, Thinned};

/// Measures the packets that are pushed into it.
///
/// There is one for each thread that has packets. A push costs one virtual call for each burst and
/// measurement; it allocates nothing. A meter of a replay waits for the closer where all its summaries
/// are with it.
pub trait Meter: Send {
    /// Says which packets of a burst are to be pushed, before their headers are read: a bit for each, the
    /// first one's lowest. Those that are wanted are pushed next, in their order; the others are counted
    /// as skipped. It costs next to nothing where a sampler decides before headers and wants none of
    /// them; without such a sampler all are wanted.
    ///
    /// # Panics
    /// When the burst has more than 64 packets.
    fn want(&mut self, burst: &Arrivals) -> u64;
    /// Packets that are surely not wanted, from the next one on.
    fn ahead(&self) -> Ahead;
    /// The gaps between the next wanted packets, in packets; the first one equals [`Self::ahead`]. Empty
    /// where they are unknown, or where the packet limit may end the run within them.
    fn gaps(&self) -> &[u64] {
        &[]
    }
    /// Counts packets that are not wanted, and that a source passed over, as skipped. Those that it picked
    /// among them are pushed next.
    fn skip(&mut self, skipped: &Skipped);
    /// Measures frames, in bursts of any size. Where a sampler decides before headers, those that were
    /// not asked about are passed over or read as it says.
    fn push(&mut self, frames: Frames<'_>);
    /// Measures packets whose headers the caller read already. A measurement with a filter counts them
    /// as filtered, since a filter judges the bytes of a frame; one whose key needs more of a frame counts
    /// them as without a key.
    fn push_headers(&mut self, rows: &[ParsedRow]);
    /// As [`Self::push_headers`], of IPv4 packets in columns, without a row for each of them.
    fn push_columns(&mut self, columns: ParsedColumns<'_>);
    /// Counts packets that were lost on their way to the meter.
    fn lose(&mut self, packets: u64);
    /// Says how the packets that are pushed from now on were sampled before, if they were. Reports of their
    /// epochs widen sizes, and leave out what a sample does not tell.
    fn thin(&mut self, thinned: Option<Thinned>);
    /// Puts a note into the report of the open epoch.
    fn note(&mut self, note: &str);
    /// Closes the epochs that end before `now_ns`, in nanoseconds since the UNIX epoch: no packet that
    /// is older will be pushed.
    fn advance(&mut self, now_ns: i64);
    /// Whether further packets are of no use: the limit is reached, or a thread of the group is gone.
    fn is_done(&self) -> bool;
    /// Closes the open epoch at the end of the input. Without a packet there is one empty epoch.
    fn finish(self: Box<Self>);
}

/// The way of one measurement through a meter.
pub(crate) struct Stream {
    pub(crate) intake: Intake,
    pub(crate) crew: Box<dyn Crew + Send>,
    /// Whether the group that closes the epochs is gone.
    pub(crate) gone: Arc<AtomicBool>,
}

impl Stream {
    pub(crate) fn is_done(&self) -> bool {
        !self.intake.wants_more() || self.is_broken()
    }

    /// Takes packets whose headers the caller read, by way of an empty block.
    pub(crate) fn take_headers(&mut self, rows: impl Parsed, block: &mut Block) {
        let Self { intake, crew, .. } = self;
        let mut taken = 0;
        while taken < rows.len() {
            taken += rows.part(taken..rows.len()).put(block);
            let none: &mut dyn FnMut(usize) -> bool = &mut |_| false;
            let passes = intake.is_filtered().then_some(none);
            let _ = intake.take_block(block, passes, &mut **crew);
            block.clear();
        }
    }

    fn is_broken(&self) -> bool {
        self.gone.load(Ordering::Acquire) || self.crew.is_broken()
    }
}

/// The meter of one measurement: headers are read, keys extracted and batches filled in one loop.
pub(crate) struct OneMeter {
    stream: Stream,
    /// Headers that the caller read, while they are taken.
    block: Block,
}

impl OneMeter {
    pub(crate) fn new(stream: Stream) -> Self {
        let block = Block::new(Isa::best(), stream.intake.wants_extras());
        Self { stream, block }
    }
}

// A thread that is gone shows in `is_done`; its reason comes out of the group.
impl Meter for OneMeter {
    #[inline]
    fn want(&mut self, burst: &Arrivals) -> u64 {
        let Stream { intake, crew, .. } = &mut self.stream;
        intake.want(burst, &mut **crew).unwrap_or(0)
    }

    #[inline]
    fn ahead(&self) -> Ahead {
        self.stream.intake.ahead()
    }

    fn gaps(&self) -> &[u64] {
        self.stream.intake.gaps()
    }

    fn skip(&mut self, skipped: &Skipped) {
        self.stream.intake.skip(skipped);
    }

    fn push(&mut self, frames: Frames<'_>) {
        let Stream { intake, crew, .. } = &mut self.stream;
        let _ = intake.take(frames, &mut **crew);
    }

    fn push_headers(&mut self, rows: &[ParsedRow]) {
        self.stream.take_headers(rows, &mut self.block);
    }

    fn push_columns(&mut self, columns: ParsedColumns<'_>) {
        self.stream.take_headers(columns, &mut self.block);
    }

    fn lose(&mut self, packets: u64) {
        self.stream.intake.lose(packets);
    }

    fn thin(&mut self, thinned: Option<Thinned>) {
        self.stream.intake.thin(thinned);
    }

    fn note(&mut self, note: &str) {
        self.stream.intake.note(note);
    }

    fn advance(&mut self, now_ns: i64) {
        let _ = self.stream.intake.advance(now_ns, &mut *self.stream.crew);
    }

    fn is_done(&self) -> bool {
        self.stream.is_done()
    }

    fn finish(mut self: Box<Self>) {
        finish(&mut self.stream);
    }
}

pub(crate) fn finish(stream: &mut Stream) {
    let broken = stream.is_broken();
    let Stream { intake, crew, .. } = stream;
    if !broken && (intake.holds() || intake.ended() == 0) {
        let _ = intake.finish(&mut **crew);
    }
    crew.finish();
}
