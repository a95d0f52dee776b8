//! The state that a table or an array keeps for each key.
//!
//! Every state counts packets and bytes ([`Count`]). [`Distinct`] also counts distinct elements,
//! [`Ewma`] forecasts, [`Detailed`] records when and how a flow was seen, and [`Loaded`] has a
//! payload that a program defines. Tables and arrays are generic over the state, so they pay only
//! for what they keep.

mod detailed;
mod distinct;
mod ewma;

use bytemuck::Zeroable;

use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::{
    BuildError, BuildErrorKind, Counted, Counter, Form, Info, Laws, Options, Parameter, Parameters,
    Seen, Setting,
};
use crate::terms::{Measure, Size};

pub(crate) use detailed::Detailed;
pub(crate) use distinct::Distinct;
pub(crate) use ewma::{Ewma, Past};

/// The state of a key. All zero is the state before the first packet.
pub(crate) trait State: Copy + Zeroable + Send + 'static {
    /// The value of the parameter `state`.
    const NAME: &'static str;
    /// Whether it reads the elements of packets: the peers of addresses.
    const ELEMENTS: bool = false;
    /// Whether it reads the times of packets, and their details as elements.
    const DETAILS: bool = false;
    /// Whether it outlives the epoch.
    const LASTING: bool = false;
    /// Bytes of the stored form.
    const STORED_BYTES: usize;

    /// Records the time of packets, before [`Self::add`] counts them; called only for states with
    /// [details](Self::DETAILS).
    #[inline(always)]
    fn see(&mut self, time_ns: i64) {
        let _ = time_ns;
    }
    /// Counts packets; returns the excess that full counters could not take.
    fn add(&mut self, packets: u32, bytes: u64, element: u64) -> Size;
    /// Adds another summary's state of the same key; returns the excess as [`Self::add`] does.
    fn merge(&mut self, other: &Self) -> Size;
    /// Packets and bytes in the epoch.
    fn size(&self) -> Size;
    fn save(&self, out: &mut Writer);
    fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError>;
    /// As [`Self::save`], in as few bytes as the numbers need where many states are stored.
    #[inline(always)]
    fn save_short(&self, out: &mut Writer) {
        self.save(out);
    }
    /// Reads what [`Self::save_short`] wrote.
    #[inline(always)]
    fn load_short(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::load(from)
    }

    /// Whether the key has no packet in the epoch.
    #[inline(always)]
    fn is_silent(&self) -> bool {
        self.size().packets == 0
    }
    /// Whether the state equals that before the first packet.
    #[inline(always)]
    fn is_nothing(&self) -> bool {
        self.is_silent()
    }
    /// Begins an epoch; returns whether anything is left.
    fn next_epoch(&mut self, past: &Past) -> bool {
        let _ = past;
        false
    }
    /// Whether the state's weight exceeds `limit`: its size in this measure, its forecast, or its
    /// number of distinct elements.
    #[inline(always)]
    fn outweighs(&self, limit: f64, by: Measure) -> bool {
        // For integers, exceeding the limit and exceeding its integer part are the same.
        self.size().by(by) > limit as u64
    }
    /// The counter of distinct elements.
    fn distinct(&self) -> Option<&Distinct> {
        None
    }
    /// The counter of distinct elements, if it counts more than `spread`.
    #[inline(always)]
    fn distinct_above(&self, spread: u64) -> Option<&Distinct> {
        self.distinct().filter(|distinct| distinct.exceeds(spread))
    }
    /// When and how the flow was seen.
    fn seen(&self) -> Option<Seen> {
        None
    }
    /// The forecast.
    fn ewma(&self) -> Option<&Ewma> {
        None
    }
}

/// Packets and bytes: 12 bytes, aligned to 4 so that a key of 4 bytes and this fill 16.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C, packed(4))]
pub(crate) struct Count {
    bytes: u64,
    packets: u32,
}

impl Count {
    #[inline(always)]
    fn packets(&self) -> u32 {
        self.packets
    }

    /// The count without `other`, which is a part of it.
    fn minus(&self, other: &Self) -> Self {
        let (packets, bytes) = (self.packets, self.bytes);
        Self {
            packets: packets.saturating_sub(other.packets),
            bytes: bytes.saturating_sub(other.bytes),
        }
    }

    /// Reads a stored count, which may be zero.
    fn load_any(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { packets: from.number("packets")?, bytes: from.number("bytes")? })
    }
}

impl State for Count {
    const NAME: &'static str = "counter";
    const STORED_BYTES: usize = size_of::<u32>() + size_of::<u64>();

