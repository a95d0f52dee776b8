//! Heavy prefixes.
