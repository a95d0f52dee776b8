//! The meter of several measurements that all sample before headers: each reads its own packets.

use flowgauge_core::block::{Block, Parsed, ParsedColumns, ParsedRow};
use flowgauge_core::packet::Frames;
use flowgauge_kernel::Isa;

use crate::meter::{Meter, Stream, finish};
use crate::sampling::Arrivals;
use crate::source::{Ahead, Skipped, Thinned};

/// The meter of several measurements that all sample before headers. Few packets are read, and hardly
/// one by two measurements, so that sharing headers would not pay.
///
/// Cost: that of [`crate::meter::OneMeter`] for each measurement. Memory: that of a [`Block`].
pub(crate) struct ApartMeter {
    streams: Vec<Stream>,
    /// The packets of the last burst that measurements want and that are yet to come.
    wanted: u64,
    /// Of them, those that each measurement wants.
    own: Vec<u64>,
    /// Headers that the caller read, while they are taken.
    block: Block,
}

impl ApartMeter {
    pub(crate) fn new(streams: Vec<Stream>) -> Self {
        let own = vec![0; streams.len()];
        let extras = streams.iter().any(|stream| stream.intake.wants_extras());
        Self { streams, wanted: 0, own, block: Block::new(Isa::best(), extras) }
    }

    /// Gives `count` packets to the measurements, by their places and one after the other as long as
    /// they are wanted ones; the rest as a whole.
    fn give(
        &mut self,
        count: usize,
        mut take: impl FnMut(&mut Stream, &mut Block, std::ops::Range<usize>),
    ) {
        let asked = count.min(self.wanted.count_ones() as usize);
        for (stream, own) in self.streams.iter_mut().zip(&self.own) {
            let mut wanted = self.wanted;
            for place in 0..asked {
                let packet = wanted & wanted.wrapping_neg();
                wanted ^= packet;
                if own & packet != 0 {
                    take(stream, &mut self.block, place..place + 1);
                }
            }
            if asked < count {
                take(stream, &mut self.block, asked..count);
            }
        }
        for _ in 0..asked {
            self.wanted &= self.wanted - 1;
        }
    }
}

impl Meter for ApartMeter {
    fn want(&mut self, burst: &Arrivals) -> u64 {
        self.wanted = 0;
        for (Stream { intake, crew, .. }, own) in self.streams.iter_mut().zip(&mut self.own) {
            *own = intake.want(burst, &mut **crew).unwrap_or(0);
            self.wanted |= *own;
        }
        self.wanted
    }

    fn ahead(&self) -> Ahead {
        let ahead = self.streams.iter().map(|stream| stream.intake.ahead());
        let both = |one: Ahead, other: Ahead| Ahead {
            packets: one.packets.min(other.packets),
            from_ns: one.from_ns.max(other.from_ns),
            until_ns: one.until_ns.min(other.until_ns),
        };
        ahead.reduce(both).unwrap_or_default()
    }

    fn skip(&mut self, skipped: &Skipped) {
        self.streams.iter_mut().for_each(|stream| stream.intake.skip(skipped));
    }

    fn push(&mut self, frames: Frames<'_>) {
        self.give(frames.len(), |Stream { intake, crew, .. }, _, places| {
            let _ = intake.take(frames.part(places), &mut **crew);
        });
    }

    fn push_headers(&mut self, rows: &[ParsedRow]) {
        self.give(rows.len(), |stream, block, places| stream.take_headers(&rows[places], block));
    }

    fn push_columns(&mut self, columns: ParsedColumns<'_>) {
        self.give(columns.len(), |stream, block, places| {
            stream.take_headers(columns.part(places), block);
        });
    }

    fn lose(&mut self, packets: u64) {
        self.streams.iter_mut().for_each(|stream| stream.intake.lose(packets));
    }

    fn thin(&mut self, thinned: Option<Thinned>) {
        self.streams.iter_mut().for_each(|stream| stream.intake.thin(thinned));
    }

    fn note(&mut self, note: &str) {
        self.streams.iter_mut().for_each(|stream| stream.intake.note(note));
    }

    fn advance(&mut self, now_ns: i64) {
        for Stream { intake, crew, .. } in &mut self.streams {
            let _ = intake.advance(now_ns, &mut **crew);
        }
    }

    fn is_done(&self) -> bool {
        self.streams.iter().any(Stream::is_done)
    }

    fn finish(mut self: Box<Self>) {
        self.streams.iter_mut().for_each(finish);
    }
}
