//! Summaries of which each has other flows, seen as one.

use flowgauge_core::key::CanonicalKey;
use flowgauge_core::summary::{
    Answers, Candidates, Details, Estimate, Flows, Seen, SizeEstimate, SizeQuery, Spread,
};
use flowgauge_core::terms::{Measure, Size};

/// What workers answer together that got packets of different flows: what each of them lists, and the
/// sums of what each of them counts. Where there is one of them, it speaks for itself.
pub(crate) struct Joined<'a> {
    parts: Vec<&'a dyn Answers>,
    flows: Vec<&'a dyn Flows>,
}

impl<'a> Joined<'a> {
    pub(crate) fn new(parts: Vec<&'a dyn Answers>) -> Self {
        let flows = match parts.len() {
            1 => Vec::new(),
            _ => parts.iter().filter_map(|part| part.flows()).collect(),
        };
        Self { parts, flows }
    }

    /// The read side.
    pub(crate) fn answers(&self) -> &dyn Answers {
        match &self.parts[..] {
            [only] => *only,
            _ => self,
        }
    }

    /// What `ask` gets of each part; `None` where one of them does not tell.
    fn all<T>(&self, ask: impl Fn(&'a dyn Answers) -> Option<T>) -> Option<Vec<T>> {
        self.parts.iter().map(|part| ask(*part)).collect()
    }
}

impl Answers for Joined<'_> {
    fn untracked(&self) -> Size {
        self.parts.iter().map(|part| part.untracked()).sum()
    }
    fn saturated(&self) -> Size {
        self.parts.iter().map(|part| part.saturated()).sum()
    }
    fn flows(&self) -> Option<&dyn Flows> {
        (self.flows.len() == self.parts.len()).then_some(self)
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        self.all(|part| part.size()).map(|_| self as &dyn SizeQuery)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        self.all(|part| part.candidates()).map(|_| self as &dyn Candidates)
    }
    fn cardinality(&self) -> Option<Estimate> {
        self.all(<dyn Answers>::cardinality).map(|parts| sum(parts.into_iter()))
    }
    fn weight_logs(&self, by: Measure) -> Option<Estimate> {
        self.all(|part| part.weight_logs(by)).map(|parts| sum(parts.into_iter()))
    }
    fn details(&self) -> Option<&dyn Details> {
        self.all(|part| part.details()).map(|_| self as &dyn Details)
    }
    fn spread(&self) -> Option<&dyn Spread> {
        self.all(|part| part.spread()).map(|_| self as &dyn Spread)
    }
}

/// The sum of estimates that do not depend on each other.
fn sum(parts: impl Iterator<Item = Estimate>) -> Estimate {
    parts.fold(Estimate::exact(0), |sum, part| Estimate {
        value: sum.value + part.value,
        low: sum.low + part.low,
        high: sum.high + part.high,
        confidence: match (sum.confidence, part.confidence) {
            (Some(one), Some(other)) => Some(one * other),
            (one, other) => one.or(other),
        },
    })
}

impl Flows for Joined<'_> {
    fn len(&self) -> usize {
        self.flows.iter().map(|part| part.len()).sum()
    }

    fn most(&self) -> usize {
        self.flows.iter().map(|part| part.most()).sum()
    }

    fn get(&self, index: usize) -> (&[u8], Size) {
        let (mut index, last) = (index, self.flows.len() - 1);
        for part in &self.flows[..last] {
            match part.len() {
                len if index < len => return part.get(index),
                len => index -= len,
            }
        }
        self.flows[last].get(index)
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], Size)) {
        self.flows.iter().for_each(|part| part.for_each(visit));
    }
}

impl SizeQuery for Joined<'_> {
    /// What the part says that lists the flow; where none does, what each of them may have of it.
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let estimate = |part: &&dyn Answers| Some(part.size()?.estimate(key));
        let parts: Vec<_> = self.parts.iter().filter_map(estimate).collect();
        let listed = |size: &SizeEstimate| {
            let low = |estimate: Option<Estimate>| estimate.is_some_and(|size| size.low > 0.0);
            low(size.packets) || low(size.bytes)
        };
        if let Some(size) = parts.iter().find(|size| listed(size)) {
            return *size;
        }
        let all = |of: fn(&SizeEstimate) -> Option<Estimate>| {
            parts.iter().map(of).collect::<Option<Vec<_>>>().map(|parts| sum(parts.into_iter()))
        };
        SizeEstimate { packets: all(|size| size.packets), bytes: all(|size| size.bytes) }
    }
}

impl Candidates for Joined<'_> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        let candidates = self.parts.iter().filter_map(|part| part.candidates());
        candidates.for_each(|part| part.for_each(visit));
    }

    fn overflow(&self) -> u64 {
        self.parts.iter().filter_map(|part| part.candidates()).map(Candidates::overflow).sum()
    }

    /// Each part had all packets of its flows.
    fn unnamed(&self, by: Measure) -> Option<f64> {
        let parts = self.all(|part| part.candidates()?.unnamed(by))?;
        Some(parts.into_iter().fold(0.0, f64::max))
    }
}

impl Details for Joined<'_> {
    fn seen(&self, key: &[u8]) -> Option<Seen> {
        self.parts.iter().find_map(|part| part.details()?.seen(key))
    }
}

impl Spread for Joined<'_> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Estimate)) {
        self.parts.iter().filter_map(|part| part.spread()).for_each(|part| part.for_each(visit));
    }

    fn overflow(&self) -> u64 {
        self.parts.iter().filter_map(|part| part.spread()).map(Spread::overflow).sum()
    }
}
