//! Sources of packets: one per queue, which lends out frames a burst at a time.
//!
//! A source holds frames in memory: a window over a file, a ring that the kernel fills, the buffers
//! of a driver. It neither parses nor copies them.

use std::error::Error;

use arrayvec::ArrayVec;
use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::packet::{Captured, Column, Frame, Frames, LinkType};

/// Up to 256 frames in order of arrival, each a slice of its source's memory.
///
/// ```
/// use flowgauge_core::packet::{Captured, Column, Frame, Frames, LinkType};
/// use flowgauge_engine::source::{Burst, Columns};
///
/// let mut columns = Columns::default();
/// let mut burst = Burst::new(&mut columns);
/// burst.push(Frame { bytes: &[0; 60], wire: 1514, link: LinkType::ETHERNET, time_ns: 7 });
/// burst.snap(14);
/// assert_eq!((burst.len(), burst.room()), (1, 255));
/// assert_eq!(burst.frames().iter().map(|frame| frame.bytes.len()).sum::<usize>(), 14);
///
/// let captured = [Captured::from(&[0; 96][..])];
/// let mut columns = Columns::default();
/// let mut burst = Burst::new(&mut columns);
/// let (link, time_ns) = (Column::Same(LinkType::ETHERNET), Column::Same(9));
/// burst.arrive(Frames::new(&captured, &[1514], link, time_ns));
/// assert_eq!(burst.frames().at(0).bytes.len(), 96);
/// assert_eq!(burst.frames().at(0).time_ns, 9);
/// ```
pub struct Burst<'a> {
    bytes: ArrayVec<Captured<'a>, BATCH_PACKETS>,
    columns: &'a mut Columns,
    /// What a driver handed over at once, instead of frames pushed one by one.
    arrived: Option<Frames<'a>>,
    thinned: Option<Thinned>,
}

/// How packets were sampled before the source got them. The source lends out each sampled packet as
/// many times as the number of packets it represents.
///
/// ```
/// use flowgauge_engine::source::Thinned;
///
/// let one = Thinned { one_in: 100, longest: 1500 };
/// let other = Thinned { one_in: 1000, longest: 64 };
/// assert_eq!(one.and(other).one_in, 1000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thinned {
    /// Most packets represented by one sampled packet.
    pub one_in: u64,
    /// Bytes of the longest packet on the wire.
    pub longest: u32,
}

impl Thinned {
    /// The maximum of each field.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let (one_in, longest) = (self.one_in.max(other.one_in), self.longest.max(other.longest));
        Self { one_in, longest }
    }
}

/// Lengths, link types and times of a burst. Successive bursts use the same columns, so they are
/// cleared only once.
pub struct Columns {
    wires: [u32; BATCH_PACKETS],
    links: [LinkType; BATCH_PACKETS],
    times_ns: [i64; BATCH_PACKETS],
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            wires: [0; BATCH_PACKETS],
            links: [LinkType::ETHERNET; BATCH_PACKETS],
            times_ns: [0; BATCH_PACKETS],
        }
    }
}

impl<'a> Burst<'a> {
    /// An empty burst.
    pub fn new(columns: &'a mut Columns) -> Self {
        Self { bytes: ArrayVec::new(), columns, arrived: None, thinned: None }
    }

    /// Marks its packets as represented by a sample.
    pub fn thin(&mut self, thinned: Thinned) {
        self.thinned = Some(self.thinned.map_or(thinned, |own| own.and(thinned)));
    }

    /// How its packets were sampled; `None` if they were not.
    pub fn thinned(&self) -> Option<Thinned> {
        self.thinned
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.arrived.map_or(self.bytes.len(), Frames::len)
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of frames that still fit.
    #[inline(always)]
    pub fn room(&self) -> usize {
        self.bytes.remaining_capacity()
    }

    /// The frames.
    ///
    /// # Panics
    /// When frames were added to those that [arrived](Self::arrive) together.
    #[inline]
    pub fn frames(&self) -> Frames<'_> {
        if let Some(arrived) = self.arrived {
            assert!(self.bytes.is_empty(), "frames were added to those that arrived together");
            return arrived;
        }
        let (Columns { wires, links, times_ns }, len) = (&*self.columns, self.bytes.len());
        let (links, times_ns) = (Column::Each(&links[..len]), Column::Each(&times_ns[..len]));
        Frames::new(&self.bytes, &wires[..len], links, times_ns)
    }

    /// Adds a frame.
    ///
    /// # Panics
    /// When the burst is full.
    #[inline(always)]
    pub fn push(&mut self, frame: Frame<'a>) {
        let at = self.bytes.len();
        self.bytes.push(frame.bytes.into());
        self.columns.wires[at] = frame.wire;
        self.columns.links[at] = frame.link;
        self.columns.times_ns[at] = frame.time_ns;
    }

