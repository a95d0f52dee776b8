//! How many rows and columns a sketch by modular hashing has, given as such or by the errors that
//! are wanted: those of Count-Min, whose bounds hold for any rows of random columns.
//!
//! Formulas: Cormode and Muthukrishnan, "An improved data stream summary: the count-min sketch and
//! its applications" (J. Algorithms 2005), section 3: with e/ε columns and ln 1/δ rows the least
//! counter of a key is off by more than ε of the total weight with the chance δ at most.

use super::super::{BuildError, BuildErrorKind, Options, Parameter, Parameters};
use super::modular::{BYTES, MOST_COLUMNS, MOST_ROWS, MOST_VERIFY, false_keys, window};
use crate::key::FlowKey;

/// The error of a size that is wanted.
pub(super) const EPSILON: Parameter = Parameter {
    name: "epsilon",
    help: "instead of columns: the error of a size as a share of the total weight; columns = e / \
           epsilon, rounded up to a power of two",
};

/// The chance of a larger one.
pub(super) const DELTA: Parameter = Parameter {
    name: "delta",
    help: "instead of rows and verify: the probability of a larger error; rows + verify = ln (1 \
           / delta), rounded up, at least the default",
};

/// Bytes of a key that is recovered, at most.
const MOST_BYTES: usize = 8;

/// Whether keys of type `K` can be recovered: for others no code is compiled.
pub(crate) const fn recovers<K: FlowKey>() -> bool {
    K::BYTES <= MOST_BYTES
}

/// Whether keys of these options can be recovered.
pub(super) fn fits(options: &Options, algorithm: &'static str) -> Result<(), BuildError> {
    let bytes = options.digester.key_bytes();
    if bytes <= MOST_BYTES { Ok(()) } else { Err(too_long(bytes, algorithm)) }
}

/// Why others cannot.
pub(super) fn too_long(bytes: usize, algorithm: &'static str) -> BuildError {
    let reason = format!(
        "keys of {bytes} bytes are too long to be recovered from columns; keys of 4 or 8 bytes can \
         be: one or two IPv4 addresses, a protocol or a port; use a table, such as linear-table, \
         for others"
    );
    BuildErrorKind::Unfit { algorithm, reason }.into()
}

/// The rows by modular hashing and by the digest that the parameters give, or else as few as keys of
/// `K` can be recovered from and one. All eight pairs of neighbouring words of a 64-bit key have a row;
/// a ninth would repeat one of them.
pub(super) fn rows<K: FlowKey>(parameters: &Parameters) -> Result<[usize; 2], BuildError> {
    let fewest = if K::BYTES == 4 { 4 } else { MOST_ROWS };
    parameters.exclusive("delta", &["rows", "verify"])?;
    if let Some(delta) = parameters.fraction("delta")? {
        let all_rows = (1.0 / delta).ln().ceil() as usize;
        if all_rows > MOST_ROWS + MOST_VERIFY {
            let most = MOST_ROWS + MOST_VERIFY;
            return Err(out_of_range(parameters, "delta", format!("large enough for {most} rows")));
        }
        // Those by the digest cost less, and tell true keys from others.
        let verify = all_rows.saturating_sub(fewest).clamp(1, MOST_VERIFY);
        return Ok([fewest.max(all_rows.saturating_sub(verify)), verify]);
    }
    let rows = parameters.integer("rows", fewest as u64..=MOST_ROWS as u64)?;
    let verify = parameters.integer("verify", 0..=MOST_VERIFY as u64)?.unwrap_or(1);
    Ok([rows.map_or(fewest, |rows| rows as usize), verify as usize])
}

/// The columns that the parameters give, or else as many as fit into `memory_bytes` with
/// `column_bytes` each and the tables of `rows` rows.
pub(super) fn columns<K: FlowKey>(
    parameters: &Parameters,
    memory_bytes: usize,
    rows: usize,
    column_bytes: usize,
) -> Result<usize, BuildError> {
    parameters.exclusive("epsilon", &["columns"])?;
    if let Some(epsilon) = parameters.fraction("epsilon")? {
        let columns = (std::f64::consts::E / epsilon).ceil();
        if columns > MOST_COLUMNS as f64 {
            let range = format!("large enough for {MOST_COLUMNS} columns");
            return Err(out_of_range(parameters, "epsilon", range));
        }
        return Ok((columns as usize).next_power_of_two());
    }
    let tables = table_bytes::<K>(rows);
    let rest = memory_bytes.saturating_sub(tables).min(MOST_COLUMNS * column_bytes);
    let columns = parameters.power_of_two("columns", rest, column_bytes)?;
    if columns > MOST_COLUMNS {
        let range = format!("a power of two from 2 to {MOST_COLUMNS}");
        return Err(out_of_range(parameters, "columns", range));
    }
    Ok(columns)
}

/// Bytes of the tables of `rows` rows, however many columns there are.
fn table_bytes<K: FlowKey>(rows: usize) -> usize {
    rows * window::<K>(MOST_COLUMNS.ilog2()) * BYTES
}

/// Refuses so few columns that, in the mean, more than one wrong key is recovered with a heavy key.
pub(super) fn check<K: FlowKey>(
    parameters: &Parameters,
    rows: [usize; 2],
    columns: usize,
    column_bytes: usize,
    memory_bytes: usize,
) -> Result<(), BuildError> {
    let mut fewest = columns;
    while false_keys::<K>(rows, fewest) > 1.0 && fewest < MOST_COLUMNS {
        fewest *= 2;
    }
    if fewest == columns {
        return Ok(());
    }
    match ["columns", "epsilon"].into_iter().find(|name| parameters.get(name).is_some()) {
        Some(name) => {
            let more = format!(
                "enough: fewer than {fewest} columns recover more wrong keys than right ones"
            );
            Err(out_of_range(parameters, name, more))
        }
        None => Err(BuildErrorKind::TooLittleMemory {
            needed: table_bytes::<K>(rows[0]) + fewest * column_bytes,
            given: memory_bytes,
        }
        .into()),
    }
}

fn out_of_range(parameters: &Parameters, name: &'static str, range: String) -> BuildError {
    let value = parameters.get(name).unwrap_or_default().to_owned();
    BuildErrorKind::OutOfRange { name, value, range }.into()
}
