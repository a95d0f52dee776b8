//! Files with secrets.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The secret in a file that only its owner may read, trimmed.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let name = path.display();
    let metadata = fs::metadata(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(format!("{name} is accessible to other users; run 'chmod 600 {name}'"));
    }
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    Ok(text.trim().to_owned())
}
