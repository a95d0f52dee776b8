//! Peers of addresses.

/// What counts as a distinct peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadOf {
    /// Address.
    Address,
    /// Port.
    Port,
    /// Address and port.
    Endpoint,
}

impl SpreadOf {
    /// Every choice with its name on the command line.
    pub const ALL: [(&'static str, Self); 3] =
        [("address", Self::Address), ("port", Self::Port), ("endpoint", Self::Endpoint)];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, of)| *of == self).map_or("", |(name, _)| name)
    }
}
