//! Meters: packets are pushed in, and the epochs go to the closer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::block::{Block, Parsed, ParsedColumns, ParsedRow};
use flowgauge_core::packet::{Column, Frame, Frames, Tunnels};
use flowgauge_kernel::Isa;

use crate::intake::{Crew, Intake, Verdict};
use crate::sampling::Arrivals;
use crate::source::{Ahead, Skipped, Thinned};

/// Measures the packets that are pushed into it.
///
/// There is one meter for each thread that has packets. A push costs one virtual call for each
/// burst and measurement, and allocates nothing. In a replay, a meter waits for the closer while
/// all its summaries are there.
///
/// ```
/// use flowgauge_core::packet::{Frame, FrameColumns, LinkType};
/// use flowgauge_engine::sink::{Json, Written};
/// use flowgauge_engine::{Config, Plan};
///
/// let plan = Plan::new(Config { memory_bytes: 1 << 20, ..Config::default() })?;
/// let (mut meters, group) = plan.build()?;
/// let mut meter = meters.remove(0);
/// let frame = Frame { bytes: &[0x45; 20], wire: 60, link: LinkType::IPV4, time_ns: 0 };
/// let burst: FrameColumns<'_> = [frame; 3].into_iter().collect();
/// meter.push(burst.frames());
/// meter.finish();
/// let closed = group.close(&mut Written::new(Json, Vec::new()))?;
/// assert_eq!(closed.totals[0].account.keyed, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Meter: Send {
    /// Returns which packets of a burst to push, before their headers are read: one bit for each,
    /// the first packet's lowest. Push these next, in order; the others are counted as skipped. The
    /// call costs next to nothing if a sampler decides before headers and wants none of them.
    /// Without such a sampler, all packets are wanted.
    ///
    /// # Panics
    /// When the burst has more than 64 packets.
    fn want(&mut self, burst: &Arrivals) -> u64;
    /// The number of packets, from the next one on, that are surely not wanted.
    fn ahead(&self) -> Ahead;
    /// The gaps between the next wanted packets, in packets. The first one equals [`Self::ahead`].
    /// Empty if the gaps are unknown, or if the packet limit may end the run within them.
    fn gaps(&self) -> &[u64] {
        &[]
    }
    /// Counts packets that a source passed over as skipped. The wanted packets that it picked among
    /// them must be pushed next.
    fn skip(&mut self, skipped: &Skipped);
    /// Measures frames, in bursts of any size. If a sampler decides before headers, it also decides
    /// about frames for which [`Self::want`] was not called.
    fn push(&mut self, frames: Frames<'_>);
    /// Measures the wanted packets of a burst, and counts the others as skipped, as [`Self::want`]
    /// and then [`Self::push`] do, but in one pass where a single sampler decides. `frame` is called
    /// for each wanted packet in order, with its place in the burst, and returns it.
    ///
    /// # Panics
    /// When the burst has more than 64 packets.
    fn push_wanted<'a>(&mut self, burst: &Arrivals, frame: &mut dyn FnMut(usize) -> Frame<'a>) {
        ask_and_push(self, burst, frame);
    }
    /// Measures packets whose headers the caller has parsed. A measurement with a filter counts
    /// them as filtered, since a filter needs the bytes of a frame. A measurement whose key needs
    /// more of a frame counts them as `no_key`.
    fn push_headers(&mut self, rows: &[ParsedRow]);
    /// As [`Self::push_headers`], for IPv4 packets in columns.
    fn push_columns(&mut self, columns: ParsedColumns<'_>);
    /// Counts packets that were lost on their way to the meter.
    fn lose(&mut self, packets: u64);
    /// Sets how the source sampled the packets that are pushed from now on. Reports widen the
    /// bounds of sizes accordingly, and omit what a sample cannot show.
    fn thin(&mut self, thinned: Option<Thinned>);
    /// Sets why packets pass unseen from now on; `None` if none do. The report of each epoch in which
    /// that is so has it as a note.
    fn outage(&mut self, outage: Option<&str>);
    /// Puts a note into the report of the open epoch.
    fn note(&mut self, note: &str);
    /// Closes the epochs that end before `now_ns`, in nanoseconds since the UNIX epoch. No older
    /// packet may be pushed afterwards.
    fn advance(&mut self, now_ns: i64);
    /// Whether further packets are useless: the limit is reached, or a thread of the group is gone.
    fn is_done(&self) -> bool;
    /// Closes the open epoch at the end of the input. A run without a packet has one empty epoch.
    fn finish(self: Box<Self>);
}