    /// Adds a frame several times.
    ///
    /// # Panics
    /// When the burst would have too many frames.
    #[inline]
    pub fn repeat(&mut self, frame: Frame<'a>, times: usize) {
        let first = self.bytes.len();
        self.bytes.extend(std::iter::repeat_n(frame.bytes.into(), times));
        let places = first..first + times;
        self.columns.wires[places.clone()].fill(frame.wire);
        self.columns.links[places.clone()].fill(frame.link);
        self.columns.times_ns[places].fill(frame.time_ns);
    }

    /// Keeps at most the first `most` captured bytes of each frame.
    pub fn snap(&mut self, most: usize) {
        if let Some(arrived) = self.arrived.take() {
            self.extend(arrived.iter());
        }
        for captured in &mut self.bytes {
            let bytes = captured.bytes();
            *captured = bytes[..bytes.len().min(most)].into();
        }
    }

    /// Fills an empty burst with frames that a driver handed over at once.
    ///
    /// # Panics
    /// When the burst is not empty, or the frames do not fit.
    #[inline(always)]
    pub fn arrive(&mut self, frames: Frames<'a>) {
        assert!(self.is_empty(), "the burst has frames already");
        assert!(frames.len() <= BATCH_PACKETS, "the frames do not fit");
        self.arrived = Some(frames);
    }
}

impl<'a> Extend<Frame<'a>> for Burst<'a> {
    #[inline]
    fn extend<T: IntoIterator<Item = Frame<'a>>>(&mut self, frames: T) {
        frames.into_iter().for_each(|frame| self.push(frame));
    }
}

/// A queue of packets.
///
/// ```
/// use flowgauge_core::packet::{Frame, LinkType};
/// use flowgauge_engine::source::{Burst, Columns, Source, SourceError};
///
/// struct Repeat { frame: [u8; 60], left: usize }
/// impl Source for Repeat {
///     fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
///         let frame = Frame { bytes: &self.frame, wire: 60, link: LinkType::ETHERNET, time_ns: 0 };
///         burst.extend(vec![frame; self.left.min(burst.room())]);
///         self.left -= burst.len();
///         Ok(burst.len() > 0)
///     }
/// }
/// let (mut source, mut columns) = (Repeat { frame: [0; 60], left: 100 }, Columns::default());
/// let mut burst = Burst::new(&mut columns);
/// assert_eq!((source.poll(&mut burst)?, burst.len()), (true, 100));
/// # Ok::<(), SourceError>(())
/// ```
pub trait Source {
    /// Adds the next frames to an empty `burst`. Returns `false` at the end, with no frame. A
    /// source that waits for packets returns after a while without any, so its caller sees time
    /// pass.
    ///
    /// # Errors
    /// When the input is damaged or cannot be read. All frames before that place have been lent
    /// out. The next call continues after it, with the next input if there is one.
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError>;

    /// Passes over the next packets without lending them out, within `ahead` and only while it
    /// costs next to nothing: a file looks at the headers of records in memory. The default passes
    /// over none; the meter then passes over frames that were lent out.
    fn skip(&mut self, ahead: &Ahead) -> Skipped {
        Skipped::none(ahead)
    }

    /// As [`Self::skip`], but also continues past wanted packets, which the next [`Self::poll`]
    /// lends out alone. There is one after each of these gaps; the first gap is the one in `ahead`.
    /// The default passes over the first gap only.
    fn pick(&mut self, ahead: &Ahead, gaps: &[u64]) -> Skipped {
        let _ = gaps;
        self.skip(ahead)
    }

    /// The names of the inputs opened so far, in order, such as files or an interface.
    fn inputs(&self) -> &[String] {
        &[]
    }

    /// The counters so far. Costs next to nothing.
    fn counters(&self) -> &[Counter] {
        &[]
    }

    /// Bytes read and bytes in all. Costs next to nothing.
    fn progress(&self) -> Progress {
        Progress::default()
    }

    /// A time, in nanoseconds since the UNIX epoch, before which no more packets will come: the
    /// wall clock of a source that waits for packets. `None` if only packets carry a time, as in a
    /// file. Costs at most reading a clock.
    fn clock_ns(&self) -> Option<i64> {
        None
    }

    /// Why packets pass unseen at present, such as an interface that is down; `None` if none do. The
    /// report of each epoch in which it lasts has it as a note, and so has that of the run.
    fn outage(&self) -> Option<&str> {
        None
    }

    /// A note for the open epoch's report. Each note is returned once; `None` if there are no more.
    fn note(&mut self) -> Option<String> {
        None
    }
}

/// The next packets, if the meter surely does not want them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Number of packets, from the next one on.
    pub packets: u64,
    /// The time of the previous packet, in nanoseconds since the UNIX epoch. A packet older than
    /// its predecessor ends the run of unwanted packets.
    pub from_ns: i64,
    /// The latest time of an unwanted packet. A younger packet ends the run.
    pub until_ns: i64,
}

