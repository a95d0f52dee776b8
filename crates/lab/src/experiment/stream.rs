//! Keys in memory.

use flowgauge_core::key::{Element, Extract, FlowKey, KeyKind};
use flowgauge_core::terms::SpreadOf;
use flowgauge_kernel::{Digester, Isa, Seed};

use super::setting::{Mix, Setting};
use crate::failure::Failure;
use crate::traffic::{Packet, Scene};

/// Keys of packets in memory, and the digests of their elements.
#[derive(Clone, Debug)]
pub(crate) struct Stream<K> {
    pub(crate) keys: Vec<K>,
    pub(crate) elements: Vec<u64>,
}

impl<K: FlowKey + Extract<8>> Stream<K> {
    /// Draws one epoch of plain traffic.
    ///
    /// # Errors
    /// The trace does not have it.
    pub(crate) fn draw(setting: &Setting, mix: Mix, kind: KeyKind) -> Result<Self, Failure> {
        let epochs = setting.epochs(mix, Scene::Plain)?;
        // Of IPv4 packets.
        setting.needs(mix, K::SHORTEST)?;
        Ok(Self::of(epochs.first().map_or(&[], Vec::as_slice), kind, setting.seed))
    }

    /// The keys of these packets.
    pub(crate) fn of(packets: &[Packet], kind: KeyKind, seed: u64) -> Self {
        let digester = Digester::new(Seed::number(seed), Isa::best());
        let keyed = packets.iter().filter_map(|packet| {
            let element = packet.ip.element(kind, SpreadOf::Endpoint, &digester).ok()?;
            Some((K::extract(kind, &packet.ip).ok()?, element))
        });
        let (keys, elements) = keyed.unzip();
        Self { keys, elements }
    }
}
