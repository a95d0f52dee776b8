//! Hand-made datagrams of all formats.
#![allow(dead_code, unreachable_pub, reason = "each test needs some of it")]

use std::net::IpAddr;

/// A flow that an exporter reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub ports: [u16; 2],
    pub protocol: u8,
    pub flags: u8,
    pub packets: u32,
    pub bytes: u32,
}

/// An IPv4 flow with fields derived from one number.
pub fn flow4(number: u32) -> Flow {
    let [_, a, b, c] = number.to_be_bytes();
    Flow {
        source: IpAddr::from([10, a, b, c]),
        destination: IpAddr::from([192, 0, 2, c]),
        ports: [1024 + number as u16 % 1000, 443],
        protocol: if number.is_multiple_of(3) { 17 } else { 6 },
        flags: 0x1b,
        packets: 1 + number % 5,
        bytes: 100 + 7 * number,
    }
}

/// An IPv6 flow with fields derived from one number.
pub fn flow6(number: u32) -> Flow {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
    address[12..].copy_from_slice(&number.to_be_bytes());
    let source = IpAddr::from(address);
    address[8] = 1;
    Flow { source, destination: IpAddr::from(address), ..flow4(number) }
}

/// Bytes in network order.
#[derive(Clone, Default)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    pub fn u8(mut self, number: u8) -> Self {
        self.0.push(number);
        self
    }
    pub fn u16(mut self, number: u16) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }
    pub fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }
    pub fn put(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
    pub fn address(self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => self.put(&address.octets()),
            IpAddr::V6(address) => self.put(&address.octets()),
        }
    }
    /// A set of NetFlow 9 or IPFIX, or a sample of sFlow without its length.
    pub fn set(self, number: u16, contents: &Self) -> Self {
        self.u16(number).u16(contents.0.len() as u16 + 4).put(&contents.0)
    }
}

pub fn netflow5(sequence: u32, sampling: u16, flows: &[Flow]) -> Vec<u8> {
    let header = Bytes::default().u16(5).u16(flows.len() as u16).u32(1000).u32(1_700_000_000);
    let header = header.u32(0).u32(sequence).u16(0x0102).u16(sampling);
    let record = |bytes: Bytes, flow: &Flow| {
        let bytes = bytes.address(flow.source).address(flow.destination).u32(0);
        let bytes = bytes.u16(1).u16(2).u32(flow.packets).u32(flow.bytes).u32(10).u32(20);
        let bytes = bytes.u16(flow.ports[0]).u16(flow.ports[1]).u8(0).u8(flow.flags);
        bytes.u8(flow.protocol).u8(0).u32(0).u32(0)
    };
    flows.iter().fold(header, record).0
}

/// Elements with their lengths, as templates of both formats have them.
pub fn template(number: u16, fields: &[(u16, u16)]) -> Bytes {
    let head = Bytes::default().u16(number).u16(fields.len() as u16);
    fields.iter().fold(head, |bytes, (element, len)| bytes.u16(*element).u16(*len))
}

pub const FIELDS4: [(u16, u16); 8] =
    [(8, 4), (12, 4), (7, 2), (11, 2), (4, 1), (6, 1), (2, 4), (1, 4)];
pub const FIELDS6: [(u16, u16); 8] =
    [(27, 16), (28, 16), (7, 2), (11, 2), (4, 1), (6, 1), (2, 4), (1, 4)];

/// Records by [`FIELDS4`] or [`FIELDS6`].
pub fn records(flows: &[Flow]) -> Bytes {
    flows.iter().fold(Bytes::default(), |bytes, flow| {
        let bytes = bytes.address(flow.source).address(flow.destination);
        let bytes = bytes.u16(flow.ports[0]).u16(flow.ports[1]).u8(flow.protocol).u8(flow.flags);
        bytes.u32(flow.packets).u32(flow.bytes)
    })
}

pub fn netflow9(sequence: u32, source: u32, sets: &Bytes) -> Vec<u8> {
    let header = Bytes::default().u16(9).u16(1).u32(1000).u32(1_700_000_000);
    header.u32(sequence).u32(source).put(&sets.0).0
}

pub fn ipfix(sequence: u32, domain: u32, sets: &Bytes) -> Vec<u8> {
    let header = Bytes::default().u16(10).u16(16 + sets.0.len() as u16).u32(1_700_000_000);
    header.u32(sequence).u32(domain).put(&sets.0).0
}

