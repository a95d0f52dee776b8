//! gzip, member after member, of which nothing is lost that was inflated before damage.
//!
//! The readers of flate2 drop what they inflated in the call that met the damage; here it is
//! handed out first.

use std::io::{self, BufRead, ErrorKind, Read};

use flate2::{Decompress, FlushDecompress, Status};

/// The largest window there is, as in every gzip file.
const WINDOW_BITS: u8 = 15;

/// Inflates what `source` holds: one gzip member or several.
pub(crate) struct Gzip<R> {
    source: R,
    inflate: Decompress,
    /// Between two members, where the source may end.
    between: bool,
    failed: Option<io::Error>,
}

impl<R: BufRead> Gzip<R> {
    pub(crate) fn new(source: R) -> Self {
        let inflate = Decompress::new_gzip(WINDOW_BITS);
        Self { source, inflate, between: true, failed: None }
    }

    /// Inflates some bytes; 0 where more input is needed, or all is done.
    fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let input = self.source.fill_buf()?;
        if input.is_empty() && !self.between {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let (read, written) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(input, buffer, FlushDecompress::None);
        let read = (self.inflate.total_in() - read) as usize;
        let written = (self.inflate.total_out() - written) as usize;
        self.source.consume(read);
        self.between = false;
        match status {
            Ok(Status::StreamEnd) => {
                self.inflate = Decompress::new_gzip(WINDOW_BITS);
                self.between = true;
            }
            Ok(Status::Ok | Status::BufError) => {}
            Err(error) => self.failed = Some(io::Error::new(ErrorKind::InvalidData, error)),
        }
        Ok(written)
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if self.between && self.source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            let written = self.step(buffer)?;
            if written > 0 {
                return Ok(written);
            }
        }
    }
}
