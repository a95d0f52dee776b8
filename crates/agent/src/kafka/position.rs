//! The last acknowledged journal epoch, saved over restarts.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::journal;

/// The file in the agent's folder.
const NAME: &str = "kafka.json";

/// The last acknowledged epoch of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) start_ns: i64,
    /// Its run and epoch number; `None` before the first one.
    pub(super) epoch: Option<(u64, u64)>,
}

/// The positions of all measurements.
pub(super) struct Positions {
    folder: PathBuf,
    positions: BTreeMap<String, Position>,
}

impl Positions {
    /// Reads the positions in this folder; a new folder has none.
    pub(super) fn open(folder: &Path) -> Result<Self, String> {
        let path = folder.join(NAME);
        let failed = |error: &dyn std::fmt::Display| {
            format!("cannot read the last acknowledged epochs in {}: {error}", path.display())
        };
        let positions = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| failed(&error))?,
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(failed(&error)),
        };
        Ok(Self { folder: folder.to_owned(), positions })
    }

    /// The position of a measurement.
    pub(super) fn get(&self, measurement: &str) -> Option<Position> {
        self.positions.get(measurement).copied()
    }

    /// Advances the position, in memory and in the file.
    pub(super) fn set(&mut self, measurement: &str, position: Position) {
        self.positions.insert(measurement.to_owned(), position);
        let text = serde_json::to_vec(&self.positions).unwrap_or_default();
        // If the write fails, for instance on a full disk, a restart sends some epochs twice.
        let _ = journal::write(&self.folder, &self.folder.join(NAME), &text);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn positions_survive_a_restart() {
        let folder = std::env::temp_dir().join(format!("flowgauge-kafka-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut positions = Positions::open(&folder).unwrap();
        assert_eq!(positions.get("flows"), None);
        let begin = Position { start_ns: -5, epoch: None };
        let last = Position { start_ns: 7, epoch: Some((u64::MAX, 3)) };
        positions.set("flows", begin);
        positions.set("hosts", last);
        let positions = Positions::open(&folder).unwrap();
        assert_eq!((positions.get("flows"), positions.get("hosts")), (Some(begin), Some(last)));
        fs::write(folder.join(NAME), "nonsense").unwrap();
        assert!(Positions::open(&folder).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
