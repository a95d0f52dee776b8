//! NetFlow 9 and IPFIX: sets of templates, and of records that follow them.

use crate::account::Count;
use crate::cursor::Cursor;
use crate::element::Element;
use crate::exporter::{DomainId, Format, Reading};
use crate::template::{Field, Template};

/// The first number of a set of records, which is that of their template.
const FIRST_TEMPLATE: u16 = 256;
/// In IPFIX, the bit of an element's number that says that an enterprise follows.
const ENTERPRISE: u16 = 1 << 15;

/// Reads a datagram of NetFlow 9 behind its version; `None` where it ends too early.
pub(crate) fn netflow9(reading: &mut Reading<'_>, mut cursor: Cursor<'_>) -> Option<()> {
    // The count of records, and times.
    cursor.take(10)?;
    let (sequence, source) = (cursor.u32()?, cursor.u32()?);
    let domain = (Format::NetFlow9, source);
    reading.exporter.sequence(domain, sequence, Some(1), Count::LostDatagrams);
    sets(reading, domain, cursor, &mut Seen::default())
}

/// The same of IPFIX.
pub(crate) fn ipfix(reading: &mut Reading<'_>, mut cursor: Cursor<'_>) -> Option<()> {
    const HEADER: usize = 16;
    // Version and length.
    const BEFORE: usize = 4;
    let len = usize::from(cursor.u16()?);
    let mut message = cursor.part(len.checked_sub(BEFORE).filter(|_| len >= HEADER)?)?;
    message.take(4)?;
    let (sequence, source) = (message.u32()?, message.u32()?);
    let domain = (Format::Ipfix, source);
    let mut seen = Seen::default();
    let read = sets(reading, domain, message, &mut seen);
    // Records that cannot be read cannot be counted.
    let step = (!seen.unknown && read.is_some()).then_some(seen.records);
    reading.exporter.sequence(domain, sequence, step, Count::LostRecords);
    read
}

/// Records of a message.
#[derive(Default)]
struct Seen {
    records: u32,
    /// Whether there were some of an unknown template.
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
        match (domain.0, number) {
            (Format::NetFlow9, 0) | (Format::Ipfix, 2) => templates(reading, domain, set, false)?,
            (Format::NetFlow9, 1) | (Format::Ipfix, 3) => templates(reading, domain, set, true)?,
            (_, FIRST_TEMPLATE..) => records(reading, domain, number, set, seen)?,
            // Of a later version.
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
    let is_ipfix = domain.0 == Format::Ipfix;
    // What is shorter is padding.
    while set.len() >= 4 {
        let number = set.u16()?;
        let mut count = usize::from(set.u16()?);
        if is_ipfix && count == 0 {
            // The number of a set withdraws all of its kind; zeros are padding.
            match number {
                FIRST_TEMPLATE.. => reading.exporter.withdraw(domain, number),
                2 | 3 => reading.exporter.withdraw_all(domain, number == 3),
                _ => {}
            }
            continue;
        }
        match (options, is_ipfix) {
            // Of all fields, so many are the scope.
            (true, true) => drop(set.u16()?),
            // Both are told in bytes.
            (true, false) => count = (count + usize::from(set.u16()?)) / 4,
            (false, _) => {}
        }
        if number == 0 && count == 0 {
            // Padding.
            continue;
        }
        let mut fields = Vec::with_capacity(count.min(set.len() / 4));
        for _ in 0..count {
            fields.push(field(&mut set, is_ipfix)?);
        }
        match Template::new(fields, options).filter(|_| number >= FIRST_TEMPLATE) {
            Some(template) => reading.exporter.keep(domain, number, template),
            None => reading.count(Count::RefusedTemplates),
        }
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
    // What is shorter is padding.
    while set.len() >= template.least {
        let values = template.read(&mut set)?;
        seen.records += 1;
        if template.options {
            if let Some(one_in) = values.one_in() {
                reading.exporter.set_sampler(domain, values.sampler(), one_in);
            }
            continue;
        }
        let Some(record) = values.record() else {
            reading.count(Count::NoFlow);
            continue;
        };
        let told = values.one_in();
        let one_in = told.or_else(|| reading.exporter.sampler(domain, values.sampler()));
        let one_in = one_in.unwrap_or(1);
        reading.flow(&record, one_in);
        if let Some((packets, bytes)) = values.reverse() {
            reading.flow(&record.reverse(packets, bytes), one_in);
        }
    }
    Some(())
}
