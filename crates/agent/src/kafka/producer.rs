//! Sends records to a topic one at a time, each acknowledged.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use flowgauge_engine::sink::{SinkError, units};
use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{
    BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer,
};

use super::Options;
use super::options::{Sasl, Tls};
use crate::log::say;
use crate::{Failure, data};

/// Time limit for brokers to acknowledge a record.
const LIMIT: Duration = Duration::from_secs(5);

/// Maximum delay after that until the library reports it; it checks once a second.
const GRACE: Duration = Duration::from_secs(3);

/// Maximum record size in bytes. Brokers close connections on requests of 100 MB, whatever a topic
/// allows.
const MESSAGE_BYTES: usize = 64 << 20;

/// A record and its headers.
pub(super) struct Record<'a> {
    /// `epoch`, `gap`, `total` or `snapshot`.
    pub(super) kind: &'static str,
    /// The id of a network-wide report, which replaces run and epoch in the record's id.
    pub(super) network: Option<&'a str>,
    pub(super) measurement: &'a str,
    /// The run, if its epochs are stored.
    pub(super) run: Option<u64>,
    /// The epoch, or the first of a gap.
    pub(super) epoch: Option<u64>,
    /// Start and end of a snapshot's epoch. The start is part of the key, so snapshots of one epoch
    /// share a partition.
    pub(super) bounds_ns: Option<(i64, i64)>,
    /// The hash of the configuration, if known.
    pub(super) configuration: Option<&'a str>,
    pub(super) content_type: &'static str,
    pub(super) payload: &'a [u8],
}

impl Record<'_> {
    /// The headers. Copies of a record share the id, and no other record has it.
    fn headers(&self, agent: &str) -> OwnedHeaders {
        let [kind, measurement] = [self.kind, self.measurement].map(str::to_owned);
        let run = self.run.map(|run| format!("{run:016x}"));
        let epoch = self.epoch.map(|epoch| epoch.to_string());
        let parts = [Some(&kind), Some(&measurement), run.as_ref(), epoch.as_ref()];
        let id = match self.network {
            Some(id) => format!("{kind}/{id}"),
            None => parts.into_iter().flatten().map(|part| &**part).collect::<Vec<_>>().join("/"),
        };
        let (start, end) =
            self.bounds_ns.map(|(start, end)| (start.to_string(), end.to_string())).unzip();
        let headers = [
            ("id", Some(id)),
            ("type", Some(kind)),
            ("agent", Some(agent.to_owned())),
            ("measurement", Some(measurement)),
            ("run", run),
            ("epoch", epoch),
            ("start", start),
            ("end", end),
            ("configuration", self.configuration.map(str::to_owned)),
            ("content-type", Some(self.content_type.to_owned())),
        ];
        let held = headers.iter().filter(|(_, value)| value.is_some());
        held.fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header { key, value: value.as_ref() })
        })
    }
}

/// Sends records one at a time.
pub(super) struct Producer {
    /// The name in messages.
    output: String,
    config: ClientConfig,
    topic: String,
    /// The agent's name, which is the key of its reports: one partition keeps their order.
    agent: String,
    /// The Kafka client; `None` after a fatal error.
    client: Option<ThreadedProducer<Context>>,
    /// Whether the last record was not acknowledged.
    is_failing: bool,
    /// Measurements with a rejected record, each reported once.
    refused: BTreeSet<String>,
}

