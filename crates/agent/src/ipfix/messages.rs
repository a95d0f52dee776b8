//! Messages of RFC 7011: a header, then sets of templates and records.

use super::records::{Record, Shape};

/// Maximum message size in bytes, so that datagrams are not fragmented.
pub(super) const LONGEST: usize = 1400;

const VERSION: u16 = 10;
const TEMPLATES: u16 = 2;
const OPTIONS_TEMPLATES: u16 = 3;
/// The smallest valid template number.
const FIRST_TEMPLATE: u16 = 256;
const HEADER_BYTES: usize = 16;
const SET_HEADER_BYTES: usize = 4;

/// The templates of a session. A template's position gives its number.
#[derive(Default)]
pub(super) struct Templates {
    shapes: Vec<Shape>,
    /// Number of templates that the collector knows.
    pub(super) announced: usize,
}

impl Templates {
    /// Number of templates.
    pub(super) fn len(&self) -> usize {
        self.shapes.len()
    }

    /// The position of a shape. Appends a new shape.
    fn place(&mut self, shape: &Shape) -> usize {
        let place = self.shapes.iter().position(|known| known == shape);
        place.unwrap_or_else(|| {
            self.shapes.push(shape.clone());
            self.shapes.len() - 1
        })
    }
}

/// Values for message headers.
#[derive(Clone, Copy)]
pub(super) struct Head {
    /// Observation domain.
    pub(super) domain: u32,
    /// Seconds since the UNIX epoch.
    pub(super) time: u32,
    /// Data records sent in the session before this message.
    pub(super) sequence: u32,
}

/// The messages with these records, preceded by templates that the collector does not know.
pub(super) fn messages(templates: &mut Templates, head: Head, records: &[Record]) -> Vec<Vec<u8>> {
    let mut placed: Vec<_> =
        records.iter().map(|record| (templates.place(&record.shape), record)).collect();
    // Records of one template share a set.
    placed.sort_by_key(|(place, _)| *place);
    let mut messages = Messages { head, list: Vec::new(), set: None };
    for (place, shape) in templates.shapes.iter().enumerate().skip(templates.announced) {
        let set = if shape.scope == 0 { TEMPLATES } else { OPTIONS_TEMPLATES };
        messages.add(set, &template(number(place), shape));
        if set == OPTIONS_TEMPLATES {
            // nfacctd reads only the first template of a set, and drops the message for the others.
            messages.set = None;
        }
    }
    for (place, record) in placed {
        messages.add(number(place), &record.bytes);
        messages.head.sequence = messages.head.sequence.wrapping_add(1);
    }
    messages.list
}

fn number(place: usize) -> u16 {
    FIRST_TEMPLATE + place as u16
}

/// The encoding of a template.
fn template(number: u16, shape: &Shape) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut put = |value: u16| bytes.extend_from_slice(&value.to_be_bytes());
    put(number);
    put(shape.elements.len() as u16);
    if shape.scope > 0 {
        put(shape.scope);
    }
    for element in &shape.elements {
        let is_own = u16::from(element.enterprise.is_some()) << 15;
        put(element.number | is_own);
        put(element.len);
        if let Some(enterprise) = element.enterprise {
            put((enterprise >> 16) as u16);
            put(enterprise as u16);
        }
    }
    bytes
}

struct Messages {
    /// The header of the next message.
    head: Head,
    list: Vec<Vec<u8>>,
    /// Number and start of the current set.
    set: Option<(u16, usize)>,
}

impl Messages {
    /// Adds a template or a record to a set with this number.
    fn add(&mut self, set: u16, bytes: &[u8]) {
        let open = self.set.filter(|(number, _)| *number == set);
        let header = if open.is_some() { 0 } else { SET_HEADER_BYTES };
        let fits = |message: &Vec<u8>| message.len() + header + bytes.len() <= LONGEST;
        let begins = match self.list.last() {
            Some(message) if fits(message) => open.map(|(_, begins)| begins),
            _ => {
                self.begin();
                None
            }
        };
        let Some(message) = self.list.last_mut() else { return };
        let begins = begins.unwrap_or_else(|| {
            message.extend_from_slice(&set.to_be_bytes());
            message.extend_from_slice(&[0; 2]);
            message.len() - SET_HEADER_BYTES
        });
        message.extend_from_slice(bytes);
        let [message_len, set_len] = [message.len(), message.len() - begins];
        message[2..4].copy_from_slice(&(message_len as u16).to_be_bytes());
        message[begins + 2..begins + 4].copy_from_slice(&(set_len as u16).to_be_bytes());
        self.set = Some((set, begins));
    }

    /// Starts a message.
    fn begin(&mut self) {
        let mut message = Vec::with_capacity(LONGEST);
        message.extend_from_slice(&VERSION.to_be_bytes());
        message.extend_from_slice(&(HEADER_BYTES as u16).to_be_bytes());
        for value in [self.head.time, self.head.sequence, self.head.domain] {
            message.extend_from_slice(&value.to_be_bytes());
        }
        self.list.push(message);
        self.set = None;
    }
}
