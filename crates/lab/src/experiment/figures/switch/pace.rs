//! Packets arriving at a steady rate, and the search for the highest rate without loss.

use flowgauge_dpdk::DpdkQueue;
use flowgauge_engine::source::{Burst, Source, SourceError};
use flowgauge_kernel::cycles;

use super::dpdk::{COUNT_MIN, Contender};
use super::port::{PACKETS, SIZES, each_burst, ports, run, truth};
use super::zero_loss::{CLAIMED, GAP_BYTES, RECEIVING};
use crate::experiment::Outcome;
use crate::experiment::part::median;
use crate::experiment::setting::Setting;
use crate::experiment::table::{Table, row};
use crate::failure::Failure;
use crate::machine::ns_per_cycle;
use crate::machine::thread_seconds;

/// Queue size in packets, the default of Open vSwitch.
const DESCRIPTORS: u64 = 2048;

/// Packets received at once.
const BURST: u64 = 32;

/// The highest rate tried, in million packets per second, and the resolution of the search.
const MOST_MPPS: f64 = 128.0;
const WIDTH: f64 = 0.02;

/// A longer burst may have been interrupted.
const LONG_NS: f64 = 20_000.0;

pub(super) fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let full = setting.rounds >= Setting::full().rounds;
    let repeats = if full { 10 } else { 3 };
    let trial = setting.packets as u64;
    let (_, truth) = truth(setting.seed)?;
    let mut ports = ports(setting.seed)?;
    let memory = ports.memory;
    let mut table = Table::new([
        "measurement",
        "bytes",
        "mpps",
        "least_mpps",
        "most_mpps",
        "gbit",
        "link_mpps",
    ]);
    let mut bare = [0.0; SIZES.len()];
    let contenders = contenders();
    for (port, captured) in SIZES.into_iter().enumerate() {
        let bytes = captured + 4;
        let link = 10_000.0 / f64::from(8 * (bytes + GAP_BYTES));
        for contender in [None].into_iter().chain(contenders.iter().map(Some)) {
            let queue = &mut ports.queues[port];
            let mut rates = Vec::new();
            for _ in 0..repeats {
                rates.push(search(|mpps| {
                    let mut source = Paced::new(queue, mpps, trial);
                    match contender {
                        None => each_burst(&mut source, |_| {})?,
                        Some(contender) => drop(run(contender, &truth, &mut source)?),
                    }
                    Ok(!source.lost)
                })?);
            }
            rates.sort_by(f64::total_cmp);
            let mpps = median(&rates);
            let gbit = 10.0 * mpps / link;
            let name = contender.map_or(RECEIVING, |contender| contender.name);
            if contender.is_none() {
                bare[port] = mpps;
            }
            row!(table, name, f64::from(bytes), mpps, rates[0], rates[rates.len() - 1], gbit, link);
        }
    }
    let limit = format!(
        "Receiving from `net_pcap`, which copies every packet as a network card would for nothing, loses \
         none up to {:.1} million packets of 64 bytes a second, and {:.1} million of 1518; {memory}.",
        bare[0],
        bare[SIZES.len() - 1]
    );
    let notes = format!(
        "In one process: {BURST} packets are taken from the port when so many have arrived by the clock at a \
         steady rate, and a rate loses packets once more than {DESCRIPTORS} wait, as many as a queue of Open \
         vSwitch holds. A rate stands where {trial} packets pass without a loss; the search halves until \
         it is {} % wide, {repeats} times, of which the table has the median, the least and the most. \
         RFC 2544 asks for trials of 60 s and a generator of its own: here is no link, and no network \
         card. Time in which something else had the core does not count, and the memory of \
         measurements is faulted in and locked before, as `live --engine dpdk` does. `link_mpps` is the rate of a link of 10 \
         Gbit/s; bytes are with the checksum; `gbit` is with preamble and gap. {PACKETS} packets come \
         again and again, keys are five-tuples.",
        100.0 * WIDTH
    );
    Ok(Outcome { table, limit, notes })
}

