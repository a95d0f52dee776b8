//! Headers to keys to batches, one lane for each key type.
//!
//! Keys with addresses have a lane for IPv4 and one for IPv6, so that an IPv4 key stays small;
//! keys without share one lane, since IPv4 and IPv6 have the same protocols and ports.

use flowgauge_core::batch::Batch;
use flowgauge_core::key::{Element, Extract, FlowKey, Key4, KeySpec};
use flowgauge_core::packet::{Headers, Ip, Malformed, NoKey};
use flowgauge_core::summary::{Ingest, Size};
use flowgauge_core::task::SpreadOf;
use flowgauge_kernel::Digester;

/// Why a packet has no key.
pub(crate) enum Keyless {
    NoKey(NoKey),
    Malformed(Malformed),
}

/// Whoever takes the lanes' batches. A batch is cleared when it was taken.
pub(crate) trait Take<A, B> {
    /// Takes a batch of the first lane.
    fn first(&mut self, batch: &mut Batch<A>);
    /// Takes a batch of the second lane.
    fn second(&mut self, batch: &mut Batch<B>);
}

/// All lanes of a run.
pub(crate) trait Lanes: Clone + Send {
    /// The keys of the first lane.
    type First: FlowKey;
    /// The keys of the second lane, where there is one.
    type Second: FlowKey;
    /// Puts a packet into its lane.
    fn push(
        &mut self,
        headers: &Headers,
        wire: u32,
        time_ns: i64,
        to: &mut impl Take<Self::First, Self::Second>,
    ) -> Result<(), Keyless>;
    /// Passes on the batches that are not full.
    fn flush(&mut self, to: &mut impl Take<Self::First, Self::Second>);
    /// Packets and bytes that have a key, since the last [`Self::forget`] up to the last
    /// [`Self::flush`].
    fn keyed(&self) -> Size;
    /// Those of them that no lane takes.
    fn unmeasured(&self) -> Size {
        Size::default()
    }
    /// Counts from nothing again.
    fn forget(&mut self);
}

/// One key type on its way: a batch that fills.
pub(crate) struct Lane<K> {
    key: KeySpec,
    mask: K,
    batch: Batch<K>,
    batch_packets: usize,
    /// How elements are digested, where the summary wants them.
    elements: Option<(SpreadOf, Digester)>,
    keyed: Size,
}

impl<K: FlowKey> Lane<K> {
    /// A lane for batches of so many packets, with the elements that `summary` wants.
    pub(crate) fn new(
        key: KeySpec,
        batch_packets: usize,
        summary: &dyn Ingest<K>,
        spread_of: SpreadOf,
        digester: Digester,
    ) -> Self {
        let elements = summary.wants_elements().then_some((spread_of, digester));
        let (mask, batch) = (key.mask(), Batch::new());
        Self { key, mask, batch, batch_packets, elements, keyed: Size::default() }
    }

    /// Takes a packet with an IP header; `pass` gets the batch when it is full.
    #[inline(always)]
    fn take<const N: usize>(
        &mut self,
        ip: &Ip<N>,
        wire: u32,
        time_ns: i64,
        pass: impl FnOnce(&mut Batch<K>),
    ) -> Result<(), Keyless>
    where
        K: Extract<N>,
        Ip<N>: Element,
    {
        let key = K::extract(self.key.kind, ip).map_err(Keyless::Malformed)?;
        match &self.elements {
            None => self.batch.push(key.masked(self.mask), wire, time_ns),
            Some((of, digester)) => {
                let element = ip.element(self.key.kind, *of, digester);
                let element = element.map_err(Keyless::Malformed)?;
                self.batch.push_with_element(key.masked(self.mask), wire, time_ns, element);
            }
        }
        if self.batch.len() == self.batch_packets {
            self.flush(pass);
        }
        Ok(())
    }

    fn flush(&mut self, pass: impl FnOnce(&mut Batch<K>)) {
        if !self.batch.is_empty() {
            self.keyed += size(&self.batch);
            pass(&mut self.batch);
            self.batch.clear();
        }
    }
}

