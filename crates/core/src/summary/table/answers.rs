//! What exact tables answer.

use super::{ExactTable, Layout};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::state::State;
use crate::summary::{
    Answers, Candidates, Details, Estimate, Flows, Forecast, Forecasts, Seen, SizeEstimate,
    SizeQuery, Spread,
};
use crate::terms::{Measure, Size};

impl<K: FlowKey, S: State, L: Layout<K, S>> ExactTable<K, S, L> {
    fn flow(&self, index: usize) -> (&K, &S) {
        let flow = self.active_flow(index);
        (self.layout.key(flow), self.layout.state(flow))
    }

    /// Packets and bytes that may belong to this flow but are not in its state.
    fn missed(&self, flow: usize) -> Size {
        if self.is_complete(flow) { self.saturated } else { self.untracked + self.saturated }
    }

    fn size_of(&self, flow: usize) -> SizeEstimate {
        let size = self.layout.state(flow).size();
        if self.is_complete(flow) {
            return SizeEstimate::counted(size, self.saturated);
        }
        SizeEstimate::between(size, size, size + self.missed(flow))
    }
}

impl<K: FlowKey, S: State, L: Layout<K, S>> Answers for ExactTable<K, S, L> {
    fn untracked(&self) -> Size {
        self.untracked
    }
    fn saturated(&self) -> Size {
        self.saturated
    }
    fn flows(&self) -> Option<&dyn Flows> {
        Some(self)
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
    fn spread(&self) -> Option<&dyn Spread> {
        S::ELEMENTS.then_some(self)
    }
    fn details(&self) -> Option<&dyn Details> {
        S::DETAILS.then_some(self)
    }
    fn forecasts(&self) -> Option<&dyn Forecasts> {
        S::LASTING.then_some(self)
    }
}

impl<K: FlowKey, S: State, L: Layout<K, S>> Flows for ExactTable<K, S, L> {
    fn len(&self) -> usize {
        self.active()
    }

    fn most(&self) -> usize {
        self.layout.most()
    }

    fn get(&self, index: usize) -> (&[u8], Size) {
        let (key, state) = self.flow(index);
        (key.canonical(self.digester.key_bytes()), state.size())
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], Size)) {
        for index in 0..self.active() {
            let (key, state) = self.flow(index);
            visit(key.canonical(self.digester.key_bytes()), state.size());
        }
    }

    fn may_lack(&self) -> Size {
        if self.are_complete() { Size::default() } else { self.untracked }
    }
}

impl<K: FlowKey, S: State, L: Layout<K, S>> Candidates for ExactTable<K, S, L> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for index in 0..self.active() {
            let flow = self.active_flow(index);
            visit(self.layout.key(flow).to_canonical(&self.digester), self.size_of(flow));
        }
    }

    fn overflow(&self) -> u64 {
        0
    }

    fn unnamed(&self, by: Measure) -> Option<f64> {
        Some(self.untracked.by(by) as f64)
    }
}

impl<K: FlowKey, S: State, L: Layout<K, S>> SizeQuery for ExactTable<K, S, L> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let Some(key) = K::matching(key, &self.digester) else {
            return SizeEstimate::exact(Size::default());
        };
        match self.find(key, key.digest(&self.digester)) {
            Some(flow) => self.size_of(flow),
            // Its packets may be untracked.
            None => SizeEstimate::between(Size::default(), Size::default(), self.untracked),
        }
    }
}

impl<K: FlowKey, S: State, L: Layout<K, S>> Details for ExactTable<K, S, L> {
    fn seen(&self, key: &[u8]) -> Option<Seen> {
        let key = K::matching(key, &self.digester)?;
        self.layout.state(self.find(key, key.digest(&self.digester))?).seen()
    }
}

/// Unless an address is complete, each untracked packet may bring it another element.
impl<K: FlowKey, S: State, L: Layout<K, S>> Spread for ExactTable<K, S, L> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Estimate)) {
        for flow in self.all() {
            if let Some(distinct) = self.layout.state(flow).distinct_above(self.spread) {
                let unseen = if self.is_complete(flow) { 0 } else { self.untracked.packets };
                let estimate = distinct.estimate(unseen, self.saturated.packets);
                visit(self.layout.key(flow).to_canonical(&self.digester), estimate);
            }
        }
    }

    fn overflow(&self) -> u64 {
        0
    }
}

impl<K: FlowKey, S: State, L: Layout<K, S>> Forecasts for ExactTable<K, S, L> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Forecast)) {
        for flow in self.all() {
            if let Some(ewma) = self.layout.state(flow).ewma() {
                let forecast = self.past.of(ewma, self.missed(flow));
                visit(self.layout.key(flow).to_canonical(&self.digester), forecast);
            }
        }
    }
}
