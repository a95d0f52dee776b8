//! The header parser: each clause of its contract on handmade frames, its totality on random
//! frames, and its results against those of another parser.

mod frames;
mod ip;
mod link;
mod peer;
mod total;

use flowgauge_core::packet::{Fault, Headers, Layer, LinkType, Malformed, NoKey, parse};

use frames::{ipv4, ipv6, tcp, udp};

fn malformed(layer: Layer, offset: u32, fault: Fault) -> Malformed {
    Malformed { layer, offset, fault }
}

fn cut(layer: Layer, offset: u32) -> Headers {
    Headers::Malformed(malformed(layer, offset, Fault::Cut))
}

fn contradiction(layer: Layer, offset: u32) -> Headers {
    Headers::Malformed(malformed(layer, offset, Fault::Contradiction))
}

fn ethernet(frame: &[u8]) -> Headers {
    parse(LinkType::ETHERNET, frame)
}

/// An IPv4 packet with UDP to port 53.
fn v4() -> Vec<u8> {
    ipv4(17, &udp(53, &[]))
}

/// An IPv6 packet with TCP.
fn v6() -> Vec<u8> {
    ipv6(6, &tcp())
}

fn no_key(reason: NoKey) -> Headers {
    Headers::NoKey(reason)
}
