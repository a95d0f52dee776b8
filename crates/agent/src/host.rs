//! Parsing of host names with ports.

/// Whether a text is a name or an address with a port; an IPv6 address needs brackets.
pub(crate) fn has_port(text: &str) -> bool {
    let Some((name, port)) = text.rsplit_once(':') else { return false };
    let is_bracketed = name.starts_with('[') && name.ends_with(']');
    let is_name = !name.is_empty() && (is_bracketed || !name.contains([':', '/', '@']));
    let is_one = !name.contains([',', ' ']);
    is_name && is_one && matches!(port.parse::<u16>(), Ok(1..))
}
