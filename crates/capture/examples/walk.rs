//! Walks the records of captures and looks into no packet: what reading alone costs.
//!
//! `cargo run --release -p flowgauge-capture --example walk -- FILE…` prints how many there are.

use std::process::ExitCode;

use flowgauge_capture::{Captures, Source};

fn main() -> ExitCode {
    let mut captures = Captures::open(std::env::args_os().skip(1));
    let mut packets = 0;
    loop {
        match captures.poll() {
            Ok(Some(frames)) => packets += frames.frames.len(),
            Ok(None) => break,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{packets}");
    ExitCode::SUCCESS
}
