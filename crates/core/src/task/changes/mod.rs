//! `changes`: flows whose size deviates from its forecast (Simple, section 4.2).
//!
//! A flow is reported when its size and its forecast differ by more than the threshold, whether it
//! grew, appeared, shrank or vanished. Some summaries forecast their flows themselves. For a table,
//! the task keeps a history of every flow; for a linear sketch, a history of its cells.

mod cells;
mod flows;

use self::cells::CellForecasts;
use self::flows::{FlowForecasts, NoFlows, Unlisted};
use super::largest::{self, Largest};
use super::registry::TaskEntry;
use super::{ChangeItem, EpochContext, Lane, Lists, Report, Task, Unsupported, exact};
use crate::key::CanonicalKey;
use crate::summary::{Answers, Cells, Flows, Forecast, Forecasts};
use crate::terms::Measure;

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "changes",
    question: "flows whose size deviates from its forecast",
    by_default: false,
    timeline: false,
    build: |options| {
        let lanes = options.history.iter().map(|&shape| {
            Ok(History {
                key_bytes: shape.key_bytes,
                flows: FlowForecasts::new(shape, &options.seed)?,
                cells: CellForecasts::new(shape, options.forecast)?,
            })
        });
        let lanes = lanes.collect::<std::io::Result<_>>()?;
        Ok(Box::new(Changes { started: false, model: options.forecast, lanes }))
    },
};

/// The weight of the last epoch in a forecast; the previous forecast has the rest.
const ALPHA: f64 = 0.5;

/// The model that forecasts sizes from earlier epochs.
///
/// ```
/// use flowgauge_core::task::ForecastModel;
///
/// let names = ForecastModel::ALL.map(|(name, _)| name);
/// assert_eq!(names, ["ewma", "moving-average", "holt-winters"]);
/// assert_eq!(ForecastModel::default(), ForecastModel::Ewma);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForecastModel {
    /// ½ the last size + ½ the last forecast.
    #[default]
    Ewma,
    /// The mean of the last 4 epochs.
    MovingAverage,
    /// A level, ½ the last size + ½ the last forecast, and a trend, ¼ the last rise of the level +
    /// ¾ the last trend.
    HoltWinters,
}

impl ForecastModel {
    /// Every model with its name on the command line.
    pub const ALL: [(&'static str, Self); 3] = [
        ("ewma", Self::Ewma),
        ("moving-average", Self::MovingAverage),
        ("holt-winters", Self::HoltWinters),
    ];
}

/// The alternative to a table.
const INSTEAD: &str = "a summary with forecasts or a linear sketch";

struct Changes {
    /// Whether there was an earlier epoch.
    started: bool,
    model: ForecastModel,
    lanes: Vec<History>,
}

/// The history of one lane; one of the two parts is empty.
struct History {
    key_bytes: usize,
    flows: FlowForecasts,
    cells: CellForecasts,
}

/// The results of an epoch so far.
pub(super) struct Found {
    pub(super) threshold: f64,
    pub(super) by: Measure,
    pub(super) largest: Largest<ChangeItem>,
    pub(super) untracked: u64,
}

/// The source of a lane's changes.
enum Source<'a> {
    /// Forecasts by the summary.
    Summary(&'a dyn Forecasts),
    /// All flows of a table.
    Flows(&'a dyn Flows),
    /// The cells of a sketch.
    Cells(&'a dyn Cells),
}

impl Changes {
    fn source<'a>(&self, by: Measure, lane: &Lane<'a>) -> Result<Source<'a>, Unsupported> {
        let answers: &'a dyn Answers = lane.answers;
        let Some(history) = self.lanes.iter().find(|l| l.key_bytes == lane.key_bytes) else {
            return Err(Unsupported(format!(
                "changes has no history for keys of {} bytes",
                lane.key_bytes
            )));
        };
        let source = match (answers.forecasts(), answers.flows(), answers.cells()) {
            (Some(forecasts), _, _) => Source::Summary(forecasts),
            (None, None, Some(cells)) if cells.measure() != by => {
                return Err(Unsupported(format!(
                    "changes by {} needs a sketch that counts them (this one counts {})",
                    by.name(),
                    cells.measure().name()
                )));
            }
            (None, None, Some(cells)) if !history.cells.fits(cells) => {
                return Err(Unsupported(format!(
                    "changes has no history for {} cells",
                    cells.len()
                )));
            }
            (None, None, Some(cells))
                if cells.sampled() && self.model == ForecastModel::HoltWinters =>
            {
                return Err(Unsupported(
                    "holt-winters subtracts epochs, so the error of a sample is unknown; use \
                     --forecast ewma or moving-average"
                        .to_owned(),
                ));
            }
            (None, None, Some(cells)) => return Ok(Source::Cells(cells)),
            (None, _, _) => Source::Flows(exact(ENTRY.name, INSTEAD, lane)?),
        };
        match self.model {
            ForecastModel::Ewma => Ok(source),
            _ => Err(Unsupported(
                "changes forecasts single flows only by ewma; for another forecast use a linear \
                 sketch, such as --algorithm k-ary or count-sketch"
                    .to_owned(),
            )),
        }
    }
}

impl Task for Changes {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn compares_epochs(&self) -> bool {
        true
    }