fn contenders() -> [Contender; 5] {
    let of = |name, algorithm, parameters, accelerator| Contender {
        name,
        algorithm,
        parameters,
        accelerator,
        most_ns: f64::NAN,
    };
    let agg_evict: Option<(_, &[_])> = Some(("agg-evict", &[]));
    let [insta_measure, count_min, univmon, table] = CLAIMED;
    [
        of(insta_measure, "insta-measure", &[("entries", "65536")], None),
        of(count_min, "count-min", COUNT_MIN, agg_evict),
        of(univmon, "univmon", &[], agg_evict),
        of(table, "linear-table", &[("buckets", "131072")], None),
        of("count-min", "count-min", COUNT_MIN, None),
    ]
}

/// The highest rate that `stands`, by bisection; NaN if none does.
fn search(mut stands: impl FnMut(f64) -> Result<bool, Failure>) -> Result<f64, Failure> {
    let (mut least, mut most) = (0.0, MOST_MPPS);
    let mut rate = most / 4.0;
    while most > least * (1.0 + WIDTH) && rate > 0.1 {
        if stands(rate)? {
            least = rate;
        } else {
            most = rate;
        }
        rate = if least > 0.0 { (least * most).sqrt() } else { most / 2.0 };
    }
    Ok(if least > 0.0 { least } else { f64::NAN })
}

/// A queue with packets arriving at a steady rate. It ends after a number of packets, or with the
/// first loss.
struct Paced<'a> {
    queue: &'a mut DpdkQueue,
    /// Packets per cycle.
    rate: f64,
    start: u64,
    /// Cycles in which another process had the core.
    away: u64,
    /// Cycles and thread CPU seconds at the last reading, and cycles at the last poll.
    known: (u64, f64),
    looked: u64,
    taken: u64,
    until: u64,
    lost: bool,
}

impl<'a> Paced<'a> {
    fn new(queue: &'a mut DpdkQueue, mpps: f64, until: u64) -> Self {
        let (now, seconds) = (cycles(), thread_seconds());
        Self {
            queue,
            rate: mpps * 1e-3 * ns_per_cycle(),
            start: 0,
            away: 0,
            known: (now, seconds),
            looked: now,
            taken: 0,
            until,
            lost: false,
        }
    }

    /// Number of waiting packets.
    fn waiting(&mut self) -> u64 {
        let now = cycles();
        if self.start == 0 {
            // The measurement has been built by now.
            (self.start, self.known) = (now, (now, thread_seconds()));
        } else if (now - self.looked) as f64 * ns_per_cycle() > LONG_NS {
            let seconds = thread_seconds();
            let own = (seconds - self.known.1) * 1e9 / ns_per_cycle();
            self.away += (now - self.known.0).saturating_sub(own as u64);
            self.known = (now, seconds);
        }
        self.looked = now;
        let arrived = (now - self.start).saturating_sub(self.away) as f64 * self.rate;
        (arrived as u64).saturating_sub(self.taken)
    }
}

impl Source for Paced<'_> {
    fn poll<'b>(&'b mut self, burst: &mut Burst<'b>) -> Result<bool, SourceError> {
        loop {
            let waiting = self.waiting();
            self.lost = waiting > DESCRIPTORS;
            if self.lost || self.taken >= self.until {
                return Ok(false);
            }
            if waiting >= BURST {
                break;
            }
        }
        let Self { queue, taken, .. } = self;
        let more = queue.poll(burst)?;
        *taken += burst.len() as u64;
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_below_the_rate_that_loses() {
        for limit in [0.3, 5.0, 14.88, 100.0] {
            let mut tried = 0;
            let found = search(|mpps| {
                tried += 1;
                Ok(mpps < limit)
            });
            let Ok(found) = found else { panic!("no trial fails") };
            assert!(found < limit && found * (1.0 + WIDTH) >= limit && tried < 20, "{found}");
        }
        assert!(search(|_| Ok(false)).is_ok_and(f64::is_nan));
    }
}
