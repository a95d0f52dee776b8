//! What the first bytes of a frame are, by the hardware type of its interface.

use flowgauge_core::packet::LinkType;

/// Raw IP of mobile networks, which has no name among the constants.
const ARPHRD_RAWIP: u16 = 519;

/// The link type of a hardware type (`ARPHRD_…`), where it is understood.
#[inline]
pub(crate) fn link(hardware: u16) -> Option<LinkType> {
    match hardware {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(LinkType::ETHERNET),
        libc::ARPHRD_NONE
        | libc::ARPHRD_TUNNEL
        | libc::ARPHRD_TUNNEL6
        | libc::ARPHRD_SIT
        | ARPHRD_RAWIP => Some(LinkType::RAW),
        libc::ARPHRD_CISCO => Some(LinkType::C_HDLC),
        libc::ARPHRD_IEEE80211 => Some(LinkType::IEEE802_11),
        libc::ARPHRD_IEEE80211_RADIOTAP => Some(LinkType::IEEE802_11_RADIOTAP),
        _ => None,
    }
}
