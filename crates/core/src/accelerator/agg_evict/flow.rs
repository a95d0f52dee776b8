//! What packets are told apart by: their key, or their key and element.

use bytemuck::Zeroable;
use flowgauge_kernel::Digester;

use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::remix;

/// The word of a digest and of an element that a flow of both is found by.
const ELEMENT_WORD: u64 = 21;

/// What packets are told apart by.
pub(super) trait Flow<K>: Copy + PartialEq + Zeroable + Send + 'static {
    /// The digests of a batch's flows, of whose keys [`Batch::digests`] are; written to `own` where
    /// they are others.
    fn digests<'a>(
        batch: &'a Batch<K>,
        digester: &Digester,
        own: &'a mut [u64; BATCH_PACKETS],
    ) -> &'a [u64; BATCH_PACKETS]
    where
        K: FlowKey;
    fn new(key: K, element: u64) -> Self;
    fn key(self) -> K;
    fn element(self) -> u64;
}

/// A key.
#[derive(Clone, Copy, PartialEq, Zeroable)]
#[repr(transparent)]
pub(super) struct Keyed<K>(K);

impl<K: FlowKey> Flow<K> for Keyed<K> {
    #[inline(always)]
    fn digests<'a>(
        batch: &'a Batch<K>,
        _: &Digester,
        _: &'a mut [u64; BATCH_PACKETS],
    ) -> &'a [u64; BATCH_PACKETS] {
        batch.columns().digests
    }

    #[inline(always)]
    fn new(key: K, _: u64) -> Self {
        Self(key)
    }

    #[inline(always)]
    fn key(self) -> K {
        self.0
    }

    #[inline(always)]
    fn element(self) -> u64 {
        0
    }
}

/// A key and an element, for summaries that count those.
#[derive(Clone, Copy, PartialEq, Zeroable)]
#[repr(C)]
pub(super) struct Spoken<K> {
    element: u64,
    key: K,
}

impl<K: FlowKey> Flow<K> for Spoken<K> {
    fn digests<'a>(
        batch: &'a Batch<K>,
        digester: &Digester,
        own: &'a mut [u64; BATCH_PACKETS],
    ) -> &'a [u64; BATCH_PACKETS] {
        let mut both = [0; BATCH_PACKETS];
        for ((both, digest), element) in both.iter_mut().zip(batch.digests()).zip(batch.elements())
        {
            // Turned, lest a flow's two directions have one sum.
            *both = digest ^ element.rotate_left(32);
        }
        let len = batch.len();
        remix::remix_batch(digester, &both[..len], ELEMENT_WORD, &mut own[..len]);
        own
    }

    #[inline(always)]
    fn new(key: K, element: u64) -> Self {
        Self { element, key }
    }

    #[inline(always)]
    fn key(self) -> K {
        self.key
    }

    #[inline(always)]
    fn element(self) -> u64 {
        self.element
    }
}
