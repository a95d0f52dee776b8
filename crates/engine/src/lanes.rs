//! Headers to keys to batches to summaries, one lane for each key type.
//!
//! Keys with addresses have a lane for IPv4 and one for IPv6, so that an IPv4 key stays small;
//! keys without share one lane, since IPv4 and IPv6 have the same protocols and ports.

use flowgauge_core::batch::Batch;
use flowgauge_core::key::{Element, Extract, FlowKey, Key4, KeySpec};
use flowgauge_core::packet::{Headers, Ip, Malformed, NoKey};
use flowgauge_core::summary::{Ingest, Setting, Size};
use flowgauge_core::task::{self, SpreadOf};
use flowgauge_kernel::Digester;

/// Why a packet has no key.
pub(crate) enum Keyless {
    NoKey(NoKey),
    Malformed(Malformed),
}

/// All lanes of a run.
pub(crate) trait Lanes {
    /// Puts a packet into its lane.
    fn push(&mut self, headers: &Headers, wire: u32, time_ns: i64) -> Result<(), Keyless>;
    /// Hands all batches to their summaries, and settles these.
    fn settle(&mut self);
    /// Keyed packets and bytes since the last [`Self::next_epoch`], up to the last [`Self::settle`].
    fn keyed(&self) -> Size;
    /// Those of them that no lane takes.
    fn unmeasured(&self) -> Size {
        Size::default()
    }
    /// What the tasks read.
    fn views(&self) -> Vec<task::Lane<'_>>;
    /// Begins a new epoch.
    fn next_epoch(&mut self);
    /// Bytes reserved by each lane's summary.
    fn memory_bytes(&self) -> Vec<usize>;
    /// The parameters in force; those of the IPv6 lane end in `_ipv6`.
    fn parameters(&self) -> Vec<(String, Setting)>;
    /// The accelerators before the summaries, by name; "none" where there is none.
    fn accelerator(&self) -> String;
}

/// One key type on its way: a batch that fills, and the summary that takes it.
pub(crate) struct Lane<K> {
    key: KeySpec,
    mask: K,
    batch: Batch<K>,
    batch_packets: usize,
    summary: Box<dyn Ingest<K>>,
    /// How elements are digested, where the summary wants them.
    elements: Option<(SpreadOf, Digester)>,
    keyed: Size,
}

impl<K: FlowKey> Lane<K> {
    pub(crate) fn new(
        key: KeySpec,
        batch_packets: usize,
        summary: Box<dyn Ingest<K>>,
        spread_of: SpreadOf,
        digester: Digester,
    ) -> Self {
        let (mask, batch) = (key.mask(), Batch::new());
        let elements = summary.wants_elements().then_some((spread_of, digester));
        Self { key, mask, batch, batch_packets, summary, elements, keyed: Size::default() }
    }

