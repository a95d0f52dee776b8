//! A Kafka consumer of the topic that agents send snapshots to, as a member of a consumer group.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList, TopicPartitionListElem};

use super::config::SourceOptions;
use super::{Message, Position};
use crate::Failure;
use crate::kafka::producer;

/// Time limit for brokers to return committed offsets.
const LIMIT: Duration = Duration::from_secs(5);

/// Attempts to fetch them before reading a partition without.
const ATTEMPTS: u32 = 6;

/// Maximum bytes of a name or an id; the rest is cut off.
const LONGEST: usize = 255;

/// Kinds of reports that agents send to the same topic.
const REPORTS: [&[u8]; 3] = [b"epoch", b"gap", b"total"];

/// The result of a poll.
pub(super) enum Polled<'a> {
    /// A message.
    Message(BorrowedMessage<'a>),
    /// The partition has no more messages for now.
    End(i32),
}

/// Partitions that the group assigned to this collector or revoked.
pub(super) enum Change {
    Assigned(Vec<i32>),
    Revoked(Vec<i32>),
}

/// A member of a consumer group.
pub(super) struct Consumer {
    client: BaseConsumer<Context>,
    topic: String,
    /// The name in messages.
    pub(super) input: String,
}

impl Consumer {
    /// Subscribes to the topic. The brokers may be unreachable now; the client keeps trying.
    pub(super) fn new(options: &SourceOptions) -> Result<Self, Failure> {
        let brokers = options.brokers.join(",");
        let input = format!("the Kafka topic {} at {brokers}", options.topic);
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Error);
        for (name, value) in [
            ("bootstrap.servers", &*brokers),
            ("client.id", "flowgauge"),
            ("group.id", &*options.group),
            ("enable.auto.commit", "false"),
            ("enable.partition.eof", "true"),
            // A new group starts at the oldest message.
            ("auto.offset.reset", "earliest"),
            // When a collector joins or leaves, the others keep most of their partitions.
            ("partition.assignment.strategy", "cooperative-sticky"),
            // Time until the group notices a killed collector.
            ("session.timeout.ms", "10000"),
            ("queued.max.messages.kbytes", "32768"),
            // Delay before retrying a full queue.
            ("fetch.queue.backoff.ms", "10"),
            ("fetch.wait.max.ms", "100"),
            ("reconnect.backoff.max.ms", "1000"),
            ("socket.keepalive.enable", "true"),
        ] {
            config.set(name, value);
        }
        producer::log_in(&mut config, options.tls.as_ref(), options.sasl.as_ref(), "kafka")?;
        let failed = |error: KafkaError| Failure::Source(format!("cannot read {input}: {error}"));
        let client: BaseConsumer<Context> =
            config.create_with_context(Context::default()).map_err(failed)?;
        client.subscribe(&[&options.topic]).map_err(failed)?;
        Ok(Self { client, topic: options.topic.clone(), input })
    }

    /// Waits up to `within` for the next message.
    ///
    /// # Errors
    /// The problem with the brokers or the topic. The next call tries again.
    pub(super) fn poll(&self, within: Duration) -> Option<Result<Polled<'_>, String>> {
        let polled = self.client.poll(within);
        if let Some(problem) = self.client.context().lock().problem.take() {
            return Some(Err(problem));
        }
        match polled? {
            Ok(message) => Some(Ok(Polled::Message(message))),
            Err(KafkaError::PartitionEOF(partition)) => Some(Ok(Polled::End(partition))),
            Err(KafkaError::MessageConsumption(RDKafkaErrorCode::UnknownTopicOrPartition)) => {
                Some(Err("the topic does not exist".to_owned()))
            }
            Err(error) => Some(Err(error.to_string())),
        }
    }

    /// Partition changes since the last call.
    pub(super) fn changes(&self) -> Vec<Change> {
        std::mem::take(&mut self.client.context().lock().changes)
    }

    /// The floors that were committed with the position of each partition.
    ///
    /// # Errors
    /// When the brokers do not answer.
    pub(super) fn floors(&self, partitions: &[i32]) -> Result<Vec<(i32, String)>, KafkaError> {
        let mut asked = TopicPartitionList::new();
        for partition in partitions {
            asked.add_partition(&self.topic, *partition);
        }
        let mut attempt = 1;
        let committed = loop {
            match self.client.committed_offsets(asked.clone(), LIMIT) {
                Ok(committed) => break committed,
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(_) => attempt += 1,
            }
        };
        let floors = committed.elements().into_iter();
        Ok(floors.map(|one| (one.partition(), one.metadata().to_owned())).collect())
    }

    /// Commits positions in the background, or if `last`, before returning.
    ///
    /// # Errors
    /// When the client refuses.
    pub(super) fn commit(&self, positions: &[Position], last: bool) -> Result<(), KafkaError> {
        let mut list = TopicPartitionList::new();
        for Position { partition, offset, floors } in positions {
            let mut entry = list.add_partition(&self.topic, *partition);
            entry.set_offset(Offset::Offset(*offset))?;
            entry.set_metadata(floors);
        }
        if list.count() == 0 {
            return Ok(());
        }
        self.client.commit(&list, if last { CommitMode::Sync } else { CommitMode::Async })
    }
}

