//! The sinks that a configuration asks for, some with anonymous reports.

use std::path::Path;
use std::sync::Arc;

use flowgauge_engine::sink::Sink;

use crate::Failure;
use crate::anonymize::{Anonymizer, Method};
use crate::archive::Archive;
use crate::config::Sinks;
use crate::console::{self, Console, ConsoleSink};
use crate::files::Files;
use crate::http::{self, Health, Server};
use crate::ipfix::Exporter;
use crate::lines::Lines;
use crate::prometheus::{self, Metrics};

/// What a sink receives.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    /// Items as measured.
    AsMeasured,
    /// Items that are anonymous if this sink's option or the common option asks for it.
    Report(Option<Method>),
}

/// The sinks of a run, and the servers some of them need.
pub(crate) struct Outputs {
    pub(crate) sinks: Vec<Box<dyn Sink>>,
    /// Dropping them stops them.
    pub(crate) servers: Vec<Server>,
    lines: Lines,
    /// Whether all sinks receive anonymous reports.
    all: bool,
    anonymizer: Anonymizer,
}

impl Outputs {
    /// No sinks yet. The secret file gives the key that makes addresses anonymous.
    pub(crate) fn new(options: &Sinks, lines: Lines, secret: &Path) -> Result<Self, Failure> {
        let (sinks, servers, all) = (Vec::new(), Vec::new(), options.anonymize.is_some());
        Ok(Self { sinks, servers, lines, all, anonymizer: Anonymizer::new(secret)? })
    }

    /// Lines for a sink with this option.
    pub(crate) fn lines(&self, anonymize: Option<Method>) -> Lines {
        let lines = self.lines.clone();
        if self.all || anonymize.is_some() { lines.anonymous() } else { lines }
    }

    /// Adds a sink.
    pub(crate) fn add(&mut self, sink: Box<dyn Sink>, content: Content) {
        let anonymous = match content {
            Content::AsMeasured => false,
            Content::Report(anonymize) => self.all || anonymize.is_some(),
        };
        self.sinks.push(if anonymous { self.anonymizer.before(sink) } else { sink });
    }

    /// Adds the sinks for files, Parquet tables and IPFIX that the configuration asks for.
    pub(crate) fn write(&mut self, options: &Sinks, names: &[String]) -> Result<(), Failure> {
        if let Some(files) = &options.files {
            let sink = Files::open(files, self.lines(files.anonymize))?;
            self.add(Box::new(sink), Content::Report(files.anonymize));
        }
        if let Some(parquet) = &options.parquet {
            self.add(Box::new(Archive::open(parquet)?), Content::Report(parquet.anonymize));
        }
        if let Some(ipfix) = &options.ipfix {
            let exporter = Exporter::new(ipfix, names.to_vec());
            self.add(Box::new(exporter), Content::Report(ipfix.anonymize));
        }
        Ok(())
    }

    /// Serves metrics.
    pub(crate) fn scrape(
        &mut self,
        options: &prometheus::Options,
        metrics: Metrics,
        health: &Health,
    ) -> Result<(), Failure> {
        let routes = http::metrics(metrics.clone()).merge(health.routes());
        self.servers.push(Server::start("prometheus", &options.access(), routes)?);
        self.add(Box::new(metrics), Content::Report(options.anonymize));
        Ok(())
    }

    /// Serves the console, which saves the last day in the data folder.
    pub(crate) fn show(
        &mut self,
        options: &console::Options,
        console: Arc<Console>,
        health: &Health,
        data: &Path,
    ) -> Result<(), Failure> {
        let routes = console.routes().merge(health.routes());
        self.servers.push(Server::start("console", &options.access(), routes)?);
        let lines = self.lines(options.anonymize);
        let sink = ConsoleSink::open(console, lines, data)?;
        self.add(Box::new(sink), Content::Report(options.anonymize));
        Ok(())
    }
}
