//! Which cells take a flow, for estimates where only the cells are, such as in a database.

use super::rows::{MOST_ROWS, Rows, signs};
use crate::summary::build::Setting;

/// The cell of each row that takes a flow's weight, and whether it is subtracted there, for a sketch of this
/// algorithm and these parameters in force; `None` for other algorithms than `count-min`, `count-sketch` and
/// `k-ary`. Cells stand row by row, as [`Cells::read`](crate::summary::Cells::read) has them.
pub fn places(
    algorithm: &str,
    parameters: &[(&str, Setting)],
    digest: u64,
) -> Option<Vec<(usize, bool)>> {
    let signs = match algorithm {
        "count-min" | "k-ary" => 0,
        "count-sketch" => signs(digest),
        _ => return None,
    };
    let number = |name: &str| match parameters.iter().find(|(known, _)| *known == name) {
        Some((_, Setting::Integer(number))) => usize::try_from(*number).ok(),
        _ => None,
    };
    let rows = Rows::new(number("rows")?, number("columns")?);
    let places = rows.places::<MOST_ROWS>(digest);
    let place = |(row, place): (usize, &usize)| (*place, signs >> row & 1 == 1);
    Some(places[..rows.rows()].iter().enumerate().map(place).collect())
}
