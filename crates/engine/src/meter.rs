//! Meters: packets are pushed in, and epochs leave to the closer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowgauge_core::block::{Block, ParsedRow};
use flowgauge_core::packet::Frame;

use crate::intake::{Crew, Intake};

/// Measures the packets that are pushed into it.
///
/// There is one for each thread that has packets. A push costs one virtual call for each burst and
/// measurement; it allocates nothing. A meter of a replay waits for the closer where all its summaries
/// are with it.
pub trait Meter: Send {
    /// Measures frames, in bursts of any size.
    fn push(&mut self, frames: &[Frame<'_>]);
    /// Measures packets whose headers the caller read already. A measurement with a filter counts them
    /// as filtered, since a filter judges the bytes of a frame.
    fn push_headers(&mut self, rows: &[ParsedRow]);
    /// Counts packets that were lost on their way to the meter.
    fn lose(&mut self, packets: u64);
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
        Self { stream, block: Block::new() }
    }
}

// A thread that is gone shows in `is_done`; its reason comes out of the group.
impl Meter for OneMeter {
    fn push(&mut self, frames: &[Frame<'_>]) {
        let Stream { intake, crew, .. } = &mut self.stream;
        let _ = intake.take(frames, &mut **crew);
    }

    fn push_headers(&mut self, rows: &[ParsedRow]) {
        let Stream { intake, crew, .. } = &mut self.stream;
        let mut taken = 0;
        while taken < rows.len() {
            taken += self.block.take(&rows[taken..]);
            let none: &mut dyn FnMut(usize) -> bool = &mut |_| false;
            let passes = intake.is_filtered().then_some(none);
            let _ = intake.take_block(&self.block, passes, &mut **crew);
            self.block.clear();
        }
    }

    fn lose(&mut self, packets: u64) {
        self.stream.intake.lose(packets);
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
        let _ = intake.close(&mut **crew);
    }
    crew.finish();
}