impl Producer {
    /// Connects when there is something to send, so that the agent may start before the brokers.
    /// `what` names the records in messages.
    pub(super) fn new(options: &Options, what: &str, agent: &str) -> Result<Self, Failure> {
        let brokers = options.brokers.join(",");
        let output = format!("the Kafka topic {} at {brokers} ({what})", options.topic);
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Error);
        for (name, value) in [
            ("bootstrap.servers", &*brokers),
            ("client.id", "flowgauge"),
            ("enable.idempotence", "true"),
            ("message.timeout.ms", &LIMIT.as_millis().to_string()),
            ("message.max.bytes", &MESSAGE_BYTES.to_string()),
            // One record is sent at a time, but abandoned ones may still be queued.
            ("queue.buffering.max.messages", "16"),
            ("queue.buffering.max.kbytes", &(2 * (MESSAGE_BYTES >> 10)).to_string()),
            // A server that sends larger messages is not a broker.
            ("receive.message.max.bytes", "8388608"),
            // A missing topic is reported within the time limit.
            ("topic.metadata.propagation.max.ms", "2000"),
            ("linger.ms", "0"),
            ("compression.codec", "lz4"),
            // The partition that Java clients choose for this key.
            ("partitioner", "murmur2_random"),
            ("reconnect.backoff.max.ms", "1000"),
            ("socket.connection.setup.timeout.ms", &LIMIT.as_millis().to_string()),
            ("socket.keepalive.enable", "true"),
        ] {
            config.set(name, value);
        }
        let Options { tls, sasl, .. } = options;
        log_in(&mut config, tls.as_ref(), sasl.as_ref(), "sinks.kafka")?;
        let mut producer = Self {
            output,
            config,
            topic: options.topic.clone(),
            agent: agent.to_owned(),
            client: None,
            is_failing: false,
            refused: BTreeSet::new(),
        };
        producer.connect().map_err(|error| {
            Failure::Output(format!("cannot write to {}: {error}", producer.output))
        })?;
        Ok(producer)
    }

    /// Whether the last record was not acknowledged.
    pub(super) fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// The error of this output.
    pub(super) fn error(&self, error: io::Error) -> SinkError {
        // Never `Closed`: the brokers may come back.
        SinkError::Write { output: self.output.clone(), error }
    }

    /// Sends a record and waits until the brokers acknowledge it.
    pub(super) fn send(&mut self, record: &Record<'_>) -> Result<(), SinkError> {
        let sent = self.try_send(record);
        let is_refused = matches!(
            sent,
            Err(KafkaError::MessageProduction(
                RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::MessageBatchTooLarge,
            ))
        );
        self.is_failing = sent.is_err() && !is_refused;
        let Err(error) = sent else { return Ok(()) };
        let output = self.output.clone();
        if is_refused {
            if self.refused.insert(record.measurement.to_owned()) {
                let (kind, bytes) = (record.kind, units::bytes(record.payload.len() as f64));
                say(&format!(
                    "{output} refuses a record of {bytes} ({kind} of '{}'): raise the topic's \
                     max.message.bytes",
                    record.measurement
                ));
            }
            let error = io::Error::new(ErrorKind::FileTooLarge, "the record is too large");
            return Err(SinkError::Refused { output, error });
        }
        let error = self.error(self.explained(&error));
        if self.fatal().is_some() {
            self.client = None;
        }
        Err(error)
    }

    fn try_send(&mut self, record: &Record<'_>) -> Result<(), KafkaError> {
        self.connect()?;
        let client = self.client.as_ref().ok_or(KafkaError::Canceled)?;
        let (acknowledge, acknowledged) = sync_channel(1);
        let shared =
            record.bounds_ns.map(|(start_ns, _)| format!("{}/{start_ns}", record.measurement));
        let message = BaseRecord::with_opaque_to(&self.topic, Box::new(acknowledge))
            .key(shared.as_deref().unwrap_or(&self.agent))
            .payload(record.payload)
            .headers(record.headers(&self.agent));
        client.send(message).map_err(|(error, _)| error)?;
        match acknowledged.recv_timeout(LIMIT + GRACE) {
            Ok(Ok(())) => {
                *client.context().problem() = None;
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.client = None;
                Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut))
            }
        }
    }

    /// Creates a client if there is none.
    fn connect(&mut self) -> Result<(), KafkaError> {
        if self.client.is_none() {
            self.client = Some(self.config.create_with_context(Context::default())?);
        }
        Ok(())
    }

    /// Why the client cannot continue, if it cannot.
    fn fatal(&self) -> Option<String> {
        self.client.as_ref()?.client().fatal_error().map(|(_, reason)| reason)
    }

    /// The reason of an error. For a record that was not acknowledged in time, the last known
    /// problem of the brokers.
    fn explained(&self, error: &KafkaError) -> io::Error {
        if let Some(reason) = self.fatal() {
            return io::Error::other(reason);
        }
        let code = error.rdkafka_error_code();
        if code != Some(RDKafkaErrorCode::MessageTimedOut) {
            let reason = code.map_or_else(|| error.to_string(), |code| code.to_string());
            // The message starts with an error code.
            let words = reason.split_once(" (").and_then(|(_, words)| words.strip_suffix(')'));
            return io::Error::other(words.unwrap_or(&reason).to_owned());
        }
        let problem = self.client.as_ref().and_then(|client| client.context().problem().clone());
        let problem = problem.unwrap_or_else(|| "no broker acknowledged it in time".to_owned());
        io::Error::new(ErrorKind::TimedOut, problem)
    }
}