impl<K: FlowKey> Clone for Lane<K> {
    /// An empty lane like this one.
    fn clone(&self) -> Self {
        let &Self { key, mask, batch_packets, elements, .. } = self;
        Self { key, mask, batch: Batch::new(), batch_packets, elements, keyed: Size::default() }
    }
}

/// Packets and bytes of a batch of single packets.
pub(crate) fn size<K: FlowKey>(batch: &Batch<K>) -> Size {
    Size { packets: batch.len() as u64, bytes: batch.bytes().iter().sum() }
}

/// IPv4 and IPv6 side by side, or IPv4 alone where the algorithm cannot hold keys of IPv6.
#[derive(Clone)]
pub(crate) struct TwoLanes<A: FlowKey, B: FlowKey> {
    v4: Lane<A>,
    v6: Option<Lane<B>>,
    /// IPv6 packets and bytes without a lane.
    unmeasured: Size,
}

impl<A: FlowKey, B: FlowKey> TwoLanes<A, B> {
    pub(crate) fn new(v4: Lane<A>, v6: Option<Lane<B>>) -> Self {
        Self { v4, v6, unmeasured: Size::default() }
    }
}

impl<A: FlowKey + Extract<8>, B: FlowKey + Extract<32>> Lanes for TwoLanes<A, B> {
    type First = A;
    type Second = B;

    #[inline(always)]
    fn push(
        &mut self,
        headers: &Headers,
        wire: u32,
        time_ns: i64,
        to: &mut impl Take<A, B>,
    ) -> Result<(), Keyless> {
        match headers {
            Headers::V4(ip) => self.v4.take(ip, wire, time_ns, |batch| to.first(batch)),
            Headers::V6(ip) => {
                if let Some(v6) = &mut self.v6 {
                    return v6.take(ip, wire, time_ns, |batch| to.second(batch));
                }
                B::extract(self.v4.key.kind, ip).map_err(Keyless::Malformed)?;
                self.unmeasured += Size { packets: 1, bytes: u64::from(wire) };
                Ok(())
            }
            Headers::NoKey(reason) => Err(Keyless::NoKey(*reason)),
            Headers::Malformed(malformed) => Err(Keyless::Malformed(*malformed)),
        }
    }

    fn flush(&mut self, to: &mut impl Take<A, B>) {
        self.v4.flush(|batch| to.first(batch));
        if let Some(v6) = &mut self.v6 {
            v6.flush(|batch| to.second(batch));
        }
    }

    fn keyed(&self) -> Size {
        let v6 = self.v6.as_ref().map_or(self.unmeasured, |v6| v6.keyed);
        self.v4.keyed + v6
    }

    fn unmeasured(&self) -> Size {
        self.unmeasured
    }

    fn forget(&mut self) {
        self.v4.keyed = Size::default();
        if let Some(v6) = &mut self.v6 {
            v6.keyed = Size::default();
        }
        self.unmeasured = Size::default();
    }
}

/// One lane for both versions.
#[derive(Clone)]
pub(crate) struct OneLane(pub(crate) Lane<Key4>);

impl Lanes for OneLane {
    type First = Key4;
    type Second = Key4;

    #[inline(always)]
    fn push(
        &mut self,
        headers: &Headers,
        wire: u32,
        time_ns: i64,
        to: &mut impl Take<Key4, Key4>,
    ) -> Result<(), Keyless> {
        match headers {
            Headers::V4(ip) => self.0.take(ip, wire, time_ns, |batch| to.first(batch)),
            Headers::V6(ip) => self.0.take(ip, wire, time_ns, |batch| to.first(batch)),
            Headers::NoKey(reason) => Err(Keyless::NoKey(*reason)),
            Headers::Malformed(malformed) => Err(Keyless::Malformed(*malformed)),
        }
    }

    fn flush(&mut self, to: &mut impl Take<Key4, Key4>) {
        self.0.flush(|batch| to.first(batch));
    }

    fn keyed(&self) -> Size {
        self.0.keyed
    }

    fn forget(&mut self) {
        self.0.keyed = Size::default();
    }
}
