//! The stored form of a snapshot, which `docs/snapshot.md` describes byte by byte.

use flowgauge_core::any::AnySummary;
use flowgauge_core::audit::Audit;
use flowgauge_core::key::KeySpec;
use flowgauge_core::packet::{Fault, Layer, NoKey, Tunnels};
use flowgauge_core::summary::codec::{DecodeError, Reader, Writer};
use flowgauge_core::summary::{Info, Options};
use flowgauge_core::terms::{Measure, Size, SpreadOf};
use flowgauge_filter::Filter;
use flowgauge_kernel::Seed;

use super::coverage::{self, Coverage};
use super::{Snapshot, SnapshotError};
use crate::account::Account;
use crate::config::{self, Config, EpochLength};
use crate::report::Traffic;
use crate::sink::{QUEUE_BYTES, names};
use crate::summaries::Summaries;

const MAGIC: &[u8; 4] = b"FGSS";
const VERSION: u16 = 7;

/// Earlier versions that can still be read. Version 6 has only the threshold of the lanes; version 5
/// also lacks audits; version 4 also lacks observed times.
const OF_LANES: u16 = 6;
const UNAUDITED: u16 = 5;
const UNTIMED: u16 = 4;

/// The kind of a sample drawn by the source.
const ELSEWHERE: u8 = 2;

/// Most bytes of a name, a key or a filter.
const LONGEST_TEXT: usize = 1 << 20;

/// The parts of a snapshot before its lanes.
pub(super) struct Head<'a> {
    pub(super) config: &'a Config,
    pub(super) coverage: &'a [Coverage],
    pub(super) account: &'a Account,
    pub(super) traffic: Option<Traffic>,
    pub(super) times_ns: Option<(i64, i64)>,
}

impl Head<'_> {
    /// Encodes the snapshot with these summaries, which `info` built from `options`. Overwrites
    /// `room`, so that repeated calls need no new memory.
    pub(super) fn write<'o>(
        &self,
        summaries: &Summaries,
        info: &Info,
        options: impl Iterator<Item = &'o Options>,
        room: Vec<u8>,
    ) -> Vec<u8> {
        let Self { config, coverage, account, traffic, times_ns } = self;
        let mut out = Writer::over(room, most_bytes(summaries));
        out.numbers(MAGIC);
        out.number(VERSION);
        out.bytes(config.name.as_bytes());
        out.bytes(config.key.to_string().as_bytes());
        out.number(match config.spread_of {
            SpreadOf::Endpoint => 0u8,
            SpreadOf::Address => 1,
            SpreadOf::Port => 2,
        });
        out.number(config.tunnels as u8);
        out.bytes(config.filter.as_ref().map_or("", Filter::expression).as_bytes());
        out.threshold(config.threshold);
        let (kind, length) = match config.epoch {
            EpochLength::Whole => (0u8, 0),
            EpochLength::Packets(packets) => (1, packets),
            EpochLength::Time(ns) => (2, ns.cast_unsigned()),
        };
        out.number(kind);
        out.number(length);
        coverage::write(coverage, &mut out);
        write_account(account, &mut out);
        out.number(match traffic {
            None => 0u8,
            Some(Traffic { elsewhere: None, .. }) => 1,
            Some(Traffic { elsewhere: Some(_), .. }) => ELSEWHERE,
        });
        if let Some(Traffic { packets, weight, delta, elsewhere }) = *traffic {
            out.numbers(&[packets, weight, delta]);
            out.numbers(elsewhere.as_slice());
        }
        let (earliest_ns, latest_ns) = times_ns.unwrap_or((i64::MAX, i64::MIN));
        out.numbers(&[earliest_ns, latest_ns]);
        out.number(summaries.lanes.len() as u8);
        for (summary, options) in summaries.lanes.iter().zip(options) {
            out.measured(|out| summary.write(out, info, options));
        }
        out.number(summaries.audits.first().map_or(0, Audit::one_in));
        summaries.audits.iter().for_each(|audit| audit.write(&mut out));
        out.checked()
    }
}

/// Bytes before the lanes, without the coverage and a long filter, whose size varies.
const HEAD_BYTES: usize = 1 << 14;

/// Most bytes of a snapshot with these summaries.
fn most_bytes(summaries: &Summaries) -> usize {
    let lanes = summaries.lanes.iter().map(AnySummary::most_stored_bytes);
    HEAD_BYTES + lanes.chain(summaries.audits.iter().map(Audit::most_stored_bytes)).sum::<usize>()
}