/// Callbacks of the client.
#[derive(Default)]
struct Context {
    /// The last problem with the brokers since a record was acknowledged.
    problem: Mutex<Option<String>>,
}

impl Context {
    fn problem(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Context {
    /// Log lines are ignored: errors already carry what operators need.
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        let mut problem = self.problem();
        // `AllBrokersDown` says less than the reason for one broker.
        let is_vague = matches!(error, KafkaError::Global(RDKafkaErrorCode::AllBrokersDown));
        if problem.is_none() || !is_vague {
            // The suffix changes with each attempt.
            let reason = reason.split_once(" (after ").map_or(reason, |(reason, _)| reason);
            *problem = Some(reason.to_owned());
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<SyncSender<Result<(), KafkaError>>>;

    fn delivery(&self, result: &DeliveryResult<'_>, acknowledge: Self::DeliveryOpaque) {
        let result = result.as_ref().map(drop).map_err(|(error, _)| error.clone());
        // If the sender no longer waits, it has given up the record.
        let _ = acknowledge.try_send(result);
    }
}

/// Configures a client's TLS and login. `place` is the path of the fields in the file, such as
/// `sinks.kafka`. Certificates are read here, since the client would read them only after the
/// sandbox confined it.
pub(crate) fn log_in(
    config: &mut ClientConfig,
    tls: Option<&Tls>,
    sasl: Option<&Sasl>,
    place: &str,
) -> Result<(), Failure> {
    let usage = |field: &str| {
        let field = format!("{place}.{field}");
        move |reason| Failure::Usage(format!("{field}: {reason}"))
    };
    config.set(
        "security.protocol",
        match (tls, sasl) {
            (None, None) => "plaintext",
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        },
    );
    if let Some(Tls { ca_file, certificate_file, key_file }) = tls {
        for (file, field, name) in [
            (ca_file, "tls.ca-file", "ssl.ca.pem"),
            (certificate_file, "tls.certificate-file", "ssl.certificate.pem"),
        ] {
            if let Some(file) = file {
                config.set(name, certificate(file).map_err(usage(field))?);
            }
        }
        if let Some(file) = key_file {
            config.set("ssl.key.pem", data::read_secret(file).map_err(usage("tls.key-file"))?);
        }
    }
    if let Some(Sasl { user, password_file, mechanism }) = sasl {
        let password = data::read_secret(password_file).map_err(usage("sasl.password-file"))?;
        config.set("sasl.mechanism", mechanism.name());
        config.set("sasl.username", user).set("sasl.password", password);
    }
    Ok(())
}

/// The contents of a certificate file.
fn certificate(file: &Path) -> Result<String, String> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        return Err(format!("{name} holds no certificate; give a file in PEM format"));
    }
    Ok(text)
}
