//! The console: a web page that shows the agent's reports live.
//!
//! It uses the script of HTML reports, and loads everything from the agent.

mod history;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flowgauge_engine::account::Account;
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::{Format, Html, Item, Sink, SinkError, Takes, rfc3339};
use futures_util::Stream;
use futures_util::stream::{iter, unfold};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};

use crate::Failure;
use crate::alert::Board;
use crate::anonymize::Method;
use crate::deliveries::Deliveries;
use crate::http::{Access, Health, listen};
use crate::lines::Lines;
use crate::replay::now_ns;
use history::Past;
use history::{History, Point};

/// Reports kept per measurement: as many as the page shows.
const EPOCHS: usize = 120;

/// Memory limit in bytes for all kept reports.
const BYTES: usize = 8 << 20;

/// Reports queued per reader. A slower reader misses some.
const WAITING: usize = 32;

/// Content security policy of the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Where the console is served, and to whom.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// Address and port, such as `127.0.0.1:8469`.
    #[serde(deserialize_with = "listen")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub listen: SocketAddr,
    /// File with the token that clients present as `Authorization: Bearer`; needed where the address is
    /// not of this host alone, and of no use to others than the owner of the file.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Makes addresses anonymous in what this sink gets.
    #[serde(default)]
    pub anonymize: Option<Method>,
}

impl Options {
    /// The address and the token.
    pub fn access(&self) -> Access {
        Access { listen: self.listen, token_file: self.token_file.clone() }
    }
}

/// The latest reports, for browsers.
pub struct Console {
    agent: String,
    /// The measurements, in the order of the configuration file.
    measurements: Vec<String>,
    board: Board,
    health: Health,
    deliveries: Deliveries,
    /// Start of collection.
    since_ns: i64,
    kept: Mutex<Kept>,
    events: Sender<Arc<str>>,
}

/// The latest reports as JSON, oldest first, with their total bytes, and the histories.
#[derive(Default)]
struct Kept {
    reports: VecDeque<(Arc<str>, Arc<str>)>,
    bytes: usize,
    measured: BTreeMap<Arc<str>, Measured>,
}

/// Totals of a measurement since the start, and its last day.
#[derive(Default)]
struct Measured {
    account: Account,
    epochs: u64,
    empty_epochs: u64,
    undelivered: u64,
    /// Start and end of the newest epoch.
    newest_ns: Option<(i64, i64)>,
    history: History,
}

impl Measured {
    /// Adds a report. Returns the previous point if this report completes it.
    fn add(&mut self, report: &EpochReport) -> Option<Point> {
        self.undelivered += report.undelivered;
        let is_before = |(newest_ns, _)| report.start_ns.is_some_and(|own_ns| own_ns <= newest_ns);
        if report.network.is_some() && self.newest_ns.is_some_and(is_before) {
            // A correction of an epoch that is already counted.
            return None;
        }
        self.account.add(&report.account);
        self.epochs += 1;
        self.newest_ns = report.start_ns.zip(report.end_ns).or(self.newest_ns);
        let point = Point::of(report)?;
        let before = self.history.newest().copied();
        self.history.add(&point);
        before.filter(|before| before.minute() != point.minute())
    }

    /// Totals and the newest point of the history.
    fn json(&self, measurement: &str) -> Value {
        let account = &self.account;
        json!({
            "measurement": measurement,
            "epochs": self.epochs,
            "empty_epochs": self.empty_epochs,
            "newest_start": self.newest_ns.map(|(start_ns, _)| rfc3339(start_ns)),
            "newest_end": self.newest_ns.map(|(_, end_ns)| rfc3339(end_ns)),
            "packets": account.keyed,
            "lost": account.lost,
            "dropped": account.dropped.packets,
            "untracked": account.untracked.packets,
            "late": account.late,
            "undelivered": self.undelivered,
            "point": self.history.newest().map(Point::json),
        })
    }
}

impl Kept {
    fn add(&mut self, measurement: &Arc<str>, line: &Arc<str>) {
        self.bytes += line.len();
        self.reports.push_back((Arc::clone(measurement), Arc::clone(line)));
        let is_own = |(of, _): &&(Arc<str>, Arc<str>)| of == measurement;
        if self.reports.iter().filter(is_own).count() > EPOCHS {
            let oldest = self.reports.iter().position(|(of, _)| of == measurement);
            self.remove(oldest.unwrap_or_default());
        }
        while self.bytes > BYTES && self.reports.len() > 1 {
            self.remove(0);
        }
    }

    fn remove(&mut self, place: usize) {
        self.bytes -= self.reports.remove(place).map_or(0, |(_, line)| line.len());
    }

    /// The histories of all measurements that had a report.
    fn histories(&self) -> impl Iterator<Item = (&str, &History)> + Clone {
        self.measured.iter().map(|(name, measured)| (&**name, &measured.history))
    }

    fn of(&mut self, measurement: &Arc<str>) -> &mut Measured {
        self.measured.entry(Arc::clone(measurement)).or_default()
    }

