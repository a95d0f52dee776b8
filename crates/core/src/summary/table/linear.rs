//! LinearTable: open addressing with linear probing, in front of an array of flows.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §3. With `layout=inline` it is the paper's: keys and states in the
//! buckets. By default keys and states stand one after the other in the order of arrival, and the
//! buckets hold their numbers. So memory is touched in proportion to the flows, the flows that arrive
//! first, which are the large ones, share cache lines, visiting is one walk, and growing moves no
//! flow. Probing then goes by groups of buckets, which are looked at all at once.

use super::super::state::{self, Count, Kind, PADDING, STATE, with_state};
use super::super::{
    BuildError, Describe, Info, Laws, Merge, Options, Parameter, Parameters, Summary,
};
use super::exact::ExactTable;
use super::index::Segments;
use super::inline::Inline;
use super::layout::Records;
use crate::key::FlowKey;

/// Exact states of every flow, until it is full.
///
/// Cost: a cache line of the index and one of the flows for each packet, both asked for ahead; inline
/// mostly one. Memory in bytes, with `record` for `size_of::<K>() + 12` of counters, rounded up to the
/// key's alignment: `4 × buckets + 3/4 × buckets × record`; inline `buckets × record + 3/4 × buckets × 4`.
pub struct LinearTable;

/// The words of the parameter `layout`, the default first.
pub(in crate::summary) const LAYOUTS: [&str; 2] = ["records", "inline"];

/// Whether the parameters ask for the layout that is not the default.
fn is_inline(options: &Options) -> Result<bool, BuildError> {
    Ok(options.parameters.word("layout", &LAYOUTS)? != LAYOUTS[0])
}

/// Where it keeps its flows by default.
pub(in crate::summary) type Linear<K, S> = Records<K, S, Segments>;

/// A linear table of counters, for summaries that stand on one.
pub(in crate::summary) type Counts<K> = ExactTable<K, Count, Linear<K, Count>>;

/// Buckets at most: flows are numbered by 32 bits.
pub(in crate::summary) const MOST_BUCKETS: u64 = 1 << 32;

impl Describe for LinearTable {
    const INFO: Info = Info {
        name: "linear-table",
        idea: "exact hash table, linear probing, with flows in order of arrival or in the buckets",
        paper: "Simple (SOSR 2018), section 3",
        parameters: &[
            Parameter {
                name: "buckets",
                help: "number of buckets, a power of two, of which three quarters can hold a \
                       flow (default: what fits into the memory)",
            },
            Parameter {
                name: "layout",
                help: "place of keys and states: records (in order of arrival behind an index; \
                       grows with the flows) or inline (in the buckets; all in use from the \
                       start) (default: records)",
            },
            STATE,
            PADDING,
        ],
        memory: "4 x buckets + 3/4 x buckets x record; record: key + state (12 or more), rounded \
                 up to 4 or 8; layout=inline: buckets x (record + 3)",
        forms: state::TABLE_FORMS,
        laws: Laws {
            flows: true,
            commutable: true,
            aggregatable: true,
            sizes: true,
            merge: Merge::Equal,
            ..Laws::NONE
        },
    };

    fn laws(parameters: &Parameters) -> Laws {
        state::laws(Self::INFO.laws, parameters)
    }

    fn fits(options: &Options) -> Result<(), BuildError> {
        is_inline(options)?;
        Kind::fits(Self::INFO.name, &Kind::OF_TABLES, options)
    }

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        let inline = is_inline(options)?;
        with_state!(K, Kind::from_options(Self::INFO.name, &Kind::OF_TABLES, options)?, S => {
            if inline {
                ExactTable::<K, S, Inline<K, S>>::build(options, MOST_BUCKETS)
            } else {
                ExactTable::<K, S, Linear<K, S>>::build(options, MOST_BUCKETS)
            }
        })
    }
}