/// Packets that a source passed over.
///
/// ```
/// use flowgauge_engine::source::{Ahead, Skipped};
///
/// let ahead = Ahead { packets: 10, from_ns: 0, until_ns: 100 };
/// let mut skipped = Skipped::none(&ahead);
/// assert!(skipped.take(&ahead, 60, 50));
/// assert!(!skipped.take(&ahead, 60, 101), "the packet is too late");
/// assert_eq!((skipped.packets, skipped.bytes), (1, 60));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Number of packets passed over.
    pub packets: u64,
    /// Number of wanted packets among them, which will come next.
    pub picked: usize,
    /// Bytes on the wire of both.
    pub bytes: u64,
    /// Time of the last of them.
    pub last_ns: i64,
}

impl Skipped {
    /// No packet yet.
    pub fn none(ahead: &Ahead) -> Self {
        Self { packets: 0, picked: 0, bytes: 0, last_ns: ahead.from_ns }
    }

    /// Counts the next packet if it is within `ahead`; returns whether it is.
    #[inline(always)]
    pub fn take(&mut self, ahead: &Ahead, wire: u32, time_ns: i64) -> bool {
        let taken =
            self.packets < ahead.packets && time_ns >= self.last_ns && time_ns <= ahead.until_ns;
        if taken {
            self.packets += 1;
            self.bytes += u64::from(wire);
            self.last_ns = time_ns;
        }
        taken
    }
}

/// A counter of a source.
///
/// ```
/// use flowgauge_engine::source::{Counter, CounterKind};
///
/// let received = Counter { count: 7, ..Counter::new("received", CounterKind::Other) };
/// let lost = Counter { count: 2, ..Counter::new("lost", CounterKind::Lost) };
/// let mut sums = vec![received];
/// Counter::add(&mut sums, &[lost, received]);
/// assert_eq!(Counter::sum(&sums, CounterKind::Lost), 2);
/// assert_eq!(sums[0].count, 14);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its name, in lower case with underscores.
    pub name: &'static str,
    /// What it counts.
    pub kind: CounterKind,
    /// The count so far.
    pub count: u64,
}

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// Packets lost before the source could lend them out: by the kernel, its ring or a driver.
    Lost,
    /// Records that were lent out although their lengths contradict each other.
    Irregular,
    /// Anything else.
    Other,
}

impl Counter {
    /// A counter at 0.
    pub const fn new(name: &'static str, kind: CounterKind) -> Self {
        Self { name, kind, count: 0 }
    }

    /// The sum of the counters of one kind.
    pub fn sum(counters: &[Self], kind: CounterKind) -> u64 {
        counters.iter().filter(|counter| counter.kind == kind).map(|counter| counter.count).sum()
    }

    /// Adds the counters of another source to `sums`, by name.
    pub fn add(sums: &mut Vec<Self>, counters: &[Self]) {
        for counter in counters {
            match sums.iter_mut().find(|sum| sum.name == counter.name) {
                Some(sum) => sum.count += counter.count,
                None => sums.push(*counter),
            }
        }
    }
}

/// What a source reports about its inputs.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    pub(crate) inputs: Vec<String>,
    pub(crate) counters: Vec<Counter>,
}

impl Origin {
    pub(crate) fn of(source: &dyn Source) -> Self {
        Self { inputs: source.inputs().to_vec(), counters: source.counters().to_vec() }
    }
}

/// How much of the input was read. Compressed input counts in compressed bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read. An input that was abandoned early counts in full.
    pub read: u64,
    /// Bytes of all inputs; `None` if unknown.
    pub total: Option<u64>,
}

/// Why a source cannot continue. The text names the input and is shown to the user as it is.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// An input is damaged or ends too early.
    #[error(transparent)]
    Damaged(Box<dyn Error + Send + Sync>),
    /// An input could not be opened: it does not exist, or has another format.
    #[error(transparent)]
    Unreadable(Box<dyn Error + Send + Sync>),
    /// A device or the operating system delivers no more packets.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}

/// Inputs that can be read one after another, or several at a time.
pub trait Inputs {
    /// All inputs as one source.
    fn chain(&self) -> Box<dyn Chunks + Send>;

    /// Divides the inputs among `readers`; each reader reads its pieces in order. `None` if
    /// dividing does not pay, or an input cannot be read twice. If all pieces are read without an
    /// error, they give what [`chain`](Self::chain) gives. Otherwise the result must be discarded.
    fn divide(&self, readers: usize) -> Option<Vec<Vec<Piece>>>;

