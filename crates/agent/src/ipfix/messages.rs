//! Messages of RFC 7011: a header, and sets of templates and records.

use super::record::{Record, Shape};

/// Bytes of a message at most, so that no datagram is cut into fragments on its way.
pub(super) const LONGEST: usize = 1400;

const VERSION: u16 = 10;
const TEMPLATES: u16 = 2;
const OPTIONS_TEMPLATES: u16 = 3;
/// The first number that a template may have.
const FIRST_TEMPLATE: u16 = 256;
const HEADER_BYTES: usize = 16;
const SET_HEADER_BYTES: usize = 4;

/// The templates of a session, each with the number that its place gives it.
#[derive(Default)]
pub(super) struct Templates {
    shapes: Vec<Shape>,
    /// So many of them are known to the collector.
    pub(super) announced: usize,
}

impl Templates {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.shapes.len()
    }

    /// The place of a shape, which is new at the end where there is none.
    fn place(&mut self, shape: &Shape) -> usize {
        let place = self.shapes.iter().position(|known| known == shape);
        place.unwrap_or_else(|| {
            self.shapes.push(shape.clone());
            self.shapes.len() - 1
        })
    }
}

/// What the headers of messages say.
#[derive(Clone, Copy)]
pub(super) struct Head {
    /// Observation domain.
    pub(super) domain: u32,
    /// Seconds since the UNIX epoch.
    pub(super) time: u32,
    /// Data records before this message in the session.
    pub(super) sequence: u32,
}

/// The messages with these records, behind the templates that the collector does not know.
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
            // nfacctd reads the first of a set alone, and drops the message for the others.
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

/// A template as it is sent.
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
    /// Number of the last message's last set, and where it begins.
    set: Option<(u16, usize)>,
}

impl Messages {
    /// Adds a template or a record to a set of this number.
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

    /// Begins a message.
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
