//! Reports during an epoch with several workers: their cost and their accuracy.

use std::time::Instant;

use flowgauge_core::key::{CanonicalKey, KeyKind};
use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_core::summary::Parameters;
use flowgauge_core::task::Report;
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::Each;
use flowgauge_engine::source::{Burst, Source, SourceError};
use flowgauge_engine::{Config, EpochLength, Plan};
use hashbrown::HashMap;

use super::WORKERS;
use crate::experiment::chart::{Chart, linear};
use crate::experiment::part::{Part, median};
use crate::experiment::setting::{FRAME_BYTES, Mix, Setting};
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;
use crate::keys::{Keys, Pairs};
use crate::traffic::{Packet, Scene};

pub(crate) const UPDATES: Experiment = Experiment {
    name: "scaling/updates",
    title: "answers during an epoch, of several workers",
    paper: "This project: `--updates`, beside change-based aggregation (Simple, section 5.1)",
    presets: &[],
    measure,
    judge,
    missing: &[],
    charts: &[Chart {
        title: "Rate with updates over that without",
        x: "structure",
        x_axis: linear(""),
        y: &[("rate_ratio", "")],
        y_axis: linear("times"),
        series: "asked",
        only: &[],
        paper: &[],
        see: "A bar at 1 says that answers during the epoch cost nothing.",
    }],
};

/// Nanoseconds of the reference epoch, per packet of the setting: one second for a million.
const EPOCH_NS: f64 = 1000.0;

/// Number of reports before the end.
const ASKED: [(usize, &str); 2] = [(10, "10 times"), (100, "100 times")];

/// Wanted rate, and wanted errors.
const WANTED_RATE: f64 = 0.9;
const WANTED_ERROR: f64 = 1.2;

const EXACT: &str = "linear-table";

/// Algorithms with parameters that determine their size.
const NAMES: [(&str, &[(&str, u64)]); 4] = [
    ("count-min", &[("rows", 4), ("columns", 8192), ("candidates", 1024)]),
    ("count-sketch", &[("rows", 5), ("columns", 8192), ("candidates", 1024)]),
    (EXACT, &[("buckets", 1 << 18)]),
    ("space-saving", &[("counters", 4096)]),
];

fn config(name: &str, parameters: &[(&str, u64)], workers: usize) -> Config {
    Config {
        key: KeyKind::PAIR.into(),
        algorithm: name.to_owned(),
        parameters: Parameters::new(parameters.iter().copied()),
        tasks: Some(vec!["top".to_owned()]),
        workers,
        ..Config::seeded(0)
    }
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let epochs = setting.epochs(Mix::Trace, Scene::Plain)?;
    setting.needs(Mix::Trace, Pairs::BYTES)?;
    let packets = epochs.first().map_or(&[][..], Vec::as_slice);
    let (recording, numbered) = (Recording::of(packets), Numbered::of(packets));
    let mut table = Table::new([
        "structure",
        "asked",
        "mpps",
        "rate_ratio",
        "mean_error",
        "rmse",
        "error_ratio",
        "delay_us",
        "most_delay_us",
    ]);
    for (name, parameters) in NAMES {
        let speeds = speeds(&config(name, parameters, WORKERS), &recording, setting)?;
        row!(table, name, "never", speeds.never, None);
        for ((times, asked), speed) in ASKED.into_iter().zip(speeds.asked) {
            let updates = EpochLength::Packets(every(packets.len(), times) as u64);
            let errors = |workers| {
                let config = Config { updates, ..config(name, parameters, workers) };
                errors(config, &recording, &numbered)
            };
            let (several, one) = (errors(WORKERS + 1)?, errors(1)?);
            let last = several.last().copied().unwrap_or([f64::NAN; 2]);
            row!(
                table,
                name,
                asked,
                speed.mpps,
                speed.ratio,
                last[0],
                last[1],
                worst(&several, &one),
                median(&speed.delays_us),
                speed.delays_us.iter().copied().fold(f64::NAN, f64::max),
            );
        }
    }
    let limit = "Rates are beside those of the same two workers, who are never asked.".to_owned();
    let notes = format!(
        "Epochs of about {} s: {} packets of {} pairs of addresses, again and again, as frames in memory \
         through the whole engine. One thread reads and dispatches, one measures, and a third answers the \
         task `top` (`--workers 2`): where there are two cores it takes its time from them. Rates are the \
         best of {} rounds in turns, from the first packet to the last report. Errors are those of the sizes of \
         all pairs over the packets once, absolute, where two threads measure (`--workers 3`): at the end, and at \
         worst of all moments over those of one worker, whose one summary with the same parameters is asked at \
         the same packets (an error of 0 over 0 is 1). The delay is from the packet before which the answer is asked for to the answer.",
        EPOCH_NS * setting.packets as f64 / 1e9,
        packets.len(),
        numbered.keys.len(),
        setting.rounds
    );
    Ok(Outcome { table, limit, notes })
}

