//! The exported information elements, named as in IANA's registry.

/// An information element with the length of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element {
    /// Its number.
    pub(super) number: u16,
    /// Bytes of a value.
    pub(super) len: u16,
    /// The enterprise number; `None` for IANA elements.
    pub(super) enterprise: Option<u32>,
}

impl Element {
    const fn new(number: u16, len: u16) -> Self {
        Self { number, len, enterprise: None }
    }

    /// An enterprise-specific element.
    pub(super) const fn of(enterprise: u32, number: u16) -> Self {
        Self { number, len: 8, enterprise: Some(enterprise) }
    }
}

pub(super) const OCTET_DELTA_COUNT: Element = Element::new(1, 8);
pub(super) const PACKET_DELTA_COUNT: Element = Element::new(2, 8);
pub(super) const PROTOCOL_IDENTIFIER: Element = Element::new(4, 1);
pub(super) const TCP_CONTROL_BITS: Element = Element::new(6, 2);
pub(super) const SOURCE_TRANSPORT_PORT: Element = Element::new(7, 2);
pub(super) const DESTINATION_TRANSPORT_PORT: Element = Element::new(11, 2);
pub(super) const SOURCE_MAC_ADDRESS: Element = Element::new(56, 6);
pub(super) const VLAN_ID: Element = Element::new(58, 2);
pub(super) const DESTINATION_MAC_ADDRESS: Element = Element::new(80, 6);
pub(super) const METERING_PROCESS_ID: Element = Element::new(143, 4);
pub(super) const FLOW_START_MILLISECONDS: Element = Element::new(152, 8);
pub(super) const FLOW_END_MILLISECONDS: Element = Element::new(153, 8);
pub(super) const INFORMATION_ELEMENT_ID: Element = Element::new(303, 2);
pub(super) const ABSOLUTE_ERROR: Element = Element::new(320, 8);
pub(super) const UPPER_CI_LIMIT: Element = Element::new(336, 8);
pub(super) const LOWER_CI_LIMIT: Element = Element::new(337, 8);
pub(super) const CONFIDENCE_LEVEL: Element = Element::new(338, 8);
pub(super) const PRIVATE_ENTERPRISE_NUMBER: Element = Element::new(346, 4);
pub(super) const ORIGINAL_FLOWS_PRESENT: Element = Element::new(375, 8);
pub(super) const DISTINCT_COUNT_OF_SOURCE_IP_ADDRESS: Element = Element::new(378, 8);
pub(super) const DISTINCT_COUNT_OF_DESTINATION_IP_ADDRESS: Element = Element::new(379, 8);

/// The address elements of one end of a flow.
pub(super) struct End {
    /// The host address, for IPv4 and IPv6.
    pub(super) address: [Element; 2],
    /// A prefix.
    pub(super) prefix: [Element; 2],
    /// The prefix length.
    pub(super) prefix_len: [Element; 2],
}

pub(super) const SOURCE: End = End {
    address: [Element::new(8, 4), Element::new(27, 16)],
    prefix: [Element::new(44, 4), Element::new(170, 16)],
    prefix_len: [Element::new(9, 1), Element::new(29, 1)],
};
pub(super) const DESTINATION: End = End {
    address: [Element::new(12, 4), Element::new(28, 16)],
    prefix: [Element::new(45, 4), Element::new(169, 16)],
    prefix_len: [Element::new(13, 1), Element::new(30, 1)],
};

/// Numbers of the enterprise-specific elements, as docs/ipfix.md lists them.
pub(super) mod own {
    /// Entropy of the traffic over flows, in bits.
    pub(in super::super) const ENTROPY: u16 = 1;
    /// Entropy divided by its maximum.
    pub(in super::super) const NORMALIZED_ENTROPY: u16 = 2;
    /// Distinct ports of a host's peers.
    pub(in super::super) const DISTINCT_PORTS: u16 = 3;
    /// Distinct pairs of address and port of a host's peers.
    pub(in super::super) const DISTINCT_ENDPOINTS: u16 = 4;
    /// Packets of a prefix, and its packets outside of heavy prefixes within it.
    pub(in super::super) const PREFIX_PACKETS: [u16; 2] = [5, 6];
    /// Bytes of a prefix, and its bytes outside of heavy prefixes within it.
    pub(in super::super) const PREFIX_BYTES: [u16; 2] = [7, 8];
}
