//! Common frames, whose headers the kernel crate reads at once: TCP or UDP in IPv4 without options,
//! or in IPv6 without extension headers, in Ethernet with at most one VLAN tag.

use flowgauge_kernel::{Captured, Cut, Isa, ReadHeaders, Tuple};

use super::{Headers, Ip, LinkType, Ports, ethernet, tunnel};

/// The headers of a common frame. Where `inner` is set, tunnels are not common. `None` implies
/// nothing about the frame.
#[inline(always)]
pub(super) fn packet(
    headers: impl ReadHeaders,
    link: LinkType,
    frame: &[u8],
    inner: bool,
) -> Option<Headers> {
    if link != LinkType::ETHERNET {
        return None;
    }
    if let Some(tuple) = (V4 { headers, inner }).read(frame) {
        return Some(Headers::V4(tuple.into()));
    }
    V6 { headers, inner }.read(frame).map(|tuple| Headers::V6(tuple.into()))
}

/// Reads common packets of one version of IP from frames of Ethernet.
pub(crate) trait Version<const N: usize>: Copy {
    /// The five-tuple of a common packet.
    fn read(self, frame: &[u8]) -> Option<Tuple<N>>;

    /// Writes the five-tuples of the leading common packets to `to`, until it is full. Returns their
    /// number.
    #[inline(always)]
    #[cfg_attr(test, expect(dead_code, reason = "lanes, which unit tests leave out, use it"))]
    fn read_tuples(self, isa: Isa, frames: &[Captured<'_>], to: &mut [Tuple<N>]) -> usize {
        let _ = isa;
        self.read_singly(frames, to, |tuple| *tuple)
    }

    /// As [`Self::read_tuples`], frame by frame, with `of` each five-tuple.
    #[inline(always)]
    fn read_singly<T>(
        self,
        frames: &[Captured<'_>],
        to: &mut [T],
        of: impl Fn(&Tuple<N>) -> T,
    ) -> usize {
        let mut read = 0;
        for (to, frame) in to.iter_mut().zip(frames) {
            let Some(tuple) = self.read(frame.bytes()) else { break };
            *to = of(&tuple);
            read += 1;
        }
        read
    }
}

/// IPv4, without tunnels where `inner` is set.
#[derive(Clone, Copy)]
pub(crate) struct V4<H> {
    pub(crate) headers: H,
    pub(crate) inner: bool,
}

impl<H: ReadHeaders> Version<8> for V4<H> {
    #[inline(always)]
    fn read(self, frame: &[u8]) -> Option<Tuple<8>> {
        let headers = self.headers;
        let untagged = headers.v4(frame);
        let tuple = untagged.or_else(|| headers.v4(ethernet::behind_tag(frame)?))?;
        is_plain(&tuple, self.inner).then_some(tuple)
    }

    #[inline(always)]
    fn read_tuples(self, isa: Isa, frames: &[Captured<'_>], to: &mut [Tuple<8>]) -> usize {
        let mut read = const { Cut::whole() }.keys(isa, frames, to);
        if self.inner {
            read = to[..read].iter().take_while(|tuple| is_plain(tuple, true)).count();
        }
        read + self.read_singly(&frames[read..], &mut to[read..], |tuple| *tuple)
    }
}

/// IPv6, without tunnels where `inner` is set.
#[derive(Clone, Copy)]
pub(crate) struct V6<H> {
    pub(crate) headers: H,
    pub(crate) inner: bool,
}

impl<H: ReadHeaders> Version<32> for V6<H> {
    #[inline(always)]
    fn read(self, frame: &[u8]) -> Option<Tuple<32>> {
        let headers = self.headers;
        let untagged = headers.v6(frame);
        let tuple = untagged.or_else(|| headers.v6(ethernet::behind_tag(frame)?))?;
        is_plain(&tuple, self.inner).then_some(tuple)
    }
}

/// Whether the packet is no tunnel, or tunnels are not followed.
#[inline(always)]
pub(super) fn is_plain<const N: usize>(tuple: &Tuple<N>, inner: bool) -> bool {
    !(inner && tunnel::may_be(&Ip::from(*tuple)))
}

impl<const N: usize> From<Tuple<N>> for Ip<N> {
    #[inline(always)]
    fn from(tuple: Tuple<N>) -> Self {
        let ports = Ports::Found(u32::from_be_bytes(tuple.ports()));
        Self { addresses: tuple.addresses, protocol: tuple.protocol(), ports }
    }
}
