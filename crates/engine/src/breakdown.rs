//! Traffic by protocol and by service port, for keys that hold both.

use flowgauge_core::key::KeyKind;
use flowgauge_core::sorting::sort_by;
use flowgauge_core::task::Lane;
use flowgauge_core::terms::{Measure, Size};

use crate::report::Breakdown;

/// Ports that a report lists at most.
const MOST_PORTS: usize = 10;

/// Protocols whose ports are told apart.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// The tables that a breakdown is counted in, reserved once (5 MB).
pub(crate) struct BreakdownTask {
    protocols: Box<[Size; 256]>,
    ports: Vec<Size>,
}

impl BreakdownTask {
    pub(crate) fn new() -> Self {
        Self {
            protocols: Box::new([Size::default(); 256]),
            ports: vec![Size::default(); WITH_PORTS.len() << 16],
        }
    }

    /// Counts the lanes' flows; `None` where the key or the summary does not tell.
    pub(crate) fn run(&mut self, by: Measure, lanes: &[Lane<'_>]) -> Option<Breakdown> {
        if lanes.iter().any(|lane| !lane.key.kind().has_all(KeyKind::FIVE_TUPLE)) {
            return None;
        }
        self.protocols.fill(Size::default());
        self.ports.fill(Size::default());
        for lane in lanes {
            lane.answers.flows()?.for_each(&mut |key, size| {
                let [.., a, b, c, d, protocol] = *key else { return };
                self.protocols[usize::from(protocol)] += size;
                if let Some(at) = WITH_PORTS.iter().position(|with| *with == protocol) {
                    let service = u16::from_be_bytes([a, b]).min(u16::from_be_bytes([c, d]));
                    self.ports[at << 16 | usize::from(service)] += size;
                }
            });
        }
        let mut protocols: Vec<_> = (0..=255u8)
            .zip(self.protocols.iter().copied())
            .filter(|(_, size)| size.packets > 0)
            .collect();
        sort_by(&mut protocols, &|(_, one), (_, other)| other.by(by).cmp(&one.by(by)));
        let mut ports: Vec<_> = (self.ports.iter().copied().enumerate())
            .filter(|(_, size)| size.packets > 0)
            .map(|(at, size)| (WITH_PORTS[at >> 16], at as u16, size))
            .collect();
        sort_by(&mut ports, &|one, other| {
            other.2.by(by).cmp(&one.2.by(by)).then((one.0, one.1).cmp(&(other.0, other.1)))
        });
        ports.truncate(MOST_PORTS);
        Some(Breakdown { protocols, ports })
    }
}