/// Most bytes of memory that storing these summaries takes: a snapshot being written, as much again
/// for an index of its records, a library's own copy or the copy for the sinks, and one waiting.
pub(crate) fn saving_bytes(summaries: &Summaries) -> usize {
    let most = most_bytes(summaries);
    2 * most + most.max(QUEUE_BYTES)
}

/// Reads a text with its length.
pub(super) fn text<'a>(from: &mut Reader<'a>, field: &'static str) -> Result<&'a str, DecodeError> {
    let bytes = from.bytes(field, LONGEST_TEXT)?;
    str::from_utf8(bytes).map_err(|_| from.invalid(field, bytes.len(), "it is not UTF-8"))
}

/// Reads the name of the measurement.
fn name(from: &mut Reader<'_>) -> Result<String, DecodeError> {
    let name = text(from, "name")?;
    if config::is_name(name) {
        return Ok(name.to_owned());
    }
    Err(from.invalid("name", name.len(), "a name consists of letters, digits, '-', '_' and '.'"))
}

/// Reads the length of epochs, and checks that a measurement could have it.
fn epoch(from: &mut Reader<'_>) -> Result<EpochLength, SnapshotError> {
    let (kind, length) = (from.number::<u8>("kind of epoch")?, from.number::<u64>("epoch length")?);
    match (kind, length, length.cast_signed()) {
        (0, 0, _) => Ok(EpochLength::Whole),
        (1, packets @ 1.., _) => Ok(EpochLength::Packets(packets)),
        (2, _, ns @ 1..) => Ok(EpochLength::Time(ns)),
        (0..=2, ..) => {
            Err(from.invalid("epoch length", 8, "it is too long for this kind of epoch").into())
        }
        _ => Err(SnapshotError::Unknown { field: "kind of epoch", value: kind.into() }),
    }
}

/// Reads the traffic of a sample.
fn traffic(from: &mut Reader<'_>, kind: u8) -> Result<Traffic, DecodeError> {
    let mut numbers = [0.0; 3];
    from.numbers("sampled traffic", &mut numbers)?;
    let longest = || from.number("longest packet");
    let elsewhere = (kind == ELSEWHERE).then(longest).transpose()?;
    let [packets, weight, delta] = numbers;
    let most = u64::MAX as f64;
    if (0.0..=most).contains(&packets)
        && (1.0..=most).contains(&weight)
        && delta > 0.0
        && delta < 1.0
    {
        Ok(Traffic { packets, weight, delta, elsewhere })
    } else {
        Err(from.invalid("sampled traffic", 24, "it is impossible for a sample"))
    }
}

/// Reads the audits, if any, of lanes with keys of these sizes.
fn audits(
    from: &mut Reader<'_>,
    version: u16,
    lanes: &[usize],
    limit: usize,
    seed: &Seed,
    spare: Vec<Audit>,
) -> Result<Vec<Audit>, DecodeError> {
    let one_in = if version > UNAUDITED { from.number::<u32>("audited slice")? } else { 0 };
    let audited = if one_in > 0 { lanes } else { &[] };
    let mut spare = spare.into_iter();
    let audit = |bytes: &usize| Audit::read(*bytes, one_in, from, limit, seed, spare.next());
    audited.iter().map(audit).collect()
}

