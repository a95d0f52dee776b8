//! Whole runs, from the bytes of a capture to the JSON lines of its reports.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod account;
mod answers;
mod capture;
mod crew;
mod epochs;
mod findings;
mod hostile;
mod inputs;
mod keys;
mod meters;
mod queues;
mod refusals;
mod sampling;
mod updates;
mod workers;

use flowgauge_capture::Captures;
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::{Config, EngineError, Outcome, Plan};
use serde_json::Value;

/// The reports of a run over `bytes`, and what it came to.
fn run(config: Config, bytes: &[u8]) -> (Vec<Value>, Outcome) {
    run_plan(Plan::new(config).unwrap(), bytes)
}

fn run_plan(plan: Plan, bytes: &[u8]) -> (Vec<Value>, Outcome) {
    let mut out = Vec::new();
    let mut source = Captures::from_bytes("test.pcap", bytes.to_vec());
    let outcome =
        flowgauge_engine::run(plan, &mut source, &mut Written::new(Json, &mut out), &mut |_| {})
            .unwrap();
    let lines = String::from_utf8(out).unwrap();
    (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), outcome)
}

/// The one epoch of a run that has no other.
fn only_epoch(config: Config, bytes: &[u8]) -> Value {
    let (mut lines, _) = run(config, bytes);
    assert_eq!(lines.len(), 2);
    lines.remove(0)
}

fn refusal(config: Config) -> EngineError {
    Plan::new(config).err().unwrap()
}

/// A small configuration with the tasks named.
fn asking(tasks: &[&str]) -> Config {
    Config {
        tasks: Some(tasks.iter().map(|task| (*task).to_owned()).collect()),
        memory_bytes: 16 << 20,
        ..Config::seeded(0)
    }
}
