//! Traffic by protocol and by service port: from the flows where a summary holds all of them and keys have
//! both, and else from what was counted packet by packet.

use flowgauge_core::key::{Field, KeyKind};
use flowgauge_core::services::{Services, WITH_PORTS};
use flowgauge_core::sorting::sort_by;
use flowgauge_core::task::Lane;
use flowgauge_core::terms::{Measure, Size};

use crate::report::Breakdown;

/// Ports that a report lists at most.
const MOST_PORTS: usize = 10;

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
        let place = |lane: &Lane<'_>, field| lane.key.place(field, lane.key_bytes);
        self.protocols.fill(Size::default());
        self.ports.fill(Size::default());
        for lane in lanes {
            let numbers = place(lane, Field::SourcePort)?.start..place(lane, Field::Protocol)?.end;
            lane.answers.flows()?.for_each(&mut |key, size| {
                let [a, b, c, d, protocol] = key[numbers.clone()] else { return };
                self.protocols[usize::from(protocol)] += size;
                if let Some(at) = WITH_PORTS.iter().position(|with| *with == protocol) {
                    let service = u16::from_be_bytes([a, b]).min(u16::from_be_bytes([c, d]));
                    self.ports[at << 16 | usize::from(service)] += size;
                }
            });
        }
        let protocols = (0..=255u8)
            .zip(self.protocols.iter().copied())
            .filter(|(_, size)| size.packets > 0)
            .collect();
        let ports = (self.ports.iter().copied().enumerate())
            .filter(|(_, size)| size.packets > 0)
            .map(|(at, size)| (WITH_PORTS[at >> 16], at as u16, size))
            .collect();
        Some(sorted(protocols, ports, by))
    }
}

/// What was counted packet by packet.
pub(crate) fn of(services: &Services, by: Measure) -> Breakdown {
    sorted(services.protocols().collect(), services.ports().collect(), by)
}

fn sorted(
    mut protocols: Vec<(u8, Size)>,
    mut ports: Vec<(u8, u16, Size)>,
    by: Measure,
) -> Breakdown {
    sort_by(&mut protocols, &|(_, one), (_, other)| other.by(by).cmp(&one.by(by)));
    sort_by(&mut ports, &|one, other| {
        other.2.by(by).cmp(&one.2.by(by)).then((one.0, one.1).cmp(&(other.0, other.1)))
    });
    ports.truncate(MOST_PORTS);
    Breakdown { protocols, ports, untracked: Size::default() }
}