    /// The latest report of each of these measurements.
    fn newest(&self, measurements: &[String]) -> Vec<Arc<str>> {
        let newest = measurements.iter().filter_map(|name| {
            self.reports.iter().rfind(|(measurement, _)| **measurement == **name)
        });
        newest.map(|(_, line)| Arc::clone(line)).collect()
    }
}

impl Console {
    /// An empty console of the agent with this name, with its measurements, alerts, health and sinks.
    pub fn new(
        agent: String,
        measurements: Vec<String>,
        board: Board,
        health: Health,
        deliveries: Deliveries,
    ) -> Arc<Self> {
        let (since_ns, kept, (events, _)) = (now_ns(), Mutex::default(), channel(WAITING));
        Arc::new(Self { agent, measurements, board, health, deliveries, since_ns, kept, events })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The agent's name, alerts, health and sinks.
    fn status(&self) -> String {
        let alerts = self.board.standings().into_iter().map(|standing| {
            json!({
                "alert": standing.alert,
                "measurement": standing.measurement,
                "state": standing.state,
                "since": standing.since_ns.map(rfc3339),
                "items": standing.items,
            })
        });
        let alerts: Vec<_> = alerts.collect();
        json!({
            "agent": self.agent,
            "now": rfc3339(now_ns()),
            "since": rfc3339(self.since_ns),
            "problem": self.health.problem(),
            "alerts": alerts,
            "alerts_missed": self.board.missed(),
            "sinks": self.deliveries.get(),
            "measurements": self.each(|name, measured| measured.json(name)),
        })
        .to_string()
    }

    /// The last day of each measurement.
    fn history(&self) -> String {
        let points = self.each(
            |name, measured| json!({ "measurement": name, "points": measured.history.json() }),
        );
        let oldest_ns = {
            let kept = self.kept();
            let oldest = kept.histories().filter_map(|(_, history)| history.points().next());
            oldest.map(Point::start_ns).min().unwrap_or(self.since_ns)
        };
        json!({
            "since": rfc3339(oldest_ns.min(self.since_ns)),
            "step_seconds": history::STEP_NS / 1_000_000_000,
            "measurements": points,
        })
        .to_string()
    }

    /// The state of each measurement, in the order of the file.
    fn each(&self, say: impl Fn(&str, &Measured) -> Value) -> Vec<Value> {
        let kept = self.kept();
        let none = Measured::default();
        let names = self.measurements.iter().map(String::as_str);
        names.map(|name| say(name, kept.measured.get(name).unwrap_or(&none))).collect()
    }

    /// The routes of the console.
    pub fn routes(self: &Arc<Self>) -> Router {
        let page = include_str!("page.html").replacen("VERSION", env!("CARGO_PKG_VERSION"), 1);
        let script = "text/javascript; charset=utf-8";
        let style = "text/css; charset=utf-8";
        Router::new()
            .route("/", get(|| async move { text("text/html; charset=utf-8", page) }))
            .route("/draw.js", get(move || async move { text(script, Html::SCRIPT) }))
            .route("/filter.js", get(move || async { text(script, include_str!("filter.js")) }))
            .route("/console.js", get(move || async { text(script, include_str!("console.js")) }))
            .route("/style.css", get(move || async { text(style, Html::STYLE) }))
            .route("/console.css", get(move || async { text(style, include_str!("console.css")) }))
            .route("/reports", get(reports))
            .route("/reports/newest", get(newest))
            .route("/history", get(history))
            .route("/status", get(status))
            .route("/events", get(events))
            .with_state(Arc::clone(self))
    }
}

/// The sink that passes reports to the console.
pub(crate) struct ConsoleSink {
    console: Arc<Console>,
    lines: Lines,
    past: Past,
}

impl ConsoleSink {
    /// Creates the console's sink. It restores the last day from the agent's folder, and saves it
    /// there.
    pub(crate) fn open(console: Arc<Console>, lines: Lines, data: &Path) -> Result<Self, Failure> {
        let (past, histories) = Past::open(data, now_ns()).map_err(|error| {
            Failure::Output(format!("cannot keep the last day in {}: {error}", data.display()))
        })?;
        for (measurement, history) in histories {
            console.kept().of(&measurement).history = history;
        }
        Ok(Self { console, lines, past })
    }
}

impl Sink for ConsoleSink {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let report = match item {
            Item::Epoch(report) => report,
            Item::Gap(gap) => {
                let mut kept = self.console.kept();
                kept.of(&gap.measurement).empty_epochs += gap.epochs;
                return Ok(());
            }
            Item::Total(_) | Item::Snapshot(_) => return Ok(()),
        };
        let mut line = Vec::new();
        // Writing to memory cannot fail.
        let written = self.lines.item(item, &mut line);
        written.map_err(|error| SinkError::new("the console", error))?;
        let line: Arc<str> = String::from_utf8_lossy(&line).trim_end().into();
        {
            let mut kept = self.console.kept();
            kept.add(&report.measurement, &line);
            // A mid-epoch update does not count: the epoch's final report includes it.
            if !report.update
                && let Some(complete) = kept.of(&report.measurement).add(report)
            {
                self.past.keep(&report.measurement, &complete, kept.histories());
            }
        }
        // An error only means that there is no reader.
        let _ = self.console.events.send(line);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        let kept = self.console.kept();
        for (measurement, history) in kept.histories() {
            if let Some(newest) = history.newest() {
                self.past.keep(measurement, newest, kept.histories());
            }
        }
        Ok(())
    }
}