/// Reads a snapshot into summaries of at most `limit` bytes each.
pub(super) fn read(
    bytes: &[u8],
    limit: usize,
    file: Option<&Seed>,
    spare: Option<Snapshot>,
) -> Result<Snapshot, SnapshotError> {
    let mut from = Reader::new(bytes);
    let mut magic = [0; MAGIC.len()];
    from.numbers("magic", &mut magic)?;
    // Distinguish another file format from a damaged snapshot.
    if magic != *MAGIC {
        return Err(SnapshotError::Magic);
    }
    let mut from = Reader::checked(bytes)?;
    from.numbers("magic", &mut magic)?;
    let version = from.number::<u16>("version")?;
    if !(UNTIMED..=VERSION).contains(&version) {
        return Err(SnapshotError::Unknown { field: "version", value: version.into() });
    }
    let name = name(&mut from)?;
    let key: KeySpec = text(&mut from, "key")?.parse()?;
    let spread_of = match from.number::<u8>("spread-of")? {
        0 => SpreadOf::Endpoint,
        1 => SpreadOf::Address,
        2 => SpreadOf::Port,
        value => return Err(SnapshotError::Unknown { field: "spread-of", value: value.into() }),
    };
    let tunnels = match from.number::<u8>("tunnels")? {
        0 => Tunnels::Outer,
        1 => Tunnels::Inner,
        2 => Tunnels::InnerBytes,
        value => return Err(SnapshotError::Unknown { field: "tunnels", value: value.into() }),
    };
    let filter = text(&mut from, "filter")?;
    let filter = (!filter.is_empty()).then(|| Filter::new(filter)).transpose()?;
    let threshold = (version > OF_LANES).then(|| from.threshold()).transpose()?;
    let epoch = epoch(&mut from)?;
    let coverage = coverage::read(&mut from, version != UNTIMED)?;
    let account = read_account(&mut from)?;
    let traffic = match from.number::<u8>("sampled")? {
        0 => None,
        kind @ 1..=ELSEWHERE => Some(traffic(&mut from, kind)?),
        value => return Err(SnapshotError::Unknown { field: "sampled", value: value.into() }),
    };
    if traffic.is_none() && account.skipped != Size::default() {
        return Err(from.invalid("sampled", 0, "packets were skipped, but none sampled").into());
    }
    let times_ns = (from.number("earliest")?, from.number("latest")?);
    let lanes = from.number::<u8>("number of lanes")?;
    if lanes == 0 || usize::from(lanes) > key.lanes().len() {
        return Err(SnapshotError::Unknown { field: "number of lanes", value: lanes.into() });
    }
    let (mut summaries, mut options, mut info) = (Vec::new(), Vec::<Options>::new(), None::<&Info>);
    let (spare, spare_audits) = spare.map_or_else(Default::default, |spare| {
        let Snapshot { info, options, summaries, .. } = spare;
        let lanes = summaries.lanes.into_iter().zip(options);
        (lanes.map(|(summary, options)| (summary, info, options)).collect(), summaries.audits)
    });
    let mut spare = Vec::into_iter(spare);
    for key_bytes in &key.lanes()[..lanes.into()] {
        let frame = from.bytes("lane", bytes.len())?;
        let (summary, known, of_lane) =
            AnySummary::decode(*key_bytes, frame, limit, file, spare.next())?;
        summaries.push(summary);
        let same = |one: &Options| {
            let identity = |of: &Options| {
                (of.by, of.threshold, of.spread, of.hierarchy, of.digester.seed().id())
            };
            identity(one) == identity(&of_lane) && info.is_some_and(|info| info.name == known.name)
        };
        if !options.first().is_none_or(same) {
            return Err(from
                .invalid("lane", frame.len(), "it differs from the first one in its parameters")
                .into());
        }
        options.push(of_lane);
        info = Some(known);
    }
    let (lanes, seed) = (&key.lanes()[..lanes.into()], options[0].digester.seed());
    let audits = audits(&mut from, version, lanes, limit, seed, spare_audits)?;
    let Some(info) = info.filter(|_| from.is_at_end()) else {
        return Err(from.invalid("end", 0, "bytes follow the end of the snapshot").into());
    };
    let summaries = Summaries { lanes: summaries, audits };
    if !adds_up(key, &summaries, &account) {
        return Err(from.invalid("lane", 0, "its flows have more packets than the account").into());
    }
    let first = &options[0];
    let config = Config {
        name,
        key,
        by: first.by,
        algorithm: info.name.to_owned(),
        threshold: threshold.unwrap_or(first.threshold),
        spread: first.spread,
        spread_of,
        hierarchy: first.hierarchy,
        seed: Some(*first.digester.seed()),
        tunnels,
        filter,
        epoch,
        ..Config::default()
    };
    let times_ns = Some(times_ns).filter(|(earliest, latest)| earliest <= latest);
    Ok(Snapshot { config, info, options, summaries, coverage, account, traffic, times_ns })
}

/// Whether the flows of exact tables and the untracked packets sum to no more than the keyed
/// packets, unless keyed packets represent skipped ones. The tasks rely on it.
fn adds_up(key: KeySpec, summaries: &Summaries, account: &Account) -> bool {
    let mut sums = [Some(0u64); 2];
    let mut add = |size: Size| {
        for (sum, by) in sums.iter_mut().zip([Measure::Packets, Measure::Bytes]) {
            *sum = sum.and_then(|sum| sum.checked_add(size.by(by)));
        }
    };
    for answers in summaries.lanes.iter().map(AnySummary::answers) {
        if let Some(flows) = answers.flows() {
            flows.for_each(&mut |_, size| add(size));
            add(answers.untracked());
        }
    }
    // If both ends of a packet are keys, it may count twice.
    let each = if key.kind().is_either() { 2 } else { 1 };
    let keyed = [account.keyed, account.keyed_bytes].map(|keyed| keyed.saturating_mul(each));
    sums.iter().zip(keyed).all(|(sum, keyed)| {
        sum.is_some_and(|sum| sum <= keyed || account.skipped != Size::default())
    })
}