    /// Takes a packet with an IP header.
    #[inline(always)]
    fn take<const N: usize>(&mut self, ip: &Ip<N>, wire: u32, time_ns: i64) -> Result<(), Keyless>
    where
        K: Extract<N>,
        Ip<N>: Element,
    {
        let key = K::extract(self.key.kind, ip).map_err(Keyless::Malformed)?;
        match &self.elements {
            None => self.push(key, wire, time_ns),
            Some((of, digester)) => {
                let element = ip.element(self.key.kind, *of, digester);
                let element = element.map_err(Keyless::Malformed)?;
                self.batch.push_with_element(key.masked(self.mask), wire, time_ns, element);
                self.flush_full();
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn push(&mut self, key: K, wire: u32, time_ns: i64) {
        self.batch.push(key.masked(self.mask), wire, time_ns);
        self.flush_full();
    }

    #[inline(always)]
    fn flush_full(&mut self) {
        if self.batch.len() == self.batch_packets {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let (packets, bytes) = (self.batch.len() as u64, self.batch.bytes().iter().sum());
        self.keyed += Size { packets, bytes };
        self.summary.ingest(&mut self.batch);
        self.batch.clear();
    }

    fn settle(&mut self) {
        self.flush();
        self.summary.settle();
    }

    fn parameters(&self, suffix: &str) -> impl Iterator<Item = (String, Setting)> {
        let parameters = self.summary.parameters().into_iter();
        let own = parameters.map(move |(name, value)| (format!("{name}{suffix}"), value));
        let accelerators = self.summary.accelerators().into_iter();
        own.chain(accelerators.flat_map(move |(accelerator, parameters)| {
            let parameters = parameters.into_iter();
            parameters.map(move |(name, value)| (format!("{accelerator}.{name}{suffix}"), value))
        }))
    }

    fn accelerator(&self) -> String {
        let names: Vec<_> = self.summary.accelerators().iter().map(|(name, _)| *name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join("+") }
    }

    fn view(&self) -> task::Lane<'_> {
        task::Lane { key: self.key, key_bytes: K::BYTES, answers: self.summary.answers() }
    }

    fn next_epoch(&mut self) {
        self.summary.next_epoch();
        self.keyed = Size::default();
    }
}

/// IPv4 and IPv6 side by side, or IPv4 alone where the algorithm cannot hold keys of IPv6.
pub(crate) struct TwoLanes<A, B> {
    v4: Lane<A>,
    v6: Option<Lane<B>>,
    /// IPv6 packets and bytes without a lane.
    unmeasured: Size,
}

impl<A, B> TwoLanes<A, B> {
    pub(crate) fn new(v4: Lane<A>, v6: Option<Lane<B>>) -> Self {
        Self { v4, v6, unmeasured: Size::default() }
    }
}

impl<A: FlowKey + Extract<8>, B: FlowKey + Extract<32>> Lanes for TwoLanes<A, B> {
    #[inline(always)]
    fn push(&mut self, headers: &Headers, wire: u32, time_ns: i64) -> Result<(), Keyless> {
        match headers {
            Headers::V4(ip) => self.v4.take(ip, wire, time_ns),
            Headers::V6(ip) => {
                if let Some(v6) = &mut self.v6 {
                    return v6.take(ip, wire, time_ns);
                }
                B::extract(self.v4.key.kind, ip).map_err(Keyless::Malformed)?;
                self.unmeasured += Size { packets: 1, bytes: u64::from(wire) };
                Ok(())
            }
            Headers::NoKey(reason) => Err(Keyless::NoKey(*reason)),
            Headers::Malformed(malformed) => Err(Keyless::Malformed(*malformed)),
        }
    }

    fn settle(&mut self) {
        self.v4.settle();
        if let Some(v6) = &mut self.v6 {
            v6.settle();
        }
    }

    fn keyed(&self) -> Size {
        let v6 = self.v6.as_ref().map_or(self.unmeasured, |v6| v6.keyed);
        self.v4.keyed + v6
    }

    fn unmeasured(&self) -> Size {
        self.unmeasured
    }

    fn views(&self) -> Vec<task::Lane<'_>> {
        let v6 = self.v6.as_ref().map(Lane::view);
        std::iter::once(self.v4.view()).chain(v6).collect()
    }

    fn next_epoch(&mut self) {
        self.v4.next_epoch();
        if let Some(v6) = &mut self.v6 {
            v6.next_epoch();
        }
        self.unmeasured = Size::default();
    }

    fn parameters(&self) -> Vec<(String, Setting)> {
        let v6 = self.v6.as_ref().map(|v6| v6.parameters("_ipv6"));
        self.v4.parameters("").chain(v6.into_iter().flatten()).collect()
    }

    fn accelerator(&self) -> String {
        self.v4.accelerator()
    }

    fn memory_bytes(&self) -> Vec<usize> {
        let v6 = self.v6.as_ref().map(|v6| v6.summary.memory_bytes());
        std::iter::once(self.v4.summary.memory_bytes()).chain(v6).collect()
    }
}

/// One lane for both versions.
pub(crate) struct OneLane {
    pub(crate) lane: Lane<Key4>,
}

impl Lanes for OneLane {
    #[inline(always)]
    fn push(&mut self, headers: &Headers, wire: u32, time_ns: i64) -> Result<(), Keyless> {
        match headers {
            Headers::V4(ip) => self.lane.take(ip, wire, time_ns),
            Headers::V6(ip) => self.lane.take(ip, wire, time_ns),
            Headers::NoKey(reason) => Err(Keyless::NoKey(*reason)),
            Headers::Malformed(malformed) => Err(Keyless::Malformed(*malformed)),
        }
    }

    fn settle(&mut self) {
        self.lane.settle();
    }

    fn keyed(&self) -> Size {
        self.lane.keyed
    }

    fn views(&self) -> Vec<task::Lane<'_>> {
        vec![self.lane.view()]
    }

    fn next_epoch(&mut self) {
        self.lane.next_epoch();
    }

    fn parameters(&self) -> Vec<(String, Setting)> {
        self.lane.parameters("").collect()
    }

    fn accelerator(&self) -> String {
        self.lane.accelerator()
    }

    fn memory_bytes(&self) -> Vec<usize> {
        vec![self.lane.summary.memory_bytes()]
    }
}