type Of = State<Arc<Console>>;

async fn reports(State(console): Of) -> Response {
    lines(console.kept().reports.iter().map(|(_, line)| Arc::clone(line)).collect())
}

async fn newest(State(console): Of) -> Response {
    lines(console.kept().newest(&console.measurements))
}

async fn history(State(console): Of) -> Response {
    text("application/json", console.history())
}

async fn status(State(console): Of) -> Response {
    text("application/json", console.status())
}

/// Streams the status, then each report as it arrives, followed by the status.
async fn events(State(console): Of) -> impl IntoResponse {
    let reports = console.events.subscribe();
    let first = Some(console.status());
    Sse::new(stream(console, reports, first)).keep_alive(KeepAlive::default())
}

fn stream(
    console: Arc<Console>,
    reports: Receiver<Arc<str>>,
    status: Option<String>,
) -> impl Stream<Item = Result<Event, Infallible>> {
    unfold((console, reports, status), |(console, mut reports, status)| async {
        if let Some(status) = status {
            let event = Event::default().event("status").data(status);
            return Some((Ok(event), (console, reports, None)));
        }
        let line = loop {
            match reports.recv().await {
                Ok(line) => break line,
                // The reader continues with the next report.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        };
        let event = Event::default().event("report").data(&*line);
        let status = Some(console.status());
        Some((Ok(event), (console, reports, status)))
    })
}

/// A response of these lines. Each is copied when the client takes it, so that slow ones share memory.
fn lines(lines: Vec<Arc<str>>) -> Response {
    let lines = lines.into_iter().map(|line| Ok::<_, Infallible>(format!("{line}\n")));
    text("application/x-ndjson", Body::from_stream(iter(lines)))
}

/// A response with this content type.
fn text(kind: &'static str, body: impl Into<Body>) -> Response {
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
    ];
    (headers, body.into()).into_response()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn lines_are_copied_when_they_are_taken() {
        let line: Arc<str> = "line".into();
        let body = lines(vec![Arc::clone(&line); 3]).into_body();
        assert_eq!(Arc::strong_count(&line), 4, "the response shares them");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bytes = runtime.block_on(axum::body::to_bytes(body, 100)).unwrap();
        assert_eq!(bytes, "line\nline\nline\n");
    }

    #[test]
    fn status_and_history_name_each_measurement() {
        let health = Health::default();
        let names = ["two", "one"].map(str::to_owned).to_vec();
        let (board, sinks) = (Board::default(), Deliveries::default());
        let console = Console::new("edge".to_owned(), names, board, health.clone(), sinks);
        console.kept().of(&"one".into()).empty_epochs += 3;
        // Measurements that a reload removed are not listed.
        console.kept().of(&"gone".into()).epochs += 1;
        let read = |text: String| serde_json::from_str::<Value>(&text).unwrap_or_default();
        let status = read(console.status());
        assert_eq!(status["problem"], "no source has been read yet");
        let of = |field: &str| {
            status["measurements"]
                .as_array()
                .map(|all| all.iter().map(|one| one[field].clone()).collect())
        };
        assert_eq!(of("measurement"), Some(vec![json!("two"), json!("one")]));
        assert_eq!(of("empty_epochs"), Some(vec![json!(0), json!(3)]));
        assert_eq!(of("newest_end"), Some(vec![Value::Null; 2]));
        health.alive();
        assert_eq!(read(console.status())["problem"], Value::Null);
        let history = read(console.history());
        assert_eq!(history["step_seconds"], 60);
        assert_eq!(history["measurements"][1], json!({ "measurement": "one", "points": [] }));
    }

    #[test]
    fn kept_reports_are_bounded() {
        let mut kept = Kept::default();
        let (one, two): (Arc<str>, Arc<str>) = ("one".into(), "two".into());
        for number in 0..EPOCHS + 10 {
            kept.add(&one, &format!("{number}").into());
        }
        kept.add(&two, &"of two".into());
        assert_eq!(kept.reports.len(), EPOCHS + 1);
        assert_eq!(&*kept.reports[0].1, "10");
        let names = ["two", "none", "one"].map(str::to_owned);
        let newest = kept.newest(&names);
        assert_eq!(newest.iter().map(|line| &**line).collect::<Vec<_>>(), ["of two", "129"]);
        let long: Arc<str> = "x".repeat(BYTES / 3).into();
        for _ in 0..5 {
            kept.add(&two, &long);
        }
        assert!(kept.bytes <= BYTES);
        let bytes: usize = kept.reports.iter().map(|(_, line)| line.len()).sum();
        assert_eq!(kept.bytes, bytes);
        assert!(kept.reports.len() < 10);
    }
}
