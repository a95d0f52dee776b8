//! The thread that closes epochs, and updates those that go on.

use flowgauge_core::key::FlowKey;
use flowgauge_core::summary::Size;
use flowgauge_kernel::{Consumer, Gone, Keeper};

use super::worker::Set;
use crate::close::Closer;
use crate::error::EngineError;
use crate::reader::Ended;
use crate::report::Gap;
use crate::sink::Sink;
use crate::summaries::{View, hand_out};

/// Events on their way to the closer: more than there can be while a worker has two sets.
pub(super) const EVENTS: usize = 8;

/// What the reader tells the closer.
pub(super) enum Event {
    End(Box<Ended>),
    Gap(Gap),
}

pub(super) struct Closing<'a, A, B> {
    closer: &'a mut Closer,
    sink: &'a mut dyn Sink,
    /// What each worker hands over.
    keepers: Vec<Keeper<Set<A, B>>>,
    events: Consumer<Option<Event>>,
    joined: bool,
    /// The sets that were handed over last.
    sets: Vec<Set<A, B>>,
    /// Where updates are asked for: all that was handed over in this epoch.
    sums: Vec<Set<A, B>>,
    /// What was measured of it.
    ingested: Size,
}

impl<'a, A: FlowKey, B: FlowKey> Closing<'a, A, B> {
    pub(super) fn new(
        closer: &'a mut Closer,
        sink: &'a mut dyn Sink,
        keepers: Vec<Keeper<Set<A, B>>>,
        sums: Vec<Set<A, B>>,
        events: Consumer<Option<Event>>,
        joined: bool,
    ) -> Self {
        let sets = Vec::with_capacity(keepers.len());
        Self { closer, sink, keepers, events, joined, sets, sums, ingested: Size::default() }
    }

    /// Closes epochs in their order until the reader ends, or a worker is gone.
    pub(super) fn run(mut self) -> Result<(), EngineError> {
        while let Ok(Some(event)) = self.events.pop(Option::take) {
            match event {
                Event::Gap(gap) => self.closer.gap(&gap, self.sink)?,
                Event::End(ended) => {
                    if self.collect().is_err() {
                        break;
                    }
                    let goes_on = ended.update;
                    self.close(*ended)?;
                    self.give_back(goes_on);
                }
            }
        }
        Ok(())
    }

    /// Takes what each worker measured: of what all of them shared, one handle.
    fn collect(&mut self) -> Result<(), Gone> {
        for keeper in &mut self.keepers {
            let set = keeper.take()?;
            match self.sets.first_mut().filter(|first| first.summaries.is_shared()) {
                Some(first) => first.ingested += set.ingested,
                None => self.sets.push(set),
            }
        }
        Ok(())
    }

    fn close(&mut self, ended: Ended) -> Result<(), EngineError> {
        self.ingested += self.sets.iter().map(|set| set.ingested).sum();
        let all = self.ingested + ended.unmeasured + ended.account.dropped;
        debug_assert_eq!(
            (all.packets, all.bytes),
            (ended.account.keyed, ended.account.keyed_bytes),
            "every packet with a key was measured, or counted as not measured"
        );
        for set in &mut self.sets {
            set.summaries.collect()?;
            set.summaries.settle();
        }
        let (answering, parts) = match (&mut self.sums[..], &mut self.sets[..]) {
            // Tables are read side by side; the first of all others becomes the sum of them.
            ([], sets) => sets.split_at_mut(if self.joined { sets.len() } else { 1 }),
            (sums, sets) => (sums, sets),
        };
        for (at, part) in parts.iter().enumerate() {
            let merged = answering[at % answering.len()].summaries.merge(&part.summaries);
            merged.map_err(|reason| EngineError::Workers(reason.to_string()))?;
        }
        for set in &mut *answering {
            set.summaries.settle();
        }
        let goes_on = ended.update;
        let view = View::new(self.closer.key, answering.iter().map(|set| &set.summaries));
        self.closer.close(ended, &view.lanes(), self.sink)?;
        if !goes_on {
            for sum in &mut self.sums {
                sum.summaries.next_epoch();
            }
            self.ingested = Size::default();
        }
        Ok(())
    }

    /// Clears the sets, and gives them back, for another part of an epoch that goes on.
    fn give_back(&mut self, goes_on: bool) {
        let another = |set: &Set<A, B>| set.summaries.another().map(Set::new);
        hand_out(&mut self.sets, self.keepers.len(), another);
        for (keeper, mut set) in self.keepers.iter_mut().zip(self.sets.drain(..)) {
            if goes_on {
                set.summaries.next_part();
            } else {
                set.summaries.next_epoch();
            }
            set.ingested = Size::default();
            keeper.give_back(set);
        }
    }
}
