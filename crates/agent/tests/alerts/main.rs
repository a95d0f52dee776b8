//! Tests of alerts, from the bytes of generated captures to programs and web hooks.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod losses;
mod notify;
mod rules;
mod traffic;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use flowgauge_agent::alert::notify::{LIMIT, Notifier};
use flowgauge_agent::alert::{Alerts, Board, Rule};
use flowgauge_capture::Captures;
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::Each;
use flowgauge_engine::source::Source;
use flowgauge_engine::{Config, Plan};
use flowgauge_synthetic as synthetic;

/// A log that the test reads.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn rules(yaml: &str) -> BTreeMap<String, Rule> {
    serde_saphyr::from_str(yaml).unwrap()
}

/// Measures generated traffic with these alerts. Returns the log, and the final state of the
/// alerts.
fn watch(config: Config, yaml: &str, traffic: synthetic::Config) -> (Vec<String>, Board) {
    let bytes = synthetic::to_pcap_bytes(synthetic::Traffic::new(traffic).unwrap());
    watch_source(config, yaml, &mut Captures::from_bytes("test.pcap", bytes))
}

/// Like [`watch`], for the packets of a source.
fn watch_source(config: Config, yaml: &str, source: &mut dyn Source) -> (Vec<String>, Board) {
    let rules = rules(yaml);
    for rule in rules.values() {
        rule.check(std::slice::from_ref(&config)).unwrap();
    }
    let log = Log::default();
    let notifier = Notifier::start(Box::new(log.clone()), LIMIT, None).unwrap();
    let mut alerts = Alerts::new(rules, notifier);
    let board = alerts.board();
    let plan = Plan::new(config).unwrap();
    flowgauge_engine::run(plan, source, &mut alerts, &mut |_| {}).unwrap();
    drop(alerts);
    (log.lines(), board)
}

/// The report of a thousand packets, with the number of their flows.
fn sample() -> EpochReport {
    let config = Config { tasks: Some(vec!["cardinality".to_owned()]), ..Config::seeded(1) };
    let traffic = synthetic::Config { packets: 1_000, ..synthetic::Config::default() };
    let bytes = synthetic::to_pcap_bytes(synthetic::Traffic::new(traffic).unwrap());
    let mut source = Captures::from_bytes("test.pcap", bytes);
    let mut kept = None;
    let mut sink = Each(|report: &EpochReport| {
        kept = Some(report.clone());
        Ok(())
    });
    let plan = Plan::new(config).unwrap();
    flowgauge_engine::run(plan, &mut source, &mut sink, &mut |_| {}).unwrap();
    kept.unwrap()
}
