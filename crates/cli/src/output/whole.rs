//! Writing a report whole or not at all.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};

/// A file that takes reports whole: what was written of one that fails is taken back, where the file
/// is a regular one. A pipe has nothing that could be taken back.
pub(crate) struct Whole {
    file: File,
    regular: bool,
    /// Bytes of a report that are kept until it is complete; of a longer one they are written before.
    kept: usize,
    buffer: Vec<u8>,
    /// Bytes of this report in the file so far.
    written: u64,
}

impl Whole {
    pub(crate) fn new(file: File, kept: usize) -> io::Result<Self> {
        let regular = file.metadata()?.is_file();
        Ok(Self { file, regular, kept, buffer: Vec::new(), written: 0 })
    }

    /// Ends a report, of which `result` says whether it could be formatted.
    pub(crate) fn end(&mut self, result: io::Result<()>) -> io::Result<()> {
        let result = result.and_then(|()| self.pour());
        if result.is_err() && self.regular && self.written > 0 {
            self.take_back()?;
        }
        self.buffer.clear();
        // A long report is rare, and its memory may be of use elsewhere.
        self.buffer.shrink_to(64 << 10);
        self.written = 0;
        result
    }

    /// Waits until the storage has what was written.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn pour(&mut self) -> io::Result<()> {
        let mut rest = &self.buffer[..];
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.written += count as u64;
                    rest = &rest[count..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.clear();
        Ok(())
    }

    /// Cuts the file where the report began, unless something else was written behind it.
    fn take_back(&mut self) -> io::Result<()> {
        let end = self.file.stream_position()?;
        if self.file.metadata()?.len() == end {
            let start = end - self.written;
            self.file.set_len(start)?;
            self.file.seek(SeekFrom::Start(start))?;
        }
        Ok(())
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > self.kept {
            self.pour()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
