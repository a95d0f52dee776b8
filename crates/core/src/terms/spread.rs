//! Peers of addresses.

/// What counts as a distinct peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadOf {
    /// Address and port.
    Endpoint,
    /// Address.
    Address,
}

impl SpreadOf {
    /// Every choice with its name on the command line.
    pub const ALL: [(&'static str, Self); 2] =
        [("endpoint", Self::Endpoint), ("address", Self::Address)];
}
