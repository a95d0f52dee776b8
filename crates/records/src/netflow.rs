//! NetFlow 5, with records of 48 bytes; NetFlow 9 and IPFIX, with sets of templates and of records
//! that follow them.

use std::net::IpAddr;

use crate::account::Count;
use crate::cursor::Cursor;
use crate::exporter::{DomainId, Format, Reading, Scope};
use crate::record::Record;
use crate::template::{Element, Field, Template};

/// The bits of the sampling field that hold the rate; the two above them hold the method.
const RATE: u16 = 0x3fff;

/// Reads a datagram of NetFlow 5 after its version; `None` if it is cut short.
pub(crate) fn netflow5(reading: &mut Reading<'_>, mut cursor: Cursor<'_>) -> Option<()> {
    let count = cursor.u16()?;
    cursor.take(12)?;
    let sequence = cursor.u32()?;
    let engine = u32::from(cursor.u16()?);
    let one_in = u64::from((cursor.u16()? & RATE).max(1));
    let id = reading.domain(Format::NetFlow5, engine);
    reading.exporter.sequence(id, sequence, Some(u32::from(count)), Count::LostRecords);
    for _ in 0..count {
        let record = record5(&mut cursor)?;
        reading.flow(&record, one_in);
    }
    Some(())
}

fn record5(cursor: &mut Cursor<'_>) -> Option<Record> {
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

/// The lowest number of a template, and so of a set of records.
const FIRST_TEMPLATE: u16 = 256;
/// In IPFIX, the bit of an element's number that is set if an enterprise number follows.
const ENTERPRISE: u16 = 1 << 15;

/// Reads a datagram of NetFlow 9 after its version; `None` if it is cut short.
pub(crate) fn netflow9(reading: &mut Reading<'_>, mut cursor: Cursor<'_>) -> Option<()> {
    // The count of records, and times.
    cursor.take(10)?;
    let (sequence, source) = (cursor.u32()?, cursor.u32()?);
    let domain = reading.domain(Format::NetFlow9, source);
    reading.exporter.sequence(domain, sequence, Some(1), Count::LostDatagrams);
    sets(reading, domain, cursor, &mut Seen::default())
}

/// Reads a message of IPFIX after its version; `None` if it is cut short.
pub(crate) fn ipfix(reading: &mut Reading<'_>, mut cursor: Cursor<'_>) -> Option<()> {
    const HEADER: usize = 16;
    // Version and length.
    const BEFORE: usize = 4;
    let len = usize::from(cursor.u16()?);
    let mut message = cursor.part(len.checked_sub(BEFORE).filter(|_| len >= HEADER)?)?;
    message.take(4)?;
    let (sequence, source) = (message.u32()?, message.u32()?);
    let domain = reading.domain(Format::Ipfix, source);
    let mut seen = Seen::default();
    let read = sets(reading, domain, message, &mut seen);
    // Records of an unknown template, or after damage, cannot be counted.
    let step = (!seen.unknown && read.is_some()).then_some(seen.records);
    reading.exporter.sequence(domain, sequence, step, Count::LostRecords);
    read
}

/// The records of a message.
#[derive(Default)]
struct Seen {
    records: u32,
    /// Whether it had records of an unknown template.
    unknown: bool,
}

fn sets(
    reading: &mut Reading<'_>,
    domain: DomainId,
    mut cursor: Cursor<'_>,
    seen: &mut Seen,
) -> Option<()> {
    const HEADER: usize = 4;
    while cursor.len() >= HEADER {
        let (number, len) = (cursor.u16()?, usize::from(cursor.u16()?));
        let set = cursor.part(len.checked_sub(HEADER)?)?;
        match (domain.format, number) {
            (Format::NetFlow9, 0) | (Format::Ipfix, 2) => templates(reading, domain, set, false)?,
            (Format::NetFlow9, 1) | (Format::Ipfix, 3) => templates(reading, domain, set, true)?,
            (_, FIRST_TEMPLATE..) => records(reading, domain, number, set, seen)?,
            // A set of a later version.
            _ => {}
        }
    }
    Some(())
}

fn templates(
    reading: &mut Reading<'_>,
    domain: DomainId,
    mut set: Cursor<'_>,
    options: bool,
) -> Option<()> {
    let is_ipfix = domain.format == Format::Ipfix;
    // Fewer bytes are padding.
    while set.len() >= 4 {
        let number = set.u16()?;
        let mut count = usize::from(set.u16()?);
        if is_ipfix && count == 0 {
            // Padding, or a withdrawal, which does not count over UDP (RFC 7011, 8.4): it could
            // come late, or from someone else.
            continue;
        }
        // Fields with a type of scope in place of an element.
        let mut scopes = 0;
        match (options, is_ipfix) {
            // The number of scope fields, which `count` includes.
            (true, true) => drop(set.u16()?),
            // The lengths of scope fields and other fields, in bytes.
            (true, false) => {
                scopes = count / 4;
                count = (count + usize::from(set.u16()?)) / 4;
            }
            (false, _) => {}
        }
        if number == 0 && count == 0 {
            // Padding.
            continue;
        }
        let mut fields = Vec::with_capacity(count.min(set.len() / 4));
        for at in 0..count {
            fields.push(if at < scopes {
                Field::new(Element::scope9(set.u16()?), set.u16()?, false)
            } else {
                field(&mut set, is_ipfix)?
            });
        }
        let template = Template::new(fields, options).filter(|_| number >= FIRST_TEMPLATE);
        let Some(template) = template else {
            // Its records do not follow the template before.
            reading.exporter.withdraw(domain, number);
            reading.count(Count::RefusedTemplates);
            continue;
        };
        reading.exporter.keep(domain, number, template);
    }
    Some(())
}

fn field(set: &mut Cursor<'_>, is_ipfix: bool) -> Option<Field> {
    let (number, len) = (set.u16()?, set.u16()?);
    let element = if is_ipfix && number & ENTERPRISE != 0 {
        Element::new(Some(set.u32()?), number & !ENTERPRISE)
    } else {
        Element::new(None, number)
    };
    Some(Field::new(element, len, is_ipfix))
}

fn records(
    reading: &mut Reading<'_>,
    domain: DomainId,
    number: u16,
    mut set: Cursor<'_>,
    seen: &mut Seen,
) -> Option<()> {
    let Some(template) = reading.exporter.template(domain, number) else {
        seen.unknown = true;
        reading.count(Count::UnknownTemplate);
        return Some(());
    };
    // Fewer bytes are padding.
    while set.len() >= template.least {
        let values = template.read(&mut set)?;
        seen.records += 1;
        if template.options {
            if let Some(one_in) = values.one_in() {
                let of_interface = values.interface().map(Scope::Interface);
                let scope = values.sampler().map(Scope::Sampler).or(of_interface);
                reading.exporter.set_sampler(domain, scope.unwrap_or(Scope::All), one_in);
            }
            continue;
        }
        let Some(record) = values.record() else {
            reading.count(Count::NoFlow);
            continue;
        };
        let sampler = || reading.exporter.sampler(domain, values.sampler(), values.interface());
        let one_in = values.one_in().or_else(sampler);
        // Sampler 0 takes all packets.
        if one_in.is_none() && values.sampler() > Some(0) && reading.sampling.is_none() {
            reading.count(Count::UnknownRate);
        }
        let one_in = one_in.unwrap_or(1);
        reading.flow(&record, one_in);
        if let Some(reverse) = values.reverse(&record) {
            reading.flow(&reverse, one_in);
        }
    }
    Some(())
}
