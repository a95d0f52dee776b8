#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowgauge_fuzz::records::records(bytes));
