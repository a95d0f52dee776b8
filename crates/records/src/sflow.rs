//! sFlow 5: samples with the first bytes of a packet. Counter samples are skipped.

use std::net::IpAddr;

use flowgauge_core::packet::LinkType;

use crate::account::Count;
use crate::cursor::Cursor;
use crate::exporter::{DomainId, Format, Process, Reading};

const FLOW_SAMPLE: u32 = 1;
const COUNTER_SAMPLE: u32 = 2;
const EXPANDED_FLOW_SAMPLE: u32 = 3;
const EXPANDED_COUNTER_SAMPLE: u32 = 4;
/// A record of a flow sample: the first bytes of a packet.
const RAW_HEADER: u32 = 1;

/// Reads a datagram after its version; `None` if it is cut short.
pub(crate) fn read(reading: &mut Reading<'_>, mut cursor: Cursor<'_>) -> Option<()> {
    let agent = match cursor.u32()? {
        1 => IpAddr::from(cursor.array::<4>()?),
        2 => IpAddr::from(cursor.array::<16>()?),
        _ => return None,
    };
    let (number, sequence) = (cursor.u32()?, cursor.u32()?);
    let id = DomainId { format: Format::SFlow, process: Process::Agent(agent), number };
    reading.exporter.sequence(id, sequence, Some(1), Count::LostDatagrams);
    cursor.take(4)?;
    for _ in 0..cursor.u32()? {
        let (format, len) = (cursor.u32()?, cursor.u32()?);
        let mut sample = cursor.part(usize::try_from(len).ok()?)?;
        match format {
            FLOW_SAMPLE => {
                sample.take(8)?;
                flow(reading, sample, 8)?;
            }
            EXPANDED_FLOW_SAMPLE => {
                sample.take(12)?;
                flow(reading, sample, 16)?;
            }
            COUNTER_SAMPLE | EXPANDED_COUNTER_SAMPLE => {}
            _ => reading.count(Count::NoHeader),
        }
    }
    Some(())
}

/// Reads a flow sample from its sampling rate on. Its interface fields have `interfaces` bytes.
fn flow(reading: &mut Reading<'_>, mut sample: Cursor<'_>, interfaces: usize) -> Option<()> {
    let one_in = u64::from(sample.u32()?);
    // The sample pool and the drops.
    sample.take(8 + interfaces)?;
    for _ in 0..sample.u32()? {
        let (format, len) = (sample.u32()?, sample.u32()?);
        let record = sample.part(usize::try_from(len).ok()?)?;
        if format != RAW_HEADER {
            continue;
        }
        let (link, header, wire) = header(record)?;
        if let Some(link) = link {
            let one_in = reading.sampling.unwrap_or(one_in);
            let account = &mut reading.exporter.account;
            reading.queue.packet((link, header), wire, one_in, account);
            return Some(());
        }
    }
    reading.count(Count::NoHeader);
    Some(())
}

/// The link type of a packet header (if known), its bytes, and the length of the packet.
fn header(mut record: Cursor<'_>) -> Option<(Option<LinkType>, &[u8], u32)> {
    let (protocol, wire) = (record.u32()?, record.u32()?);
    // The number of stripped bytes.
    record.take(4)?;
    let len = usize::try_from(record.u32()?).ok()?;
    let header = record.take(len)?;
    let link = match protocol {
        1 => Some(LinkType::ETHERNET),
        7 => Some(LinkType::PPP),
        11 => Some(LinkType::IPV4),
        12 => Some(LinkType::IPV6),
        _ => None,
    };
    Some((link, header, wire))
}
