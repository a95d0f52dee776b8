//! Decoding several FlowRadars jointly, which stand along the ways of the same packets.
//!
//! Paper: Li, Miao, Kim, Yu, "FlowRadar: a better NetFlow for data centers" (NSDI 2016), §4. A
//! flow that one radar names is taken out of every other radar whose filter holds it, where cells
//! of one flow may then appear; so radars with different seeds decode more together than alone.
//! Sizes differ from radar to radar where packets are lost: those that a radar could not read
//! alone are the solution of its cells' equations nearest to what the other radars say.

use std::collections::VecDeque;

use super::RadarCells;
use super::cell::{Cell, Shape};
use crate::key::FlowKey;
use crate::terms::Size;

/// Steps of the solution at most. At 0.9 flows a cell the error shrinks tenfold in some 50.
const STEPS: usize = 2000;

/// A flow of one of the radars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JointFlow<K> {
    /// Its key.
    pub key: K,
    /// Its size at this radar.
    pub size: Size,
    /// At least this.
    pub low: Size,
    /// At most this.
    pub high: Size,
}

/// What is known of one of the radars.
#[derive(Clone, Debug)]
pub struct JointRadar<K> {
    /// The flows decoded.
    pub flows: Vec<JointFlow<K>>,
    /// Number of flows that stayed undecoded even so.
    pub undecoded: u64,
}

/// A radar while it is decoded.
struct Part<'a, K> {
    radar: &'a RadarCells<K>,
    cells: Vec<Cell<K>>,
    flows: Vec<Known<K>>,
}

struct Known<K> {
    key: K,
    digest: u64,
    /// The flow's number among all that were named.
    number: usize,
    /// Its size, where this radar could read it alone.
    alone: Option<Size>,
}

impl<K: FlowKey> Part<'_, K> {
    /// Whether the flow can be in these cells.
    fn may_hold(&self, key: &K, digest: u64) -> bool {
        self.radar.filter.holds(Shape::filter_word(digest))
            && self.radar.shape.cells_of(digest).all(|cell| {
                let cell = &self.cells[cell];
                cell.flows() > 1 || cell.flows() == 1 && cell.key == *key
            })
    }
}

/// Decodes radars jointly; those that share packets should differ in their seeds. Returns what is
/// known of each, in their order.
///
/// A radar's filter may take a flow of another radar for its own: its chance of a false positive
/// says how often. Such a mistake may leave flows undecoded; keys are never made up. Memory and
/// time grow with the radars' cells.
pub fn decode_jointly<K: FlowKey>(radars: &[&RadarCells<K>]) -> Vec<JointRadar<K>> {
    let mut parts: Vec<Part<'_, K>> = radars
        .iter()
        .map(|radar| Part { radar, cells: radar.cells.iter().collect(), flows: Vec::new() })
        .collect();
    let numbers = name_flows(&mut parts);
    // What the radars that read a flow alone say of it.
    let mut said = vec![None; numbers];
    for part in &parts {
        for flow in &part.flows {
            said[flow.number] = said[flow.number].or(flow.alone);
        }
    }
    parts.iter().map(|part| sizes(part, &said)).collect()
}

