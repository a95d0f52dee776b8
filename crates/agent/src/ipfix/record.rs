//! Data records and their templates.

use std::net::IpAddr;

use super::element::{Element, End};

/// A template: elements, optionally starting with a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Number of scope elements; 0 unless it is an options template.
    pub(super) scope: u16,
    /// All elements, in order.
    pub(super) elements: Vec<Element>,
}

/// A data record.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) shape: Shape,
    /// The values.
    pub(super) bytes: Vec<u8>,
}

impl Record {
    /// Adds a value; the element determines its length.
    pub(super) fn put(&mut self, element: Element, value: &[u8]) {
        debug_assert_eq!(usize::from(element.len), value.len(), "{element:?}");
        self.shape.elements.push(element);
        self.bytes.extend_from_slice(value);
    }

    /// Adds a byte.
    pub(super) fn put_u8(&mut self, element: Element, value: u8) {
        self.put(element, &[value]);
    }

    /// Adds a number of two bytes.
    pub(super) fn put_u16(&mut self, element: Element, value: u16) {
        self.put(element, &value.to_be_bytes());
    }

    /// Adds a number of four bytes.
    pub(super) fn put_u32(&mut self, element: Element, value: u32) {
        self.put(element, &value.to_be_bytes());
    }

    /// Adds a number of eight bytes.
    pub(super) fn put_u64(&mut self, element: Element, value: u64) {
        self.put(element, &value.to_be_bytes());
    }

    /// Adds a real number.
    pub(super) fn put_f64(&mut self, element: Element, value: f64) {
        self.put(element, &value.to_be_bytes());
    }

    /// Adds an address, or with `bits`, a prefix of that length.
    pub(super) fn put_address(&mut self, end: &End, address: IpAddr, bits: Option<u8>) {
        let version = usize::from(address.is_ipv6());
        let element = if bits.is_some() { end.prefix[version] } else { end.address[version] };
        match address {
            IpAddr::V4(address) => self.put(element, &address.octets()),
            IpAddr::V6(address) => self.put(element, &address.octets()),
        }
        if let Some(bits) = bits {
            self.put_u8(end.prefix_len[version], bits);
        }
    }

    /// Ends the scope: the elements so far are the subject of the following ones.
    pub(super) fn end_scope(&mut self) {
        self.shape.scope = self.shape.elements.len() as u16;
    }
}