    /// Whether reading was stopped before the end of the inputs. The packets read so far still count.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// All or a part of an input, for one of several readers.
pub struct Piece {
    /// The number of its input, from 0. Pieces of the same input are in the order of their readers.
    pub input: usize,
    /// Its packets.
    pub source: Box<dyn Source + Send>,
}

/// A chunk of packets that one thread reads and another one measures. Its memory moves between
/// threads with it and is reused.
///
/// ```
/// use flowgauge_capture::Captures;
/// use flowgauge_engine::source::{Chunk, Chunks};
/// use flowgauge_synthetic::{Traffic, to_pcap_bytes};
///
/// let traffic = flowgauge_synthetic::Config { packets: 1_000, ..Default::default() };
/// let capture = to_pcap_bytes(Traffic::new(traffic)?);
/// let mut source = Captures::from_bytes("synthetic.pcap", capture);
/// let mut chunk = Chunk::default();
/// let mut packets = 0;
/// while source.read(&mut chunk)? {
///     packets += chunk.frames().count();
/// }
/// assert_eq!(packets, 1_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Chunk {
    memory: Vec<u8>,
    places: Vec<Place>,
}

/// A packet in the memory of its chunk.
#[derive(Clone, Copy, Debug)]
struct Place {
    begin: u32,
    captured: u32,
    wire: u32,
    link: LinkType,
    time_ns: i64,
}

/// A source that is read in chunks: one thread reads a chunk while another one measures the
/// previous chunk.
pub trait Chunks: Source {
    /// Replaces the contents of `chunk` by the next packets, about 256 KiB of them. Returns `false`
    /// at the end, with no packet. May be called instead of [`Source::poll`] throughout.
    ///
    /// # Errors
    /// As [`Source::poll`]: all packets before that place have been in a chunk.
    fn read(&mut self, chunk: &mut Chunk) -> Result<bool, SourceError>;
}

impl Chunk {
    /// Removes the packets, and keeps the memory.
    pub fn clear(&mut self) {
        self.places.clear();
    }

    /// The memory into which the source puts the bytes of packets.
    pub fn memory(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }

    /// Adds frames whose bytes are slices of `bytes`, which will be at the beginning of the memory.
    ///
    /// # Panics
    /// When the bytes of a frame lie elsewhere.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8], frames: Frames<'_>) {
        let base = bytes.as_ptr().addr();
        let place = |frame: Frame<'_>| {
            let begin = frame.bytes.as_ptr().addr().wrapping_sub(base);
            assert!(begin <= bytes.len(), "a frame of other bytes");
            let (begin, captured) = (begin as u32, frame.bytes.len() as u32);
            Place { begin, captured, wire: frame.wire, link: frame.link, time_ns: frame.time_ns }
        };
        self.places.extend(frames.iter().map(place));
    }

    /// Keeps at most the first `most` captured bytes of each packet.
    pub fn snap(&mut self, most: usize) {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        for place in &mut self.places {
            place.captured = place.captured.min(most);
        }
    }

    /// The packets in order.
    #[inline]
    pub fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        self.places.iter().map(|place| {
            let &Place { begin, captured, wire, link, time_ns } = place;
            let bytes = &self.memory[begin as usize..][..captured as usize];
            Frame { bytes, wire, link, time_ns }
        })
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The time of the last packet.
    pub fn last_ns(&self) -> Option<i64> {
        self.places.last().map(|place| place.time_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst that a driver hands over at once, of so many frames of 60 captured bytes.
    fn hand_over(frames: usize, see: impl FnOnce(&mut Burst<'_>)) {
        let (captured, wires) = (vec![Captured::from(&[0; 60][..]); frames], vec![1514; frames]);
        let (link, time_ns) = (Column::Same(LinkType::ETHERNET), Column::Same(9));
        let mut columns = Columns::default();
        let mut burst = Burst::new(&mut columns);
        burst.arrive(Frames::new(&captured, &wires, link, time_ns));
        see(&mut burst);
    }

    #[test]
    fn frames_that_arrived_together_are_snapped() {
        hand_over(BATCH_PACKETS, |burst| {
            burst.snap(14);
            assert_eq!((burst.len(), burst.room()), (BATCH_PACKETS, 0));
            for frame in burst.frames().iter() {
                assert_eq!((frame.bytes.len(), frame.wire, frame.time_ns), (14, 1514, 9));
            }
        });
    }

    #[test]
    #[should_panic(expected = "the frames do not fit")]
    fn more_frames_than_fit_are_refused() {
        hand_over(BATCH_PACKETS + 1, |_| ());
    }

    #[test]
    #[should_panic(expected = "frames were added to those that arrived together")]
    fn frames_that_arrived_together_stay_alone() {
        hand_over(1, |burst| {
            burst.push(Frame { bytes: &[], wire: 0, link: LinkType::ETHERNET, time_ns: 0 });
            burst.frames();
        });
    }
}