/// Calls `visit` with each stored count, in order. Counts are stored by name, so later versions can
/// add more. `malformed` and `no_key` are the sums of their reasons; the untracked and saturated
/// packets of a summary are stored in its lane.
fn each_count(account: &mut Account, mut visit: impl FnMut(&str, &mut u64)) {
    let Account {
        read,
        skipped,
        filtered,
        malformed: _,
        no_key: _,
        keyed,
        keyed_bytes,
        untracked,
        dropped,
        lost,
        saturated: _,
        late,
        backwards,
        jumps,
        outages,
        reasons,
    } = account;
    visit("read", read);
    visit("skipped", &mut skipped.packets);
    visit("skipped_bytes", &mut skipped.bytes);
    visit("filtered", filtered);
    for (layer, fault) in
        Layer::ALL.iter().flat_map(|layer| Fault::ALL.map(|fault| (*layer, fault)))
    {
        let name = format!("malformed-{}-{}", names::layer(layer).0, names::fault(fault).0);
        visit(&name, reasons.malformed_mut(layer, fault));
    }
    for reason in NoKey::ALL {
        visit(&format!("no_key-{}", names::no_key(reason).0), reasons.no_key_mut(reason));
    }
    visit("keyed", keyed);
    visit("keyed_bytes", keyed_bytes);
    visit("untracked", &mut untracked.packets);
    visit("untracked_bytes", &mut untracked.bytes);
    visit("dropped", &mut dropped.packets);
    visit("dropped_bytes", &mut dropped.bytes);
    visit("lost", lost);
    visit("late", late);
    visit("backwards", backwards);
    visit("jumps", jumps);
    visit("outages", outages);
}

/// The counts of an account by name, without zeros.
fn counts(account: &Account) -> Vec<(String, u64)> {
    let mut counts = Vec::new();
    each_count(&mut account.clone(), |name, count| {
        if *count > 0 {
            counts.push((name.to_owned(), *count));
        }
    });
    counts
}

/// Appends an account.
fn write_account(account: &Account, out: &mut Writer) {
    let counts = counts(account);
    out.number(counts.len() as u8);
    for (name, count) in counts {
        out.bytes(name.as_bytes());
        out.number(count);
    }
}

/// Reads an account, and checks that each packet read is counted once.
fn read_account(from: &mut Reader<'_>) -> Result<Account, DecodeError> {
    let mut counts = Vec::new();
    for _ in 0..from.number::<u8>("number of counts")? {
        counts.push((text(from, "name of a count")?, from.number::<u64>("count")?));
    }
    let (mut account, mut counts) = (Account::default(), counts.into_iter().peekable());
    each_count(&mut account, |name, count| {
        if let Some((_, found)) = counts.next_if(|(next, found)| *next == name && *found > 0) {
            *count = found;
        }
    });
    let invalid = |reason| Err(from.invalid("account", 0, reason));
    if counts.next().is_some() {
        return invalid("a count is 0, out of order or none that this version knows");
    }
    let reasons = account.reasons;
    let malformed = checked_sum(reasons.malformed_reasons().map(|(.., count)| count));
    let no_key = checked_sum(reasons.no_key_reasons().map(|(_, count)| count));
    let (Some(malformed), Some(no_key)) = (malformed, no_key) else {
        return invalid("its counts do not add up");
    };
    (account.malformed, account.no_key) = (malformed, no_key);
    let outcomes = [account.skipped.packets, account.filtered, malformed, no_key, account.keyed];
    if checked_sum(outcomes.into_iter()) != Some(account.read) {
        return invalid("its counts do not add up");
    }
    Ok(account)
}

fn checked_sum(mut counts: impl Iterator<Item = u64>) -> Option<u64> {
    counts.try_fold(0, u64::checked_add)
}

/// The sum of two accounts; `None` if a count would overflow.
pub(super) fn sum_accounts(one: &Account, other: &Account) -> Option<Account> {
    let (mut sum, mut fits, mut others) = (one.clone(), true, Vec::new());
    each_count(&mut other.clone(), |_, count| others.push(*count));
    let mut others = others.into_iter();
    each_count(&mut sum, |_, count| match count.checked_add(others.next().unwrap_or_default()) {
        Some(total) => *count = total,
        None => fits = false,
    });
    (sum.malformed, sum.no_key) = (sum.reasons.malformed(), sum.reasons.no_key());
    fits.then_some(sum)
}