/// Packets between `times` updates in an epoch, none of them at its end.
fn every(packets: usize, times: usize) -> usize {
    packets.div_ceil(times + 1)
}

/// The measured speed of a structure.
struct Speeds {
    never: f64,
    asked: Vec<Speed>,
}

struct Speed {
    mpps: f64,
    ratio: f64,
    delays_us: Vec<f64>,
}

/// Rates without updates and with the numbers of [`ASKED`], in turns. The best round counts, since
/// interference only makes it slower.
fn speeds(config: &Config, recording: &Recording, setting: &Setting) -> Result<Speeds, Failure> {
    let once = timed(config.clone(), recording, 4, usize::MAX)?.0;
    let passes = (EPOCH_NS * once / 1e3).ceil() as usize;
    let packets = passes * setting.packets;
    let mut never = Vec::new();
    let mut asked = ASKED.map(|_| (Vec::new(), Vec::new()));
    for _ in 0..setting.rounds {
        never.push(timed(config.clone(), recording, passes, usize::MAX)?.0);
        for ((times, _), (rates, delays_us)) in ASKED.into_iter().zip(&mut asked) {
            let every = every(packets, times);
            let config = Config { updates: EpochLength::Packets(every as u64), ..config.clone() };
            let (rate, delays) = timed(config, recording, passes, every)?;
            rates.push(rate);
            delays_us.extend(delays);
        }
    }
    let best = |rates: Vec<f64>| rates.into_iter().fold(f64::NAN, f64::max);
    let never = best(never);
    let speed = |(rates, delays_us)| {
        let mpps = best(rates);
        Speed { mpps, ratio: mpps / never, delays_us }
    };
    let asked = asked.into_iter().map(speed).collect();
    Ok(Speeds { never, asked })
}

/// Million packets per second over `passes` passes, and the delay of each update.
fn timed(
    config: Config,
    recording: &Recording,
    passes: usize,
    every: usize,
) -> Result<(f64, Vec<f64>), Failure> {
    let plan = Plan::new(config)?;
    let mut source = recording.replay(passes, every);
    let mut told = Vec::with_capacity(128);
    let begun = Instant::now();
    let mut tell = Each(|_: &EpochReport| {
        told.push(Instant::now());
        Ok(())
    });
    let outcome = flowgauge_engine::run(plan, &mut source, &mut tell, &mut |_| {})?;
    let ns = begun.elapsed().as_nanos() as f64;
    let delay = |(told, asked): (&Instant, &Instant)| (*told - *asked).as_nanos() as f64 / 1e3;
    let delays = told.iter().zip(&source.asked).map(delay).collect();
    Ok((1e3 * outcome.total.account.keyed as f64 / ns, delays))
}

/// The flow of each packet by number, and the keys of flows.
struct Numbered {
    flows: Vec<u32>,
    keys: Vec<CanonicalKey>,
}

impl Numbered {
    fn of(packets: &[Packet]) -> Self {
        let (mut numbers, mut keys) = (HashMap::new(), Vec::new());
        let mut number = |packet: &Packet| {
            *numbers.entry(packet.ip.addresses).or_insert_with(|| {
                keys.push(CanonicalKey::new(&packet.ip.addresses));
                keys.len() as u32 - 1
            })
        };
        let flows = packets.iter().map(&mut number).collect();
        Self { flows, keys }
    }
}

/// The mean absolute error and the root mean square error of all flows' sizes, in each report.
fn errors(
    config: Config,
    recording: &Recording,
    numbered: &Numbered,
) -> Result<Vec<[f64; 2]>, Failure> {
    let (tasks, flows) = (Some(vec!["flow-size".to_owned()]), numbered.keys.clone());
    let plan = Plan::new(Config { tasks, flows, ..config })?;
    let (mut truth, mut errors) = (vec![0.0; numbered.keys.len()], Vec::new());
    let mut packets = numbered.flows.iter();
    let mut counted = 0;
    let mut judge = Each(|report: &EpochReport| {
        for flow in packets.by_ref().take((report.account.keyed - counted) as usize) {
            truth[*flow as usize] += 1.0;
        }
        counted = report.account.keyed;
        errors.push(error(report, &truth));
        Ok(())
    });
    flowgauge_engine::run(plan, &mut recording.replay(1, usize::MAX), &mut judge, &mut |_| {})?;
    Ok(errors)
}

