//! Meters: packets are pushed in, and epochs leave to the closer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowgauge_core::lanes::ParsedRow;
use flowgauge_core::packet::{Frame, parse, parse_inner};

use crate::intake::{BURST, Crew, Intake};

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
    fn is_done(&self) -> bool {
        !self.intake.wants_more() || self.is_broken()
    }

    fn is_broken(&self) -> bool {
        self.gone.load(Ordering::Acquire) || self.crew.is_broken()
    }
}

/// The meter of one measurement: headers are read, keys extracted and batches filled in one loop.
pub(crate) struct OneMeter(pub(crate) Stream);

// A thread that is gone shows in `is_done`; its reason comes out of the group.
impl Meter for OneMeter {
    fn push(&mut self, frames: &[Frame<'_>]) {
        let Stream { intake, crew, .. } = &mut self.0;
        let _ = intake.take(frames, &mut **crew);
    }

    fn push_headers(&mut self, rows: &[ParsedRow]) {
        let Stream { intake, crew, .. } = &mut self.0;
        let passes = |_| false;
        let passes = intake.is_filtered().then_some(&passes as &dyn Fn(usize) -> bool);
        let _ = intake.take_rows(rows, passes, &mut **crew);
    }

    fn lose(&mut self, packets: u64) {
        self.0.intake.lose(packets);
    }

    fn note(&mut self, note: &str) {
        self.0.intake.note(note);
    }

    fn advance(&mut self, now_ns: i64) {
        let _ = self.0.intake.advance(now_ns, &mut *self.0.crew);
    }

    fn is_done(&self) -> bool {
        self.0.is_done()
    }

    fn finish(mut self: Box<Self>) {
        finish(&mut self.0);
    }
}

/// Bits for the rows of a block.
type Mask = [u64; BURST / 64];

/// The meter of several measurements: headers are read once, into blocks of rows that each measurement
/// takes in turn.
pub(crate) struct SeveralMeter {
    streams: Vec<Stream>,
    inner: bool,
    /// Packets that may still be read, of those that pass a filter.
    left: u64,
    rows: Vec<ParsedRow>,
    /// Which rows pass the filter of each stream.
    passing: Vec<Mask>,
}

impl SeveralMeter {
    pub(crate) fn new(streams: Vec<Stream>, inner: bool, limit: Option<u64>) -> Self {
        let passing = vec![[0; BURST / 64]; streams.len()];
        let (left, rows) = (limit.unwrap_or(u64::MAX), Vec::with_capacity(BURST));
        Self { streams, inner, left, rows, passing }
    }

    /// Passes the rows of the block on.
    fn flush(&mut self) {
        for (stream, mask) in self.streams.iter_mut().zip(&mut self.passing) {
            let Stream { intake, crew, .. } = stream;
            let passes = |place: usize| mask[place / 64] >> (place % 64) & 1 == 1;
            let passes = intake.is_filtered().then_some(&passes as &dyn Fn(usize) -> bool);
            let _ = intake.take_rows(&self.rows, passes, &mut **crew);
            *mask = [0; BURST / 64];
        }
        self.rows.clear();
    }

    /// Adds a row, which passes the filter of some streams.
    fn add(&mut self, row: ParsedRow) {
        self.rows.push(row);
        if self.rows.len() == BURST {
            self.flush();
        }
    }
}

impl Meter for SeveralMeter {
    fn push(&mut self, frames: &[Frame<'_>]) {
        for frame in frames {
            if self.left == 0 {
                break;
            }
            let (place, mut wanted) = (self.rows.len(), false);
            for (stream, mask) in self.streams.iter_mut().zip(&mut self.passing) {
                let passes = stream.intake.passes(frame);
                mask[place / 64] |= u64::from(passes) << (place % 64);
                wanted |= passes;
            }
            self.left -= u64::from(wanted);
            let parse = if self.inner { parse_inner } else { parse };
            let headers = parse(frame.link, frame.bytes);
            self.add(ParsedRow { headers, wire: frame.wire, time_ns: frame.time_ns });
        }
    }

    fn push_headers(&mut self, rows: &[ParsedRow]) {
        for row in rows {
            if self.left == 0 {
                break;
            }
            self.left -= u64::from(self.streams.iter().any(|stream| !stream.intake.is_filtered()));
            self.add(*row);
        }
    }

    fn lose(&mut self, packets: u64) {
        self.streams.iter_mut().for_each(|stream| stream.intake.lose(packets));
    }

    fn note(&mut self, note: &str) {
        self.streams.iter_mut().for_each(|stream| stream.intake.note(note));
    }

    fn advance(&mut self, now_ns: i64) {
        self.flush();
        for Stream { intake, crew, .. } in &mut self.streams {
            let _ = intake.advance(now_ns, &mut **crew);
        }
    }

    fn is_done(&self) -> bool {
        self.left == 0 || self.streams.iter().any(Stream::is_done)
    }

    fn finish(mut self: Box<Self>) {
        self.flush();
        self.streams.iter_mut().for_each(finish);
    }
}

fn finish(stream: &mut Stream) {
    let broken = stream.is_broken();
    let Stream { intake, crew, .. } = stream;
    if !broken && (intake.holds() || intake.ended() == 0) {
        let _ = intake.close(&mut **crew);
    }
    crew.finish();
}
