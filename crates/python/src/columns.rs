//! Packets in columns, such as NumPy arrays.

use std::ops::Range;

use flowgauge_core::block::{ParsedColumns, ParsedRow};
use flowgauge_core::packet::{Headers, Ip, Ports, has_ports};
use flowgauge_engine::Meter;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice};

/// Rows copied at a time: few enough for the caches, and enough to make the cost of detaching from
/// the interpreter negligible.
pub(crate) const ROWS: usize = 8192;

/// A column: an array, or one value for all packets.
enum Column<'py, T> {
    All(T),
    Each(Bound<'py, PyAny>),
}

impl<'py, T: Element + Default> Column<'py, T> {
    /// A column from Python's number or array of `T`.
    fn new(column: Bound<'py, PyAny>) -> Self
    where
        T: for<'a> FromPyObject<'a, 'py>,
    {
        let all = column.extract::<T>().ok();
        all.map_or(Self::Each(column), Self::All)
    }

    /// Copies the values of these rows, `width` values per row.
    fn copy(&self, rows: &Range<usize>, width: usize, to: &mut Vec<T>) -> PyResult<()> {
        match self {
            Self::All(value) => {
                to.clear();
                to.resize(rows.len(), *value);
                Ok(())
            }
            Self::Each(array) => {
                to.resize(rows.len() * width, T::default());
                let py = array.py();
                let slice = PySlice::new(py, rows.start.cast_signed(), rows.end.cast_signed(), 1);
                PyBuffer::get(&array.get_item(slice)?)?.copy_to_slice(py, to)
            }
        }
    }
}

/// Addresses of packets.
enum Addresses<'py> {
    /// IPv4 addresses as numbers.
    V4(Column<'py, u32>),
    /// IPv6 addresses, 16 bytes each.
    V6(Column<'py, u8>),
}

/// The columns of a push.
pub(crate) struct Columns<'py> {
    addresses: [Addresses<'py>; 2],
    ports: [Column<'py, u16>; 2],
    protocol: Column<'py, u8>,
    length: Column<'py, u32>,
    time_ns: Column<'py, i64>,
    len: usize,
}

impl<'py> Columns<'py> {
    /// The columns by name. `flowgauge._columns` converts them to arrays of the right types.
    pub(crate) fn new(py: Python<'py>, given: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        let columns = py.import("flowgauge._columns")?.call_method("made", (), given)?;
        let column = |name: &str| columns.get_item(name);
        let is_v6: bool = column("is_v6")?.extract()?;
        let addresses = |name| {
            let column = column(name)?;
            Ok::<_, PyErr>(if is_v6 {
                Addresses::V6(Column::Each(column))
            } else {
                Addresses::V4(Column::new(column))
            })
        };
        Ok(Self {
            addresses: [addresses("source")?, addresses("destination")?],
            ports: [Column::new(column("source_port")?), Column::new(column("destination_port")?)],
            protocol: Column::new(column("protocol")?),
            length: Column::new(column("length")?),
            time_ns: Column::new(column("time_ns")?),
            len: column("rows")?.extract()?,
        })
    }

    /// The number of packets.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies at most [`ROWS`] rows, starting at `first`.
    pub(crate) fn copy(&self, first: usize, to: &mut Copied) -> PyResult<()> {
        let rows = first..self.len.min(first + ROWS);
        for (addresses, (v4, v6)) in self.addresses.iter().zip(to.v4.iter_mut().zip(&mut to.v6)) {
            match addresses {
                Addresses::V4(column) => {
                    v6.clear();
                    column.copy(&rows, 1, v4)?;
                }
                Addresses::V6(column) => {
                    v4.clear();
                    column.copy(&rows, 16, v6)?;
                }
            }
        }
        for (column, to) in self.ports.iter().zip(&mut to.ports) {
            column.copy(&rows, 1, to)?;
        }
        self.protocol.copy(&rows, 1, &mut to.protocol)?;
        self.length.copy(&rows, 1, &mut to.length)?;
        self.time_ns.copy(&rows, 1, &mut to.time_ns)
    }
}

/// Rows copied out of the interpreter's memory.
#[derive(Default)]
pub(crate) struct Copied {
    v4: [Vec<u32>; 2],
    v6: [Vec<u8>; 2],
    ports: [Vec<u16>; 2],
    protocol: Vec<u8>,
    length: Vec<u32>,
    time_ns: Vec<i64>,
    /// IPv6 rows in the engine's form.
    rows: Vec<ParsedRow>,
}

impl Copied {
    /// Pushes the rows.
    pub(crate) fn push(&mut self, meter: &mut dyn Meter) {
        let Self { v4: [sources, destinations], ports: [source_ports, destination_ports], .. } =
            self;
        if sources.is_empty() {
            self.push_v6(meter);
            return;
        }
        meter.push_columns(ParsedColumns {
            sources,
            destinations,
            source_ports,
            destination_ports,
            protocols: &self.protocol,
            wires: &self.length,
            times_ns: &self.time_ns,
        });
    }

    fn push_v6(&mut self, meter: &mut dyn Meter) {
        let [sources, destinations] = &self.v6;
        let [source_ports, destination_ports] = &self.ports;
        let both = sources.as_chunks::<16>().0.iter().zip(destinations.as_chunks::<16>().0);
        let row = |(place, (source, destination)): (usize, (&[u8; 16], &[u8; 16]))| {
            let protocol = self.protocol[place];
            let ports = u32::from(source_ports[place]) << 16 | u32::from(destination_ports[place]);
            let ports = if has_ports(protocol) { Ports::Found(ports) } else { Ports::Absent };
            let mut addresses = [0; 32];
            addresses[..16].copy_from_slice(source);
            addresses[16..].copy_from_slice(destination);
            let headers = Headers::V6(Ip { addresses, protocol, ports });
            ParsedRow { headers, wire: self.length[place], time_ns: self.time_ns[place] }
        };
        self.rows.clear();
        self.rows.extend(both.enumerate().map(row));
        meter.push_headers(&self.rows);
    }
}
