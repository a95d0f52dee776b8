//! The sinks that a configuration asks for, some with anonymous reports.

use std::io;
use std::path::Path;
use std::sync::Arc;

use flowgauge_engine::Pace;
use flowgauge_engine::sink::{Outlets, Sink};

use crate::Failure;
use crate::anonymize::{Anonymizer, Method};
use crate::archive::Archive;
use crate::config::Sinks;
use crate::console::{self, Console, ConsoleSink};
use crate::deliveries::{Deliveries, DeliveryLog};
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
    sinks: Vec<Box<dyn Sink>>,
    names: Vec<&'static str>,
    deliveries: Deliveries,
    servers: Vec<Server>,
    lines: Lines,
    /// Whether all sinks receive anonymous reports.
    all: bool,
    anonymizer: Anonymizer,
}

impl Outputs {
    /// No sinks yet. The secret file gives the key that makes addresses anonymous.
    pub(crate) fn new(options: &Sinks, lines: Lines, secret: &Path) -> Result<Self, Failure> {
        let (sinks, names, servers) = (Vec::new(), Vec::new(), Vec::new());
        let (deliveries, all) = (Deliveries::default(), options.anonymize.is_some());
        let anonymizer = Anonymizer::new(secret)?;
        Ok(Self { sinks, names, deliveries, servers, lines, all, anonymizer })
    }

    /// Lines for a sink with this option.
    pub(crate) fn lines(&self, anonymize: Option<Method>) -> Lines {
        let lines = self.lines.clone();
        if self.all || anonymize.is_some() { lines.anonymous() } else { lines }
    }

    /// How the sinks fare, once they are started.
    pub(crate) fn deliveries(&self) -> Deliveries {
        self.deliveries.clone()
    }

    /// Adds a sink under a name of its own.
    pub(crate) fn add(&mut self, name: &'static str, sink: Box<dyn Sink>, content: Content) {
        let anonymous = match content {
            Content::AsMeasured => false,
            Content::Report(anonymize) => self.all || anonymize.is_some(),
        };
        self.names.push(name);
        self.sinks.push(if anonymous { self.anonymizer.before(sink) } else { sink });
    }

    /// Adds the sinks for files, Parquet tables and IPFIX that the configuration asks for.
    pub(crate) fn write(&mut self, options: &Sinks, names: &[String]) -> Result<(), Failure> {
        if let Some(files) = &options.files {
            let sink = Files::open(files, self.lines(files.anonymize))?;
            self.add("files", Box::new(sink), Content::Report(files.anonymize));
        }
        if let Some(parquet) = &options.parquet {
            let sink = Archive::open(parquet)?;
            self.add("parquet", Box::new(sink), Content::Report(parquet.anonymize));
        }
        if let Some(ipfix) = &options.ipfix {
            let exporter = Exporter::new(ipfix, names.to_vec());
            self.add("ipfix", Box::new(exporter), Content::Report(ipfix.anonymize));
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
        let metrics = metrics.with_deliveries(self.deliveries());
        let routes = http::metrics(metrics.clone()).merge(health.routes());
        self.servers.push(Server::start("prometheus", &options.access(), routes)?);
        self.add("prometheus", Box::new(metrics), Content::Report(options.anonymize));
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
        self.add("console", Box::new(sink), Content::Report(options.anonymize));
        Ok(())
    }

    /// Starts the sinks. Dropping the servers stops them.
    pub(crate) fn start(self) -> io::Result<(Outlets, DeliveryLog, Vec<Server>)> {
        let outlets = Outlets::new(Pace::Live, self.sinks)?;
        let log = self.deliveries.watch(self.names, &outlets);
        Ok((outlets, log, self.servers))
    }
}
