//! The `flowgauge` command.

fn main() {}
