//! Numbers of distinct things.
