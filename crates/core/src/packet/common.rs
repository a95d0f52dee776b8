//! Common frames, which the kernel reads in one look: TCP or UDP in IPv4 without options, or in IPv6
//! without extension headers, in Ethernet with at most one VLAN tag.

use flowgauge_kernel::{ReadHeaders, Tuple};

use super::{Headers, Ip, LinkType, Ports, tunnel, vlan};

/// The packet, if the frame is a common one, and no tunnel where `inner` is set. `None` says nothing
/// about the frame.
#[inline(always)]
pub(super) fn packet(
    headers: impl ReadHeaders,
    link: LinkType,
    frame: &[u8],
    inner: bool,
) -> Option<Headers> {
    if let Some(tuple) = v4(headers, link, frame, inner) {
        return Some(Headers::V4(tuple.into()));
    }
    v6(headers, link, frame, inner).map(|tuple| Headers::V6(tuple.into()))
}

/// The five-tuple of such a packet of IPv4.
#[inline(always)]
pub(crate) fn v4(
    headers: impl ReadHeaders,
    link: LinkType,
    frame: &[u8],
    inner: bool,
) -> Option<Tuple<8>> {
    read(link, frame, inner, |untagged| headers.v4(untagged))
}

/// The five-tuple of such a packet of IPv6.
#[inline(always)]
pub(crate) fn v6(
    headers: impl ReadHeaders,
    link: LinkType,
    frame: &[u8],
    inner: bool,
) -> Option<Tuple<32>> {
    read(link, frame, inner, |untagged| headers.v6(untagged))
}

#[inline(always)]
fn read<const N: usize>(
    link: LinkType,
    frame: &[u8],
    inner: bool,
    untagged: impl Fn(&[u8]) -> Option<Tuple<N>>,
) -> Option<Tuple<N>> {
    if link != LinkType::ETHERNET {
        return None;
    }
    let tuple = untagged(frame).or_else(|| untagged(vlan::behind_tag(frame)?))?;
    (!(inner && tunnel::may_be(&Ip::from(tuple)))).then_some(tuple)
}

impl<const N: usize> From<Tuple<N>> for Ip<N> {
    #[inline(always)]
    fn from(tuple: Tuple<N>) -> Self {
        let ports = Ports::Found(u32::from_be_bytes(tuple.ports()));
        Self { addresses: tuple.addresses, protocol: tuple.protocol(), ports }
    }
}