    /// One bit for each flow.
    fn scratch_bytes(&self, flows: usize) -> usize {
        flows.div_ceil(64) * size_of::<u64>()
    }

    fn report_bytes(&self, lists: Lists, flows: usize) -> usize {
        largest::memory_bytes::<ChangeItem>(lists.top.min(lists.limit).min(2 * flows))
    }

    fn history_bytes(&self) -> usize {
        self.lanes.iter().map(|lane| lane.flows.memory_bytes() + lane.cells.memory_bytes()).sum()
    }

    fn check(&self, by: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        lanes.iter().try_for_each(|lane| self.source(by, lane).map(drop))
    }

    fn pass(&mut self, epochs: u64) {
        self.started |= epochs > 0;
        for lane in &mut self.lanes {
            lane.flows.pass(epochs, self.started);
            lane.cells.pass(epochs);
        }
    }

    fn run(
        &mut self,
        epoch: &EpochContext<'_>,
        lanes: &[Lane<'_>],
        scratch: &mut [u64],
    ) -> Result<Report, Unsupported> {
        let mut found = Found {
            threshold: epoch.threshold_weight(),
            by: epoch.by,
            largest: Largest::new(
                if self.started { epoch.lists.top } else { 0 },
                epoch.lists.limit,
            ),
            untracked: 0,
        };
        let sources = lanes.iter().map(|lane| Ok((lane, self.source(epoch.by, lane)?)));
        let sources = sources.collect::<Result<Vec<_>, Unsupported>>()?;
        for history in &mut self.lanes {
            let own = sources.iter().find(|(lane, _)| lane.key_bytes == history.key_bytes);
            match own {
                Some((_, Source::Summary(forecasts))) => listed(*forecasts, &mut found),
                Some((lane, Source::Flows(flows))) => {
                    let most = lane.answers.untracked().by(epoch.by);
                    let unlisted = Unlisted { most, sizes: lane.answers.size() };
                    history.flows.run(self.started, *flows, &unlisted, scratch, &mut found);
                }
                Some((lane, Source::Cells(cells))) => {
                    history.cells.run(*cells, lane.answers, &mut found);
                }
                None => {
                    let none = Unlisted::NONE;
                    history.flows.run(self.started, &NoFlows, &none, scratch, &mut found);
                    history.cells.pass(1);
                }
            }
        }
        let threshold = self.started.then_some(found.threshold);
        self.started = true;
        let (items, truncated) = found.largest.into_list();
        Ok(Report::Changes { threshold, items, truncated, untracked: found.untracked })
    }
}

/// Adds the changes of flows that their summary forecasts.
fn listed(forecasts: &dyn Forecasts, found: &mut Found) {
    forecasts.for_each(&mut |key: CanonicalKey, Forecast { before, forecast, now }| {
        let Some(forecast) = forecast else { return };
        let difference = (now.value - forecast.value).abs();
        if difference > found.threshold && found.largest.admits(difference, || key) {
            found.largest.push(difference, ChangeItem { key, before, forecast, now });
        }
    });
}