    #[inline(always)]
    fn add(&mut self, packets: u32, bytes: u64, _: u64) -> Size {
        let (mut all_packets, mut all_bytes) = (self.packets, self.bytes);
        let excess = Size { packets: all_packets.add(packets), bytes: all_bytes.add(bytes) };
        *self = Self { packets: all_packets, bytes: all_bytes };
        excess
    }

    fn merge(&mut self, other: &Self) -> Size {
        self.add(other.packets, other.bytes, 0)
    }

    #[inline(always)]
    fn size(&self) -> Size {
        Size { packets: u64::from(self.packets), bytes: self.bytes }
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.packets);
        out.number(self.bytes);
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = Self::load_any(from)?;
        if count.packets() == 0 {
            return Err(from.invalid("packets", Self::STORED_BYTES, "a flow has at least one"));
        }
        Ok(count)
    }

    #[inline(never)]
    fn save_short(&self, out: &mut Writer) {
        out.short(self.packets.into());
        out.short(self.bytes);
    }

    #[inline(never)]
    fn load_short(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if from.has_wide_counts() {
            return Self::load(from);
        }
        let packets = u32::try_from(from.short("packets")?).unwrap_or(0);
        if packets == 0 {
            return Err(from.invalid("packets", 1, "a flow has 1 to 4294967295"));
        }
        Ok(Self { packets, bytes: from.short("bytes")? })
    }
}

/// More state that a program keeps for each flow of an exact table, to measure what larger entries
/// cost (Simple, §4.1). The answers and the stored form of the table do not contain it.
///
/// [`LinearTable::with_payload`](crate::summary::table::LinearTable::with_payload) has an example.
pub trait Payload: Copy + Zeroable + Send + 'static {
    /// Updates the payload of a flow whose size has changed to `size`.
    fn update(&mut self, size: Size);
}

/// A counter with a payload.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
pub(crate) struct Loaded<P> {
    count: Count,
    payload: P,
}

impl<P: Payload> Loaded<P> {
    /// A stored counter, with a payload that saw nothing before.
    fn of(count: Count) -> Self {
        let mut payload = P::zeroed();
        payload.update(count.size());
        Self { count, payload }
    }
}

impl<P: Payload> State for Loaded<P> {
    const NAME: &'static str = Count::NAME;
    const STORED_BYTES: usize = Count::STORED_BYTES;

    #[inline(always)]
    fn add(&mut self, packets: u32, bytes: u64, element: u64) -> Size {
        let excess = self.count.add(packets, bytes, element);
        self.payload.update(self.count.size());
        excess
    }

    fn merge(&mut self, other: &Self) -> Size {
        let excess = self.count.merge(&other.count);
        self.payload.update(self.count.size());
        excess
    }

    #[inline(always)]
    fn size(&self) -> Size {
        self.count.size()
    }

    fn save(&self, out: &mut Writer) {
        self.count.save(out);
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self::of(Count::load(from)?))
    }

    fn save_short(&self, out: &mut Writer) {
        self.count.save_short(out);
    }

    fn load_short(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self::of(Count::load_short(from)?))
    }
}

/// The parameter `state` of arrays.
pub(crate) const ARRAY_STATE: Parameter = Parameter {
    name: "state",
    help: "state of each column: counter, distinct (a Bloom filter of 1024 bits that counts the \
           address's peers), or ewma (a forecast) (default: counter)",
};
/// The parameter `state` of tables.
pub(crate) const STATE: Parameter = Parameter {
    name: "state",
    help: "state of each key: counter, distinct (a Bloom filter of 1024 bits that counts the \
           address's peers), ewma (a forecast), or detail (first and last packet, TCP flags, \
           packets that came back) (default: counter)",
};

/// What a table answers, depending on its state.
pub(crate) const TABLE_FORMS: &[Form] = &[
    form![Flows, Size(Counted::Both), Candidates],
    form![state = "distinct"; Flows, Size(Counted::Both), Candidates, Spread],
    form![state = "ewma"; Flows, Size(Counted::Both), Candidates, Forecasts],
    form![state = "detail"; Flows, Size(Counted::Both), Candidates, Details],
];

/// A state, as the parameters name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Distinct,
    Ewma,
    Detail,
}

impl Kind {
    /// The states of tables.
    pub(crate) const OF_TABLES: [&str; 4] = ["counter", "distinct", "ewma", "detail"];
    /// The states of arrays.
    pub(crate) const OF_ARRAYS: [&str; 3] = ["counter", "distinct", "ewma"];