/// [`Meter::push_wanted`] by way of [`Meter::want`] and [`Meter::push`].
fn ask_and_push<'a>(
    meter: &mut (impl Meter + ?Sized),
    burst: &Arrivals,
    frame: &mut dyn FnMut(usize) -> Frame<'a>,
) {
    let mut wanted = meter.want(burst);
    while wanted != 0 {
        let Frame { bytes, wire, link, time_ns } = frame(wanted.trailing_zeros() as usize);
        let (link, time_ns) = (Column::Same(link), Column::Same(time_ns));
        meter.push(Frames::new(&[bytes.into()], &[wire], link, time_ns));
        wanted &= wanted - 1;
    }
}

/// One measurement within a meter.
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

    /// Ingests packets whose headers the caller parsed, by way of an empty block.
    pub(crate) fn take_headers(&mut self, rows: impl Parsed, block: &mut Block) {
        let Self { intake, crew, .. } = self;
        let mut taken = 0;
        while taken < rows.len() {
            taken += rows.part(taken..rows.len()).put(block);
            let none: &mut dyn FnMut(usize) -> Verdict = &mut |_| Verdict::Rejected;
            let judge = intake.is_filtered().then_some(none);
            let _ = intake.take_block(block, judge, &mut **crew);
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
    /// Holds headers that the caller parsed while they are ingested.
    block: Block,
}

impl OneMeter {
    pub(crate) fn new(stream: Stream) -> Self {
        let block = Block::new(Isa::best(), stream.intake.wants_extras());
        Self { stream, block }
    }
}

// `is_done` shows that a thread is gone; the group returns its error.
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
        let _ = intake.take(&frames, &mut **crew);
    }

    fn push_wanted<'a>(&mut self, burst: &Arrivals, frame: &mut dyn FnMut(usize) -> Frame<'a>) {
        let Stream { intake, crew, .. } = &mut self.stream;
        if !intake.take_wanted(burst, frame, &mut **crew) {
            ask_and_push(self, burst, frame);
        }
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

    fn outage(&mut self, outage: Option<&str>) {
        let Stream { intake, crew, .. } = &mut self.stream;
        intake.outage(outage, &mut **crew);
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

/// One bit for each packet of a block.
type Mask = [u64; BATCH_PACKETS / 64];

/// A filter's verdicts on the packets of a block.
#[derive(Default)]
struct Verdicts {
    passing: Mask,
    unfit: Mask,
}

impl Verdicts {
    fn set(&mut self, place: usize, verdict: Verdict) {
        self.passing[place / 64] |= u64::from(verdict == Verdict::Passes) << (place % 64);
        self.unfit[place / 64] |= u64::from(verdict == Verdict::Unfit) << (place % 64);
    }

    fn get(&self, place: usize) -> Verdict {
        let is_in = |mask: &Mask| mask[place / 64] >> (place % 64) & 1 == 1;
        match (is_in(&self.passing), is_in(&self.unfit)) {
            (true, _) => Verdict::Passes,
            (false, true) => Verdict::Unfit,
            (false, false) => Verdict::Rejected,
        }
    }
}

/// The meter of several measurements. It reads headers once, into blocks that each measurement
/// ingests in turn.
///
/// Cost: two virtual calls for each block and measurement. Memory: one [`Block`].
pub(crate) struct SeveralMeter {
    streams: Vec<Stream>,
    tunnels: Tunnels,
    /// Packets left of the limit; packets that every filter rejects do not count.
    left: u64,
    block: Block,
    /// The numbers of the streams with a filter, and its verdicts on the packets of the block.
    filtered: Vec<(usize, Verdicts)>,
    /// Whether more than one measurement counts all packets by service.
    shares_services: bool,
}

impl SeveralMeter {
    pub(crate) fn new(streams: Vec<Stream>, tunnels: Tunnels, limit: Option<u64>) -> Self {
        let is_filtered = |number: &usize| streams[*number].intake.is_filtered();
        let filtered = (0..streams.len()).filter(is_filtered);
        let filtered = filtered.map(|number| (number, Verdicts::default())).collect();
        let extras = streams.iter().any(|stream| stream.intake.wants_extras());
        let counts = |intake: &Intake| !intake.is_filtered() && intake.counts_services();
        let counting = streams.iter().filter(|stream| counts(&stream.intake)).count();
        Self {
            streams,
            tunnels,
            left: limit.unwrap_or(u64::MAX),
            block: Block::new(Isa::best(), extras),
            filtered,
            shares_services: counting > 1,
        }
    }

    /// Applies the filters to the frames that will be read into the block next, up to the limit.
    /// Returns the number of these frames.
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
            for (number, verdicts) in &mut self.filtered {
                let verdict = self.streams[*number].intake.judge(&frame);
                verdicts.set(first + taken, verdict);
                wanted |= verdict == Verdict::Passes;
            }
            self.left -= u64::from(wanted);
        }
        room
    }

    /// Ingests packets whose headers the caller parsed, up to the limit.
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

    /// Whether some measurement has no filter, and so takes all packets.
    fn wants_all(&self) -> bool {
        self.filtered.len() < self.streams.len()
    }

    /// Passes the packets of the block on.
    fn flush(&mut self) {
        if self.block.is_empty() {
            return;
        }
        if self.shares_services {
            self.block.count_services();
        }
        let mut filtered = self.filtered.iter_mut().peekable();
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let Stream { intake, crew, .. } = stream;
            let _ = match filtered.next_if(|(of, _)| *of == number) {
                Some((_, verdicts)) => {
                    let verdicts = std::mem::take(verdicts);
                    let mut judge = |place| verdicts.get(place);
                    intake.take_block(&self.block, Some(&mut judge), &mut **crew)
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

    fn outage(&mut self, outage: Option<&str>) {
        for Stream { intake, crew, .. } in &mut self.streams {
            intake.outage(outage, &mut **crew);
        }
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

/// The meter of several measurements that all sample before headers. Few packets are read, and
/// hardly any by two measurements, so sharing headers would not pay.
///
/// Cost: that of an [`OneMeter`] for each measurement. Memory: one [`Block`].
pub(crate) struct ApartMeter {
    streams: Vec<Stream>,
    /// The packets of the last burst that some measurement wants and that have not been pushed yet.
    wanted: u64,
    /// The part of these that each measurement wants.
    own: Vec<u64>,
    /// Holds headers that the caller parsed while they are ingested.
    block: Block,
}

impl ApartMeter {
    pub(crate) fn new(streams: Vec<Stream>) -> Self {
        let own = vec![0; streams.len()];
        let extras = streams.iter().any(|stream| stream.intake.wants_extras());
        Self { streams, wanted: 0, own, block: Block::new(Isa::best(), extras) }
    }

    /// Passes `count` packets to the measurements: wanted packets one by one, the rest as a whole.
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
            let _ = intake.take(&frames.part(places), &mut **crew);
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

    fn outage(&mut self, outage: Option<&str>) {
        for Stream { intake, crew, .. } in &mut self.streams {
            intake.outage(outage, &mut **crew);
        }
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