/// Peels all radars together; returns the number of different flows.
fn name_flows<K: FlowKey>(parts: &mut [Part<'_, K>]) -> usize {
    let mut waiting = VecDeque::new();
    for (at, part) in parts.iter().enumerate() {
        let single = |(_, cell): &(usize, &Cell<K>)| cell.flows() == 1;
        waiting.extend(part.cells.iter().enumerate().filter(single).map(|(cell, _)| (at, cell)));
    }
    let mut number = 0;
    while let Some((at, named)) = waiting.pop_front() {
        let cell = parts[at].cells[named];
        if cell.flows() != 1 || parts[at].radar.source().digest(named, &cell.key).is_none() {
            continue;
        }
        let key = cell.key;
        for (at, part) in parts.iter_mut().enumerate() {
            let digest = key.digest(&part.radar.digester);
            if !part.may_hold(&key, digest) {
                continue;
            }
            for place in part.radar.shape.cells_of(digest) {
                let cell = &mut part.cells[place];
                cell.leave(&key);
                if cell.flows() == 1 {
                    waiting.push_back((at, place));
                }
            }
            let decoded = part.radar.decoded();
            let mut places = part.radar.shape.cells_of(digest);
            let alone = places
                .find(|place| decoded.names(*place, &key))
                .filter(|place| decoded.is_clean(*place))
                .map(|place| decoded.flow(place).1);
            part.flows.push(Known { key, digest, number, alone });
        }
        number += 1;
    }
    number
}

fn sizes<K: FlowKey>(part: &Part<'_, K>, said: &[Option<Size>]) -> JointRadar<K> {
    let shape = part.radar.shape;
    let mut rest: Vec<Size> = part.radar.cells.iter().map(|cell| cell.size()).collect();
    for flow in &part.flows {
        for place in shape.cells_of(flow.digest) {
            let size = flow.alone.unwrap_or_default();
            rest[place].packets = rest[place].packets.saturating_sub(size.packets);
            rest[place].bytes = rest[place].bytes.saturating_sub(size.bytes);
        }
    }
    let open: Vec<&Known<K>> = part.flows.iter().filter(|flow| flow.alone.is_none()).collect();
    let places = |flow: &Known<K>| shape.cells_of(flow.digest);
    let high: Vec<Size> = open
        .iter()
        .map(|flow| Size {
            packets: places(flow).map(|place| rest[place].packets).min().unwrap_or(0),
            bytes: places(flow).map(|place| rest[place].bytes).min().unwrap_or(0),
        })
        .collect();
    // Cells with flows that nobody named are no equations.
    let cells: Vec<Option<Size>> = rest
        .iter()
        .zip(&part.cells)
        .map(|(rest, cell)| (cell.flows() == 0).then_some(*rest))
        .collect();
    let solved = |by: fn(&Size) -> u64| {
        let rows: Vec<Vec<usize>> = open.iter().map(|flow| places(flow).collect()).collect();
        let guess = open.iter().zip(&high).map(|(flow, high)| {
            let most = by(high) as f64;
            said[flow.number].map_or(most / 2.0, |size| by(&size) as f64).min(most)
        });
        let sums = cells.iter().map(|cell| cell.as_ref().map(|rest| by(rest) as f64));
        nearest_solution(&rows, guess.collect(), &sums.collect::<Vec<_>>())
    };
    let (packets, bytes) = (solved(|size| size.packets), solved(|size| size.bytes));
    let estimated = open.iter().zip(high).zip(packets.iter().zip(&bytes)).map(
        |((flow, high), (packets, bytes))| {
            // A flow has a packet, unless only the filter says that it is here.
            let low = Size { packets: high.packets.min(1), bytes: 0 };
            let size = Size {
                packets: (packets.round() as u64).clamp(low.packets, high.packets),
                bytes: (bytes.round() as u64).min(high.bytes),
            };
            JointFlow { key: flow.key, size, low, high }
        },
    );
    let read = part.flows.iter().filter_map(|flow| {
        flow.alone.map(|size| JointFlow { key: flow.key, size, low: size, high: size })
    });
    JointRadar {
        flows: read.chain(estimated).collect(),
        undecoded: part.cells[..shape.part].iter().map(Cell::flows).sum(),
    }
}

/// The numbers next to `x`, one for each row, whose sums in the cells that the rows name are
/// nearest to `sums`: the method of conjugate gradients on the normal equations.
fn nearest_solution(rows: &[Vec<usize>], mut x: Vec<f64>, sums: &[Option<f64>]) -> Vec<f64> {
    let spread = |x: &[f64]| {
        let mut cells = vec![0.0; sums.len()];
        for (row, x) in rows.iter().zip(x) {
            row.iter().filter(|cell| sums[**cell].is_some()).for_each(|cell| cells[*cell] += x);
        }
        cells
    };
    let gather = |cells: &[f64]| -> Vec<f64> {
        rows.iter().map(|row| row.iter().map(|cell| cells[*cell]).sum()).collect()
    };
    let square = |numbers: &[f64]| numbers.iter().map(|number| number * number).sum::<f64>();
    let mut residual: Vec<f64> =
        spread(&x).iter().zip(sums).map(|(has, sum)| sum.map_or(0.0, |sum| sum - has)).collect();
    let mut slope = gather(&residual);
    let mut direction = slope.clone();
    let mut steepness = square(&slope);
    for _ in 0..STEPS {
        // So near to the sums, which are whole numbers, rounding gives the solution.
        if square(&residual) < 1e-4 || steepness == 0.0 {
            break;
        }
        let change = spread(&direction);
        let length = steepness / square(&change).max(f64::MIN_POSITIVE);
        for (x, direction) in x.iter_mut().zip(&direction) {
            *x += length * direction;
        }
        for (residual, change) in residual.iter_mut().zip(&change) {
            *residual -= length * change;
        }
        slope = gather(&residual);
        let next = square(&slope);
        for (direction, slope) in direction.iter_mut().zip(&slope) {
            *direction = slope + next / steepness * *direction;
        }
        steepness = next;
    }
    x
}