    /// Checks that the state of the parameters, one of `states`, suits the length of the keys.
    pub(crate) fn fits(
        algorithm: &'static str,
        states: &[&'static str],
        options: &Options,
    ) -> Result<(), BuildError> {
        let key_bytes = options.digester.key_bytes();
        let reason = match options.parameters.word("state", states)? {
            "distinct" if !matches!(key_bytes, 4 | 16) => {
                "state=distinct counts the peers of an address; use --key source or destination"
                    .to_owned()
            }
            "distinct" if options.spread > Distinct::MOST_SPREAD => format!(
                "the 1024 bits of state=distinct cannot count more than {} peers; lower \
                 --spread, or use --algorithm two-level",
                Distinct::MOST_SPREAD
            ),
            _ => return Ok(()),
        };
        Err(BuildErrorKind::Unfit { algorithm, reason }.into())
    }

    /// The state that the parameter `state` asks for, one of `states`.
    pub(crate) fn from_options(
        algorithm: &'static str,
        states: &[&'static str],
        options: &Options,
    ) -> Result<Self, BuildError> {
        Self::fits(algorithm, states, options)?;
        Ok(match options.parameters.word("state", states)? {
            "distinct" => Self::Distinct,
            "ewma" => Self::Ewma,
            "detail" => Self::Detail,
            _ => Self::Counter,
        })
    }

    /// The options for keys of type `K` of a table with a payload, whose state is a counter.
    pub(crate) fn of_payload<K: FlowKey>(
        info: &Info,
        options: &Options,
    ) -> Result<Options, BuildError> {
        options.parameters.check(info.name, info.parameters)?;
        let options = options.digesting::<K>();
        Self::from_options(info.name, &Self::OF_TABLES[..1], &options)?;
        Ok(options)
    }
}

/// Which states a key type can have; no others are compiled.
pub(crate) trait States: FlowKey {
    /// Whether a key can be a single address, whose peers are counted.
    const DISTINCT: bool = matches!(Self::BYTES, 8 | 16);
}

impl<K: FlowKey> States for K {}

/// Evaluates `$build` with `$state` as an alias of the state type that `$kind` names.
/// [`Kind::from_options`] has checked that keys of type `$key` can have it.
macro_rules! with_state {
    ($key:ty, $kind:expr, $state:ident => $build:expr) => {{
        use $crate::summary::state::{Count, Detailed, Distinct, Ewma, States};
        macro_rules! build {
            ($type:ty) => {{
                type $state = $type;
                $build
            }};
        }
        match $kind {
            Kind::Counter => build!(Count),
            Kind::Ewma => build!(Ewma),
            Kind::Detail => build!(Detailed),
            Kind::Distinct if const { <$key as States>::DISTINCT } => build!(Distinct),
            Kind::Distinct => unreachable!("such keys have no such state"),
        }
    }};
}
pub(crate) use with_state;

/// The `laws` of a summary with the state of these parameters: an update that sums up several
/// packets has lost their elements and times.
pub(crate) fn laws(laws: Laws, parameters: &Parameters) -> Laws {
    let state = parameters.get(STATE.name);
    let each = matches!(state, Some(Distinct::NAME | Detailed::NAME));
    Laws { aggregatable: laws.aggregatable && !each, ..laws }
}

/// The parameters that ask for the state `S`; none for the default.
pub(crate) fn parameters<S: State>() -> impl Iterator<Item = (&'static str, Setting)> {
    (S::NAME != Count::NAME).then_some((STATE.name, Setting::Word(S::NAME))).into_iter()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;

    /// The size that the payload saw last.
    #[derive(Clone, Copy, Zeroable)]
    struct Latest([u64; 2]);

    impl Payload for Latest {
        fn update(&mut self, size: Size) {
            self.0 = [size.packets, size.bytes];
        }
    }

    #[test]
    fn a_payload_follows_the_size() {
        let mut loaded = Loaded::<Latest>::zeroed();
        assert_eq!(loaded.add(2, 3000, 0), Size::default());
        assert_eq!(loaded.payload.0, [2, 3000]);
        let other = loaded;
        assert_eq!(loaded.merge(&other), Size::default());
        assert_eq!(loaded.payload.0, [4, 6000]);
        let mut out = Writer::default();
        loaded.save(&mut out);
        let bytes = out.into_bytes();
        assert_eq!(bytes.len(), Loaded::<Latest>::STORED_BYTES);
        let read = Loaded::<Latest>::load(&mut Reader::new(&bytes)).unwrap();
        assert_eq!((read.size(), read.payload.0), (loaded.size(), [4, 6000]));
    }
}