fn error(report: &EpochReport, truth: &[f64]) -> [f64; 2] {
    let Some((_, Report::Sizes { items, .. })) = report.tasks.first() else { return [f64::NAN; 2] };
    let size = |estimate: Option<f64>, truth: &f64| (estimate.unwrap_or(f64::NAN) - truth).abs();
    let errors = items
        .iter()
        .zip(truth)
        .map(|(item, truth)| size(item.size.packets.map(|packets| packets.value), truth));
    let (sum, squares) =
        errors.fold((0.0, 0.0), |(sum, squares), error| (sum + error, squares + error * error));
    let flows = truth.len() as f64;
    [sum / flows, (squares / flows).sqrt()]
}

/// The largest ratio of two errors at the same moment.
fn worst(these: &[[f64; 2]], those: &[[f64; 2]]) -> f64 {
    if these.len() != those.len() {
        return f64::NAN;
    }
    let ratio = |(this, that): (&f64, &f64)| {
        if this.total_cmp(that).is_eq() { 1.0 } else { this / that }
    };
    let ratios = these.as_flattened().iter().zip(those.as_flattened()).map(ratio);
    ratios.max_by(f64::total_cmp).unwrap_or(f64::NAN)
}

fn judge(table: &Table) -> Verdict {
    let rates = |asked: &str| {
        let rows = table.of("asked", asked).map(|row| {
            let what = format!("{}, rate over that without", row.text("structure"));
            Part::at_least(&what, row.number("rate_ratio"), WANTED_RATE).timed()
        });
        rows.collect::<Vec<_>>()
    };
    let errors = NAMES.map(|(name, _)| {
        let rows = table.of("structure", name).filter(|row| row.text("asked") != "never");
        // NaN counts as the largest.
        let error = rows.map(|row| row.number("error_ratio")).max_by(f64::total_cmp);
        let what = format!("{name}, error over that of one summary at worst");
        Part::at_most(&what, error.unwrap_or(f64::NAN), WANTED_ERROR)
    });
    let exact =
        table.numbers("structure", EXACT, "mean_error").into_iter().fold(f64::NAN, f64::max);
    Verdict::of(
        table,
        [
            Claim::new(
                "Asked ten times in an epoch, two workers keep 90 % of their rate.",
                rates("10 times"),
                "Workers wait for each other at each answer.",
            ),
            Claim::new(
                "Asked a hundred times, two workers keep as much.",
                rates("100 times"),
                "A large table takes longer to join than a hundredth of the epoch allows.",
            ),
            Claim::new(
                "The answers err as one summary's would (a fifth more at most), and those of tables not at \
                 all.",
                errors.into_iter().chain([Part::at_most(
                    &format!("{EXACT}, mean error"),
                    exact,
                    0.0,
                )]),
                "Parts that are joined have other keys than one summary.",
            ),
        ],
    )
}

/// Bytes of a frame up to the end of its ports: Ethernet and IPv4 without options.
const CAPTURED: usize = 38;

/// Packets as consecutive frames.
struct Recording {
    bytes: Vec<u8>,
}

impl Recording {
    fn of(packets: &[Packet]) -> Self {
        Self { bytes: packets.iter().flat_map(frame).collect() }
    }

    /// Replays all packets `passes` times, and notes the time after every `every` packets.
    fn replay(&self, passes: usize, every: usize) -> Replay<'_> {
        Replay { recording: self, at: 0, passes, every, handed: 0, asked: Vec::with_capacity(128) }
    }
}

/// The first bytes of a packet. Nothing checks its checksums.
fn frame(packet: &Packet) -> [u8; CAPTURED] {
    let mut frame = [0; CAPTURED];
    frame[12..24].copy_from_slice(&[0x08, 0, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, packet.ip.protocol]);
    frame[26..34].copy_from_slice(&packet.ip.addresses);
    frame
}

/// A recording as a source.
struct Replay<'a> {
    recording: &'a Recording,
    at: usize,
    passes: usize,
    every: usize,
    handed: usize,
    /// Times at which the packets that trigger updates were handed out.
    asked: Vec<Instant>,
}

impl Source for Replay<'_> {
    fn poll<'b>(&'b mut self, burst: &mut Burst<'b>) -> Result<bool, SourceError> {
        let bytes = &self.recording.bytes;
        if self.at == bytes.len() {
            (self.at, self.passes) = (0, self.passes.saturating_sub(1));
        }
        if self.passes == 0 || bytes.is_empty() {
            return Ok(false);
        }
        let end = bytes.len().min(self.at + burst.room() * CAPTURED);
        burst.extend(bytes[self.at..end].chunks_exact(CAPTURED).map(|bytes| Frame {
            bytes,
            wire: FRAME_BYTES,
            link: LinkType::ETHERNET,
            time_ns: 0,
        }));
        self.at = end;
        // An update is made when the first packet after it arrives.
        let before = self.handed.saturating_sub(1) / self.every;
        self.handed += burst.len();
        if (self.handed - 1) / self.every > before {
            self.asked.push(Instant::now());
        }
        Ok(true)
    }
}
