//! What must be the same in two snapshots that add up.

use flowgauge_core::audit::Audit;

use super::{MergeError, Snapshot};

/// Compares the identities, field by field.
///
/// # Errors
/// When they differ, with the field and both values.
pub(super) fn check(one: &Snapshot, other: &Snapshot) -> Result<(), MergeError> {
    for ((field, one), (_, other)) in fields(one).into_iter().zip(fields(other)) {
        if one != other {
            return Err(MergeError::Differs { field, one, other });
        }
    }
    Ok(())
}

/// The identity of a snapshot, by field.
fn fields(snapshot: &Snapshot) -> [(&'static str, String); 16] {
    let Snapshot { config, summaries, options, .. } = snapshot;
    let filter = config.filter.as_ref().map_or("", |filter| filter.expression());
    let parameters = summaries.parameters().into_iter();
    let parameters: Vec<_> = parameters.map(|(name, value)| format!("{name}={value}")).collect();
    let seed = options[0].digester.seed().id();
    [
        ("measurement", config.name.clone()),
        ("key", config.key.to_string()),
        ("by", config.by.name().to_owned()),
        ("algorithm", config.algorithm.clone()),
        ("accelerator", summaries.accelerator()),
        ("threshold", format!("{:?}", config.threshold)),
        ("spread", config.spread.to_string()),
        ("spread-of", format!("{:?}", config.spread_of)),
        ("hierarchy", format!("{:?}", config.hierarchy)),
        ("filter", format!("'{filter}'")),
        ("tunnels", format!("{:?}", config.tunnels)),
        ("epoch", format!("{:?}", config.epoch)),
        ("seed", format!("{} {seed}", seed.kind())),
        // An audit takes memory from the summaries, whose parameters then differ, too.
        ("audit", summaries.audits.first().map_or(0, Audit::one_in).to_string()),
        ("parameters", parameters.join(",")),
        ("lanes", summaries.lanes.len().to_string()),
    ]
}
