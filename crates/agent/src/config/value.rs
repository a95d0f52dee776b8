//! Values of fields: numbers of queues, times and sizes.

use flowgauge_options::values;
use serde::{Deserialize, Deserializer};

/// Threads that read an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Queues(#[cfg_attr(test, schemars(with = "NumberOrText"))] pub usize);

/// A time in nanoseconds, such as `30d`.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Time(#[cfg_attr(test, schemars(with = "String"))] pub u64);

/// Bytes, such as `64MiB`.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Size(#[cfg_attr(test, schemars(with = "NumberOrText"))] pub u64);

/// A number or a text, as a person writes it.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "expected a number, at least 0, or a text")]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl NumberOrText {
    fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

impl<'de> Deserialize<'de> for Queues {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = NumberOrText::deserialize(from)?.text();
        match text.parse() {
            _ if text == "auto" => Ok(Self(0)),
            Ok(queues @ 1..=256) => Ok(Self(queues)),
            _ => Err(serde::de::Error::custom(format!(
                "invalid queues '{text}'; write auto, or a number from 1 to 256"
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = NumberOrText::deserialize(from)?.text();
        let refuse = |reason| serde::de::Error::custom(format!("invalid time '{text}'; {reason}"));
        values::time(&text).map(Self).map_err(refuse)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = NumberOrText::deserialize(from)?.text();
        let refuse = |reason| serde::de::Error::custom(format!("invalid size '{text}'; {reason}"));
        values::size(&text).map(|bytes| Self(bytes as u64)).map_err(refuse)
    }
}

impl Queues {
    /// The number of queues.
    pub fn number(self) -> usize {
        match self.0 {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            queues => queues,
        }
    }
}
