#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowgauge_fuzz::snapshots::snapshot(bytes));
