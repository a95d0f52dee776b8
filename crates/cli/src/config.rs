//! From the command line to the measurements that the engine is asked for.

use flowgauge_engine::EpochLength;
use flowgauge_options::{Asked, Refusal};

use crate::args::{Destination, Format, Run};
use crate::failure::{Failure, complain};

/// The measurements that the options ask for. An epoch that is not given is `epoch`. An algorithm that is
/// chosen for their tasks is named on standard error.
pub(crate) fn configs(run: &Run, epoch: EpochLength) -> Result<Vec<Asked>, Failure> {
    let all = run.running.configs(epoch, run.stores())?;
    let tables =
        |output: &Destination| matches!(output.format, Some(Format::Csv | Format::Parquet));
    if all.iter().any(|asked| asked.measurement.updates.is_some())
        && run.destinations().iter().any(tables)
    {
        let message = "csv and parquet cannot hold updates; use --format json or text with \
                       --updates";
        return Err(Failure::Usage(message.to_owned()));
    }
    if !run.quiet {
        all.iter().filter_map(|asked| asked.note.as_ref()).for_each(|note| complain(note));
    }
    Ok(all)
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Usage(message) => Self::Usage(message),
            Refusal::Unreadable(message) => Self::Failed(message),
        }
    }
}