/// A sample of a packet, with its rate.
#[derive(Clone, Copy)]
pub struct Sample<'a> {
    pub expanded: bool,
    pub one_in: u32,
    /// 1 for Ethernet.
    pub kind: u32,
    pub wire: u32,
    pub header: &'a [u8],
}

pub fn sflow(sequence: u32, samples: &[Sample<'_>]) -> Vec<u8> {
    let head = Bytes::default().u32(5).u32(1).put(&[192, 0, 2, 200]).u32(0).u32(sequence);
    let counters = Bytes::default().u32(7).u32(8).u32(0);
    let head = head.u32(1000).u32(samples.len() as u32 + 1);
    let head = head.u32(2).u32(counters.0.len() as u32).put(&counters.0);
    let sample = |bytes: Bytes, sample: &Sample<'_>| {
        let Sample { expanded, one_in, kind, wire, header } = *sample;
        let padded = header.len().next_multiple_of(4);
        let mut raw = Bytes::default().u32(kind).u32(wire).u32(4).u32(header.len() as u32);
        raw = raw.put(header).put(&[0; 4][..padded - header.len()]);
        let id = if expanded {
            Bytes::default().u32(9).u32(0).u32(3)
        } else {
            Bytes::default().u32(9).u32(3)
        };
        let id = id.u32(one_in).u32(100_000).u32(0);
        let interfaces = if expanded { 4 } else { 2 };
        let id = (0..interfaces).fold(id, Bytes::u32);
        // A record of a skipped type comes first.
        let id = id.u32(2).u32(1001).u32(4).u32(0).u32(1).u32(raw.0.len() as u32).put(&raw.0);
        bytes.u32(if expanded { 3 } else { 1 }).u32(id.0.len() as u32).put(&id.0)
    };
    samples.iter().fold(head, sample).0
}

/// Datagrams of every format and kind of set, in a readable order.
pub fn every() -> Vec<Vec<u8>> {
    let flows4: Vec<_> = (0..20).map(flow4).collect();
    let flows6: Vec<_> = (0..20).map(flow6).collect();
    let options9 = Bytes::default().u16(300).u16(4).u16(12).u16(1).u16(4);
    let options9 = options9.u16(48).u16(1).u16(49).u16(1).u16(50).u16(4).u16(0);
    let sampler9 = Bytes::default().u32(0).u8(3).u8(2).u32(100).u8(0).u8(0);
    let options = Bytes::default().u16(301).u16(4).u16(1);
    let options = options.u16(149).u16(4).u16(302).u16(8).u16(305).u16(4).u16(306).u16(4);
    let sampler = Bytes::default().u32(0).u32(0).u32(5).u32(1).u32(999);
    let varying = template(400, &[(8, 4), (12, 4), (2, 8), (1, 8), (82, u16::MAX)]);
    let own = Bytes::default().u16(401).u16(4).u16(8).u16(4).u16(2).u16(4);
    let own = own.u16(0x8000 | 2).u16(4).u32(29305).u16(0x8000 | 7).u16(2).u32(9);
    let named = Bytes::default().put(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2]);
    let named = named.put(&[0, 0, 0, 0, 0, 0, 0, 99, 3]).put(b"eth");
    let both = Bytes::default().put(&[10, 0, 0, 1]).u32(3).u32(4).u16(0);
    let frame = [&[0; 12][..], &[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0], &[1; 8], &[2; 8]];
    let frame = frame.concat();
    let sample = Sample { expanded: false, one_in: 512, kind: 1, wire: 1000, header: &frame };
    vec![
        netflow5(0, 0x4064, &flows4),
        netflow9(0, 1, &Bytes::default().set(0, &template(256, &FIELDS4)).set(1, &options9)),
        netflow9(1, 1, &Bytes::default().set(256, &records(&flows4)).set(300, &sampler9)),
        ipfix(0, 2, &Bytes::default().set(2, &template(256, &FIELDS6)).set(3, &options)),
        ipfix(0, 2, &Bytes::default().set(256, &records(&flows6)).set(301, &sampler)),
        ipfix(21, 2, &Bytes::default().set(2, &varying).set(2, &own)),
        ipfix(21, 2, &Bytes::default().set(400, &named).set(401, &both)),
        ipfix(23, 2, &Bytes::default().set(2, &template(256, &[])).set(3, &template(3, &[]))),
        sflow(0, &[sample, Sample { expanded: true, ..sample }]),
        sflow(1, &[Sample { kind: 11, header: &frame[14..], ..sample }]),
    ]
}
