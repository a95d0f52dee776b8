//! Fields of a frame besides the five-tuple: VLAN, MAC addresses and TCP flags.

use super::ip::FRAGMENT_OFFSET;
use super::{Frame, LinkType, Transport, Tunnels, ethernet, parse_transport};

/// Fields of a frame besides the five-tuple; zero where the frame lacks them.
///
/// ```
/// use flowgauge_core::packet::{Extras, Frame, LinkType, Tunnels};
///
/// let mut bytes = [0; 18];
/// bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]); // source address
/// bytes[12..16].copy_from_slice(&[0x81, 0, 0, 7]); // VLAN 7
/// let frame = Frame { bytes: &bytes, wire: 64, link: LinkType::ETHERNET, time_ns: 0 };
/// let extras = Extras::read(&frame, Tunnels::Outer);
/// assert_eq!(extras.vlan, 7);
/// assert_eq!(extras.macs[..6], [2, 0, 0, 0, 0, 1]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Source MAC address, then destination MAC address.
    pub macs: [u8; 12],
    /// The VLAN ID of the outermost tag.
    pub vlan: u16,
    /// TCP flags, from CWR in the highest bit to FIN in the lowest, of the outer or inner packet as
    /// chosen by `tunnels`.
    pub tcp_flags: u8,
}

impl Extras {
    /// Reads the extras of a frame: the VLAN and both MAC addresses of Ethernet, or the sender's
    /// MAC address of a Linux cooked capture.
    ///
    /// Cost: about 3 ns for TCP and UDP in IPv4 without options in Ethernet; a parse for other
    /// packets.
    pub fn read(frame: &Frame<'_>, tunnels: Tunnels) -> Self {
        let (bytes, mut extras) = (frame.bytes, Self::default());
        match frame.link {
            LinkType::ETHERNET => {
                if let Some(macs) = bytes.first_chunk::<12>() {
                    let (destination, source) = macs.split_at(6);
                    extras.macs[..6].copy_from_slice(source);
                    extras.macs[6..].copy_from_slice(destination);
                }
                extras.vlan = ethernet::vlan_id(bytes).unwrap_or(0);
            }
            LinkType::LINUX_SLL => extras.set_source(bytes.get(4..6), bytes.get(6..12)),
            LinkType::LINUX_SLL2 => extras.set_source(bytes.get(11..12), bytes.get(12..18)),
            _ => {}
        }
        extras.tcp_flags = tcp_flags(frame, tunnels);
        extras
    }

    /// Takes the address if its length is that of a MAC address.
    fn set_source(&mut self, length: Option<&[u8]>, address: Option<&[u8]>) {
        if let (Some([.., 6]), Some(address)) = (length, address) {
            self.macs[..6].copy_from_slice(address);
        }
    }

    /// The extras of the same packet in the opposite direction.
    #[must_use]
    pub fn reversed(mut self) -> Self {
        self.macs.rotate_left(6);
        self
    }
}

/// The TCP flags of the outer or inner packet, as chosen by `tunnels`; 0 without TCP.
///
/// Cost: that of [`Extras::read`].
#[inline]
pub fn tcp_flags(frame: &Frame<'_>, tunnels: Tunnels) -> u8 {
    common_flags(frame, tunnels).unwrap_or_else(|| match parse_transport(frame, tunnels) {
        (.., Some(Transport::Tcp(flags))) => flags,
        _ => 0,
    })
}

/// The TCP flags of a frame that needs no full parse: TCP or UDP in IPv4 without options, in
/// Ethernet with at most one VLAN tag. UDP may be a tunnel.
#[inline]
fn common_flags(frame: &Frame<'_>, tunnels: Tunnels) -> Option<u8> {
    if frame.link != LinkType::ETHERNET {
        return None;
    }
    let bytes = ethernet::behind_tag(frame.bytes).unwrap_or(frame.bytes);
    match bytes.first_chunk::<34>()? {
        [
            ..,
            0x08,
            0x00,
            0x45,
            _,
            high,
            low,
            _,
            _,
            fragment,
            offset,
            _,
            protocol,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
        ] if u16::from_be_bytes([*fragment, *offset]) & FRAGMENT_OFFSET == 0 => match protocol {
            6 if u16::from_be_bytes([*high, *low]) >= 34 => bytes.get(47).copied(),
            17 if !tunnels.are_followed() => Some(0),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(link: LinkType, bytes: &[u8]) -> Frame<'_> {
        Frame { bytes, wire: 100, link, time_ns: 0 }
    }

    /// The reader of common frames must find the flags that the full parser finds, for any bytes.
    #[test]
    fn common_flags_agree_with_the_full_parser() {
        let mut state = 7_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let (mut common, mut flagged) = (0, 0);
        for _ in 0..200_000 {
            let mut bytes = vec![7; 12];
            if random(3) == 0 {
                bytes.extend([0x81, 0, 7, 7]);
            }
            let protocol = [6, 17, 1][random(3) as usize];
            bytes.extend([8, 0, 0x45, 0, 0, random(60) as u8, 7, 7, 0x40, 0, 64, protocol]);
            bytes.resize(80, random(256) as u8);
            for _ in 0..random(3) {
                bytes[12 + random(26) as usize] = random(256) as u8;
            }
            let frame = frame(LinkType::ETHERNET, &bytes[..80 - random(50) as usize]);
            for tunnels in [Tunnels::Outer, Tunnels::Inner] {
                let Some(flags) = common_flags(&frame, tunnels) else { continue };
                let parsed = match parse_transport(&frame, tunnels) {
                    (.., Some(Transport::Tcp(flags))) => flags,
                    _ => 0,
                };
                assert_eq!(flags, parsed, "{:02x?}", frame.bytes);
                (common, flagged) = (common + 1, flagged + u32::from(flags > 0));
            }
        }
        assert!(common > 40_000 && flagged > 20_000, "{common} were common, {flagged} had flags");
    }

    #[test]
    fn addresses_and_tags_by_link_type() {
        let ethernet = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0, 0xe1, 0x23, 8, 0];
        let read = |link, bytes: &[u8]| Extras::read(&frame(link, bytes), Tunnels::Outer);
        let tagged = read(LinkType::ETHERNET, &ethernet);
        assert_eq!(tagged.macs, [7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6]);
        assert_eq!(tagged.vlan, 0x123);
        assert_eq!(tagged.reversed().macs[..6], ethernet[..6]);
        assert_eq!(read(LinkType::ETHERNET, &ethernet[..11]), Extras::default());
        let cooked = [0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0];
        assert_eq!(read(LinkType::LINUX_SLL, &cooked).macs, [1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0]);
        let mut cooked2 = [0; 20];
        cooked2[11..18].copy_from_slice(&[6, 1, 2, 3, 4, 5, 6]);
        assert_eq!(read(LinkType::LINUX_SLL2, &cooked2).macs[..6], [1, 2, 3, 4, 5, 6]);
        cooked2[11] = 8;
        assert_eq!(read(LinkType::LINUX_SLL2, &cooked2), Extras::default());
        assert_eq!(read(LinkType::RAW, &ethernet), Extras::default());
    }
}
