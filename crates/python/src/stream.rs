//! Python's binary files as readers.

use std::io::{self, Read};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

/// Bytes that a file is asked for at least: each call waits for the interpreter.
const PIECE: usize = 1 << 20;

/// An object with a method `read`, such as an open file or a stream of fsspec.
pub(crate) struct Stream {
    file: Py<PyAny>,
    piece: Option<PyBackedBytes>,
    /// Bytes of the piece that are read.
    read: usize,
}

impl Stream {
    /// The stream and its name, if this is one.
    pub(crate) fn of(file: &Bound<'_, PyAny>) -> PyResult<Option<(String, Self)>> {
        if !file.hasattr("read")? {
            return Ok(None);
        }
        let name = file.getattr("name").or_else(|_| file.getattr("path"));
        let name = name.and_then(|name| name.str()?.extract::<String>());
        let stream = Self { file: file.clone().unbind(), piece: None, read: 0 };
        Ok(Some((name.unwrap_or_else(|_| "stream".to_owned()), stream)))
    }

    fn next(&self) -> PyResult<PyBackedBytes> {
        Python::attach(|py| {
            let bytes = self.file.bind(py).call_method1("read", (PIECE,))?;
            Ok(bytes.extract()?)
        })
    }
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.piece.as_ref().is_none_or(|piece| piece.len() == self.read) {
            self.piece = Some(self.next().map_err(|error| io::Error::other(error.to_string()))?);
            self.read = 0;
        }
        let left = self.piece.as_ref().map_or(&[][..], |piece| &piece[self.read..]);
        let taken = left.len().min(to.len());
        to[..taken].copy_from_slice(&left[..taken]);
        self.read += taken;
        Ok(taken)
    }
}
