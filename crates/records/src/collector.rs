//! The collector: turns the datagrams of all exporters into packets.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use flowgauge_engine::source::Burst;

use crate::account::{Account, Count};
use crate::cursor::Cursor;
use crate::exporter::{Exporter, Format, Reading};
use crate::queue::{Lent, Queue};
use crate::{netflow, sflow};

/// Maximum number of exporters.
pub const EXPORTERS: usize = 1024;

/// Reads datagrams, and keeps the state of their exporters.
///
/// Memory: at most 128 KiB for each of 1,024 exporters, and some megabytes for the records of a
/// datagram.
///
/// ```
/// use flowgauge_records::Collector;
///
/// // NetFlow 5: one record, sampled 1 in 100, of 3 packets and 180 bytes.
/// let mut datagram = [0; 24 + 48];
/// (datagram[1], datagram[3], datagram[23]) = (5, 1, 100);
/// datagram[24..32].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 9]);
/// (datagram[43], datagram[47], datagram[62]) = (3, 180, 17);
///
/// let mut collector = Collector::new(None);
/// collector.take(([192, 0, 2, 1], 2055).into(), &datagram);
/// let lent: Vec<_> = collector.lent().map(|lent| (lent.packets, lent.wire)).collect();
/// assert_eq!(lent, [(300, 60)]);
/// ```
#[derive(Default)]
pub struct Collector {
    /// The sampling interval that overrides what exporters report.
    sampling: Option<u64>,
    exporters: HashMap<IpAddr, Exporter>,
    total: Account,
    queue: Queue,
    datagrams: u64,
    /// Number of lines about exporters so far.
    lines: usize,
    /// Lines that were not taken yet.
    news: Vec<String>,
}

impl Collector {
    /// A collector of records sampled one in `sampling`; with `None`, as exporters report.
    pub fn new(sampling: Option<u64>) -> Self {
        Self { sampling, ..Self::default() }
    }

    /// Reads a datagram. Its packets replace those of the datagram before.
    pub fn take(&mut self, from: SocketAddr, datagram: &[u8]) {
        self.queue.clear();
        self.datagrams += 1;
        let (from, port) = (from.ip().to_canonical(), from.port());
        let is_new = !self.exporters.contains_key(&from);
        if is_new && self.exporters.len() >= EXPORTERS {
            let oldest = self.exporters.iter().min_by_key(|(_, exporter)| exporter.used);
            let oldest = oldest.map(|(address, _)| *address);
            oldest.map(|address| self.exporters.remove(&address));
            self.total.add(Count::ForgottenExporters, 1);
        }
        let exporter = self.exporters.entry(from).or_default();
        exporter.used = self.datagrams;
        let before = exporter.account.clone();
        exporter.account.add(Count::Datagrams, 1);
        let queue = &mut self.queue;
        let mut reading = Reading { exporter, port, queue, sampling: self.sampling };
        let format = read(&mut reading, datagram);
        let exporter = reading.exporter;
        self.total.add_since(&exporter.account, &before);
        let is_first = |count| before.get(count) == 0 && exporter.account.get(count) > 0;
        let (broken, foreign) = (is_first(Count::Malformed), is_first(Count::UnknownVersion));
        if let (true, Some(format)) = (is_new, format) {
            self.say(format!("receiving flow records from {from} ({})", format.name()));
        }
        if broken {
            self.say(format!(
                "a datagram from {from} is cut short or contradicts itself; further ones are counted as \
                 records_malformed"
            ));
        }
        if foreign {
            self.say(format!(
                "a datagram from {from} is not NetFlow 5 or 9, IPFIX or sFlow 5; further ones are \
                 counted as records_unknown_version"
            ));
        }
    }

    /// Keeps a line, unless there were too many, because addresses can be forged.
    fn say(&mut self, line: String) {
        self.lines += 1;
        match self.lines {
            ..=EXPORTERS => self.news.push(line),
            line if line == EXPORTERS + 1 => {
                self.news.push("further exporters of flow records are not named".to_owned());
            }
            _ => {}
        }
    }

    /// Takes the new lines about exporters that are new or cannot be read.
    pub(crate) fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// The packets of the latest datagram that are not lent out yet, record by record.
    pub fn lent(&self) -> impl Iterator<Item = Lent<'_>> {
        self.queue.iter()
    }

    /// Lends out the next packets, all with this time.
    pub fn lend<'a>(&'a mut self, burst: &mut Burst<'a>, time_ns: i64) {
        self.queue.lend(burst, time_ns);
    }

    /// Counts the packets that were not lent out as lost.
    pub(crate) fn abandon(&mut self) {
        self.total.add(Count::LostPackets, self.queue.left());
        self.queue.clear();
    }

    /// Counts datagrams that the kernel dropped.
    pub(crate) fn dropped(&mut self, datagrams: u32) {
        self.total.add(Count::Dropped, datagrams.into());
    }

    /// Counts from zero, with another `sampling`, and keeps what it knows of exporters.
    pub(crate) fn begin(&mut self, sampling: Option<u64>) {
        self.sampling = sampling;
        self.total = Account::default();
        self.exporters.values_mut().for_each(|exporter| exporter.account = Account::default());
    }

    /// Whether all packets were lent out.
    pub fn is_done(&self) -> bool {
        self.queue.is_empty()
    }

    /// The counts of all exporters.
    pub fn total(&self) -> &Account {
        &self.total
    }

    /// The counts of each exporter.
    pub fn accounts(&self) -> impl Iterator<Item = (IpAddr, &Account)> {
        self.exporters.iter().map(|(address, exporter)| (*address, &exporter.account))
    }
}

/// Reads a datagram of any format. Returns its format, if that is known.
fn read(reading: &mut Reading<'_>, datagram: &[u8]) -> Option<Format> {
    let (mut short, mut long) = (Cursor(datagram), Cursor(datagram));
    let (format, read) = match (short.u16(), long.u32()) {
        (Some(5), _) => (Format::NetFlow5, netflow::netflow5(reading, short)),
        (Some(9), _) => (Format::NetFlow9, netflow::netflow9(reading, short)),
        (Some(10), _) => (Format::Ipfix, netflow::ipfix(reading, short)),
        (_, Some(5)) => (Format::SFlow, sflow::read(reading, long)),
        _ => {
            reading.count(Count::UnknownVersion);
            return None;
        }
    };
    if read.is_none() {
        reading.count(Count::Malformed);
    }
    Some(format)
}
