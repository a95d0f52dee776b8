//! The state that a table or an array keeps for each key.
//!
//! Every state counts packets and bytes ([`Count`]). [`Distinct`] also counts distinct elements,
//! [`Ewma`] forecasts, [`Detailed`] records when and how a flow was seen, and [`Padded`] only takes
//! more bytes. Tables and arrays are generic over the state, so they pay only for what they keep.

mod detailed;
mod distinct;
mod ewma;

use bytemuck::Zeroable;

use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::{
    BuildError, BuildErrorKind, Counted, Counter, Form, Laws, Options, Parameter, Parameters, Seen,
    Setting,
};
use crate::terms::{Measure, Size};

pub(crate) use detailed::Detailed;
pub(crate) use distinct::Distinct;
pub(crate) use ewma::{Ewma, Past};

/// The state of a key. All zero is the state before the first packet.
pub(crate) trait State: Copy + Zeroable + Send + 'static {
    /// The value of the parameter `state`.
    const NAME: &'static str;
    /// The value of the parameter `padding`.
    const PADDING: Option<&'static str> = None;
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
    packets: u32,
    bytes: u64,
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
}

/// A counter with `4 × WORDS` bytes of padding, for the experiment on the size of entries (Simple,
/// §4.1).
///
/// The paper fills the padding with the first bytes of the latest packet. Here each packet fills it
/// with the number of packets: the same stores, but independent of the order of packets. It carries
/// no information, so it is not in the stored form.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
pub(crate) struct Padded<const WORDS: usize> {
    count: Count,
    padding: [u32; WORDS],
}

impl<const WORDS: usize> Padded<WORDS> {
    #[inline(always)]
    fn of(count: Count) -> Self {
        Self { count, padding: [count.packets(); WORDS] }
    }
}

impl<const WORDS: usize> State for Padded<WORDS> {
    const NAME: &'static str = "padded";
    const PADDING: Option<&'static str> = match WORDS {
        3 => Some("12"),
        7 => Some("28"),
        15 => Some("60"),
        _ => panic!("no parameter says so"),
    };
    const STORED_BYTES: usize = Count::STORED_BYTES;

    #[inline(always)]
    fn add(&mut self, packets: u32, bytes: u64, element: u64) -> Size {
        let mut count = self.count;
        let excess = count.add(packets, bytes, element);
        *self = Self::of(count);
        excess
    }

    fn merge(&mut self, other: &Self) -> Size {
        let excess = self.count.merge(&other.count);
        *self = Self::of(self.count);
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
    help: "state of each key: counter, padded, distinct (a Bloom filter of 1024 bits that counts \
           the address's peers), ewma (a forecast), or detail (first and last packet, TCP flags, \
           packets that came back) (default: counter)",
};
/// The parameter `padding` of tables.
pub(crate) const PADDING: Parameter = Parameter {
    name: "padding",
    help: "bytes that state=padded adds to a counter: 12, 28 or 60 (default: 12)",
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
    Padded12,
    Padded28,
    Padded60,
    Distinct,
    Ewma,
    Detail,
}

impl Kind {
    /// The states of tables.
    pub(crate) const OF_TABLES: [&str; 5] = ["counter", "padded", "distinct", "ewma", "detail"];
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
            "padded" if key_bytes != 8 => {
                "state=padded is for the key pair of IPv4 addresses; use --key pair".to_owned()
            }
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

    /// The state that the parameters `state` and `padding` ask for, one of `states`.
    pub(crate) fn from_options(
        algorithm: &'static str,
        states: &[&'static str],
        options: &Options,
    ) -> Result<Self, BuildError> {
        let parameters = &options.parameters;
        let state = parameters.word("state", states)?;
        let padding = parameters.word("padding", &["12", "28", "60"])?;
        if let Some(value) = parameters.get("padding").filter(|_| state != "padded") {
            return Err(BuildErrorKind::OutOfRange {
                name: "padding",
                value: value.to_owned(),
                range: "supported without state=padded".to_owned(),
            }
            .into());
        }
        Self::fits(algorithm, states, options)?;
        Ok(match (state, padding) {
            ("distinct", _) => Self::Distinct,
            ("ewma", _) => Self::Ewma,
            ("detail", _) => Self::Detail,
            ("padded", "12") => Self::Padded12,
            ("padded", "28") => Self::Padded28,
            ("padded", _) => Self::Padded60,
            _ => Self::Counter,
        })
    }
}

/// Which states a key type can have; no others are compiled.
pub(crate) trait States: FlowKey {
    /// Whether a key can be a single address, whose peers are counted.
    const DISTINCT: bool = matches!(Self::BYTES, 4 | 16);
    /// Whether experiments on the size of entries use such keys.
    const PADDED: bool = Self::BYTES == 8;
}

impl<K: FlowKey> States for K {}

/// Evaluates `$build` with `$state` as an alias of the state type that `$kind` names.
/// [`Kind::from_options`] has checked that keys of type `$key` can have it.
macro_rules! with_state {
    ($key:ty, $kind:expr, $state:ident => $build:expr) => {{
        use $crate::summary::state::{Count, Detailed, Distinct, Ewma, Padded, States};
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
            Kind::Padded12 if const { <$key as States>::PADDED } => build!(Padded<3>),
            Kind::Padded28 if const { <$key as States>::PADDED } => build!(Padded<7>),
            Kind::Padded60 if const { <$key as States>::PADDED } => build!(Padded<15>),
            _ => unreachable!("such keys have no such state"),
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
    let state = (S::NAME != Count::NAME).then_some((STATE.name, Setting::Word(S::NAME)));
    let padding = S::PADDING.map(|padding| (PADDING.name, Setting::Word(padding)));
    state.into_iter().chain(padding)
}
