//! The meter of several measurements that share headers: each packet is read once.

use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::block::{Block, Parsed, ParsedColumns, ParsedRow};
use flowgauge_core::packet::{Frames, Tunnels};
use flowgauge_kernel::Isa;

use crate::meter::{Meter, Stream, finish};
use crate::sampling::Arrivals;
use crate::source::{Ahead, Skipped, Thinned};

/// Bits for the packets of a block.
type Mask = [u64; BATCH_PACKETS / 64];

/// The meter of several measurements: headers are read once, into blocks that each measurement takes in
/// turn.
///
/// Cost: two virtual calls for each block and measurement. Memory: that of a [`Block`].
pub(crate) struct SeveralMeter {
    streams: Vec<Stream>,
    tunnels: Tunnels,
    /// Packets that may still be read, of those that pass a filter.
    left: u64,
    block: Block,
    /// The streams with a filter by their numbers, and which packets of the block pass it.
    filtered: Vec<(usize, Mask)>,
}

impl SeveralMeter {
    pub(crate) fn new(streams: Vec<Stream>, tunnels: Tunnels, limit: Option<u64>) -> Self {
        let is_filtered = |number: &usize| streams[*number].intake.is_filtered();
        let filtered = (0..streams.len()).filter(is_filtered);
        let filtered = filtered.map(|number| (number, Mask::default())).collect();
        let extras = streams.iter().any(|stream| stream.intake.wants_extras());
        Self {
            streams,
            tunnels,
            left: limit.unwrap_or(u64::MAX),
            block: Block::new(Isa::best(), extras),
            filtered,
        }
    }

    /// Judges the frames that are about to be read into the block by the filters, up to the limit;
    /// returns how many there are.
    fn judge(&mut self, frames: Frames<'_>) -> usize {
        let first = self.block.len();
        let room = frames.len().min(BATCH_PACKETS - first);
        if self.filtered.is_empty() {
            let taken = usize::try_from(self.left).map_or(room, |left| left.min(room));
            self.left -= taken as u64;
            return taken;
        }
        for (taken, frame) in frames.part(0..room).iter().enumerate() {
            if self.left == 0 {
                return taken;
            }
            let mut wanted = self.wants_all();
            for (number, mask) in &mut self.filtered {
                let passes = self.streams[*number].intake.passes(&frame);
                let place = first + taken;
                mask[place / 64] |= u64::from(passes) << (place % 64);
                wanted |= passes;
            }
            self.left -= u64::from(wanted);
        }
        room
    }

    /// Takes packets whose headers the caller read, up to the limit.
    fn take_headers(&mut self, mut rows: impl Parsed) {
        if self.left == 0 {
            return;
        }
        if self.wants_all() {
            let most = usize::try_from(self.left).map_or(rows.len(), |left| left.min(rows.len()));
            rows = rows.part(0..most);
            self.left -= most as u64;
        }
        while !rows.is_empty() {
            rows = rows.part(rows.put(&mut self.block)..rows.len());
            if self.block.is_full() {
                self.flush();
            }
        }
    }

    /// Whether a measurement takes all packets, since it has no filter.
    fn wants_all(&self) -> bool {
        self.filtered.len() < self.streams.len()
    }

    /// Passes the packets of the block on.
    fn flush(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let mut filtered = self.filtered.iter_mut().peekable();
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let Stream { intake, crew, .. } = stream;
            let _ = match filtered.next_if(|(of, _)| *of == number) {
                Some((_, mask)) => {
                    let mask = std::mem::take(mask);
                    let mut passes = |place: usize| mask[place / 64] >> (place % 64) & 1 == 1;
                    intake.take_block(&self.block, Some(&mut passes), &mut **crew)
                }
                None => intake.take_block(&self.block, None, &mut **crew),
            };
        }
        self.block.clear();
    }
}

impl Meter for SeveralMeter {
    fn want(&mut self, burst: &Arrivals) -> u64 {
        burst.all()
    }

    fn ahead(&self) -> Ahead {
        Ahead::default()
    }

    fn skip(&mut self, skipped: &Skipped) {
        debug_assert_eq!(skipped.packets, 0, "no packet is ahead");
    }

    fn push(&mut self, mut frames: Frames<'_>) {
        while !frames.is_empty() && self.left > 0 {
            let taken = self.judge(frames);
            self.block.read(frames.part(0..taken), self.tunnels);
            frames = frames.part(taken..frames.len());
            if self.block.is_full() {
                self.flush();
            }
        }
    }

    fn push_headers(&mut self, rows: &[ParsedRow]) {
        self.take_headers(rows);
    }

    fn push_columns(&mut self, columns: ParsedColumns<'_>) {
        self.take_headers(columns);
    }

    fn lose(&mut self, packets: u64) {
        self.streams.iter_mut().for_each(|stream| stream.intake.lose(packets));
    }

    fn thin(&mut self, thinned: Option<Thinned>) {
        self.flush();
        self.streams.iter_mut().for_each(|stream| stream.intake.thin(thinned));
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
