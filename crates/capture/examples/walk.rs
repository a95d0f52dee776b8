//! Walks the records of captures without reading packets: the cost of reading files alone.
//!
//! `cargo run --release -p flowgauge-capture --example walk -- FILE…` prints the number of packets.

use std::process::ExitCode;

use flowgauge_capture::Captures;
use flowgauge_engine::source::{Burst, Columns, Source};

fn main() -> ExitCode {
    let mut captures = Captures::open(std::env::args_os().skip(1));
    let (mut packets, mut columns) = (0, Columns::default());
    loop {
        let mut burst = Burst::new(&mut columns);
        match captures.poll(&mut burst) {
            Ok(true) => packets += burst.len(),
            Ok(false) => break,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{packets}");
    ExitCode::SUCCESS
}
