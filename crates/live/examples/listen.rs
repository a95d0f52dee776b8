//! Counts the packets of an interface without reading them: the cost of live capture alone.
//!
//! `cargo run --release -p flowgauge-live --example listen -- INTERFACE SECONDS`, as root,
//! prints how many packets were received, and how many the kernel dropped.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use flowgauge_engine::source::{Burst, Columns, Counter, CounterKind, Source, SourceError};
use flowgauge_live::Options;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, interface, seconds] = &arguments[..] else {
        eprintln!("usage: listen INTERFACE SECONDS");
        return ExitCode::from(2);
    };
    let stop = Arc::new(AtomicBool::new(false));
    let (seconds, alarm) = (seconds.parse().unwrap_or(1), Arc::clone(&stop));
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(seconds));
        alarm.store(true, Ordering::Relaxed);
    });
    match listen(interface, &stop) {
        Ok((packets, lost)) => {
            println!("{packets} packets, {lost} dropped by the kernel");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn listen(interface: &str, stop: &Arc<AtomicBool>) -> Result<(usize, u64), SourceError> {
    let mut queues = flowgauge_live::open(interface, &Options::default(), stop)?;
    let source = &mut queues[0];
    let (mut packets, mut columns) = (0, Columns::default());
    loop {
        let mut burst = Burst::new(&mut columns);
        if !source.poll(&mut burst)? {
            break;
        }
        packets += burst.len();
    }
    Ok((packets, Counter::sum(source.counters(), CounterKind::Lost)))
}