/// The partition and offset of a message.
pub(super) fn place(message: &BorrowedMessage<'_>) -> (i32, i64) {
    (message.partition(), message.offset())
}

/// The parts of a message that the collector needs, or `None` for a report.
pub(super) fn parts(message: &BorrowedMessage<'_>) -> Option<Parts> {
    let header = |name: &str| {
        let headers = message.headers()?;
        headers.iter().find(|header| header.key == name).and_then(|header| header.value)
    };
    if header("type").is_some_and(|kind| REPORTS.contains(&kind)) {
        return None;
    }
    let text =
        |bytes: &[u8]| -> String { String::from_utf8_lossy(bytes).chars().take(LONGEST).collect() };
    let agent = header("agent").or(message.key()).map_or_else(|| "?".to_owned(), text);
    let place = || format!("{}/{}", message.partition(), message.offset());
    let start_ns = header("start").and_then(|start| str::from_utf8(start).ok()?.parse().ok());
    Some(Parts {
        agent,
        id: header("id").map_or_else(place, text),
        of: header("measurement").map(text).zip(start_ns),
    })
}

/// The text fields of a message.
pub(super) struct Parts {
    pub(super) agent: String,
    id: String,
    pub(super) of: Option<(String, i64)>,
}

impl Parts {
    /// The message in the collector's form.
    pub(super) fn message<'a>(&'a self, message: &'a BorrowedMessage<'_>) -> Message<'a> {
        Message {
            partition: message.partition(),
            offset: message.offset(),
            agent: &self.agent,
            id: &self.id,
            of: self.of.as_ref().map(|(name, start_ns)| (&**name, *start_ns)),
            bytes: message.payload().unwrap_or_default(),
        }
    }
}

/// Callbacks of the client.
#[derive(Default)]
struct Context(Mutex<Heard>);

#[derive(Default)]
struct Heard {
    changes: Vec<Change>,
    /// Why the brokers do not answer.
    problem: Option<String>,
}

impl Context {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Context {
    /// Log lines are ignored: errors already carry what operators need.
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        if !matches!(error, KafkaError::Global(RDKafkaErrorCode::PartitionEOF)) {
            // The suffix changes with each attempt.
            let reason = reason.split_once(" (after ").map_or(reason, |(reason, _)| reason);
            self.lock().problem = Some(reason.to_owned());
        }
    }
}

impl ConsumerContext for Context {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let partitions = |list: &TopicPartitionList| {
            list.elements().iter().map(TopicPartitionListElem::partition).collect()
        };
        let change = match rebalance {
            Rebalance::Assign(list) => Change::Assigned(partitions(list)),
            Rebalance::Revoke(list) => Change::Revoked(partitions(list)),
            Rebalance::Error(_) => return,
        };
        self.lock().changes.push(change);
    }
}
