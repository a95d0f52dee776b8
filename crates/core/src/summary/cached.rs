//! Which arrays are worth a prefetch.

/// An array of so many bytes is in a cache that the processor reaches in time by looking ahead by
/// itself: asking for its lines costs more than it spares.
pub(crate) const CACHED_BYTES: usize = 1 << 20;
