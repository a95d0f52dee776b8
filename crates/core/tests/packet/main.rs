//! The header parser: each clause of its contract on frames made by hand, its totality on frames
//! made at random, and its answers beside those of another parser.

mod frames;
mod ip;
mod lanes;
mod line;
mod link;
mod peer;
mod total;
mod tunnels;
mod wifi;

use flowgauge_core::packet::{Fault, Headers, Layer, LinkType, Malformed, parse};

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
