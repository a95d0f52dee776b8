//! NetFlow 5: records of 48 bytes behind a header of 24.

use std::net::IpAddr;

use crate::account::Count;
use crate::cursor::Cursor;
use crate::exporter::{Format, Reading};
use crate::record::Record;

/// The bits of the sampling field that are the rate; the two above them name the method.
const RATE: u16 = 0x3fff;

/// Reads a datagram behind its version; `None` where it ends too early.
pub(crate) fn read(reading: &mut Reading<'_>, mut cursor: Cursor<'_>) -> Option<()> {
    let count = cursor.u16()?;
    cursor.take(12)?;
    let sequence = cursor.u32()?;
    let engine = u32::from(cursor.u16()?);
    let one_in = u64::from((cursor.u16()? & RATE).max(1));
    let id = (Format::NetFlow5, engine);
    reading.exporter.sequence(id, sequence, Some(u32::from(count)), Count::LostRecords);
    for _ in 0..count {
        let record = record(&mut cursor)?;
        reading.flow(&record, one_in);
    }
    Some(())
}

fn record(cursor: &mut Cursor<'_>) -> Option<Record> {
    let source = IpAddr::from(cursor.array::<4>()?);
    let destination = IpAddr::from(cursor.array::<4>()?);
    cursor.take(8)?;
    let (packets, bytes) = (cursor.u32()?, cursor.u32()?);
    cursor.take(8)?;
    let (source_port, destination_port) = (cursor.u16()?, cursor.u16()?);
    let [_, tcp_flags, protocol] = cursor.array()?;
    cursor.take(9)?;
    Some(Record {
        source,
        destination,
        source_port,
        destination_port,
        protocol,
        tcp_flags,
        icmp: destination_port.to_be_bytes(),
        packets: u64::from(packets),
        bytes: u64::from(bytes),
    })
}
