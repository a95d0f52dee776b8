//! Sets that one thread uses and another one evaluates. Handing a set over costs one move, whatever
//! its size.

use std::collections::VecDeque;

use crate::ring::{Consumer, Gone, Producer, ring};

/// The side of an [`exchange`] that uses one set after another.
///
/// ```
/// let (mut user, mut keeper) = flowgauge_kernel::exchange(vec![0, 10]);
/// *user.current().unwrap() += 1;
/// assert!(user.try_hand_over().unwrap());
/// assert_eq!((keeper.take().unwrap(), *user.current().unwrap()), (1, 10));
/// ```
pub struct User<S> {
    /// The set in use; `None` after a handover without a spare.
    current: Option<S>,
    full: Producer<Option<S>>,
    spare: Consumer<Option<S>>,
    /// Spares that came back before a lent set.
    stash: VecDeque<S>,
    /// Number of all sets.
    sets: usize,
}

/// The side of an [`exchange`] that takes used sets and gives them back.
pub struct Keeper<S> {
    full: Consumer<Option<S>>,
    spare: Producer<Option<S>>,
}

/// The two sides of an exchange of these sets. The first set is in use at once.
///
/// ```
/// let (mut user, mut keeper) = flowgauge_kernel::exchange(vec![0, 0]);
/// let closer = std::thread::spawn(move || {
///     let mut epochs = Vec::new();
///     while let Ok(packets) = keeper.take() {
///         epochs.push(packets);
///         keeper.give_back(0);
///     }
///     epochs
/// });
/// for packets in [3, 5, 8] {
///     *user.current().unwrap() += packets;
///     user.hand_over().unwrap();
/// }
/// drop(user);
/// assert_eq!(closer.join().unwrap(), [3, 5, 8]);
/// ```
pub fn exchange<S: Send>(sets: Vec<S>) -> (User<S>, Keeper<S>) {
    let all = sets.len();
    let (put_full, take_full) = ring(all, || None);
    let (mut put_spare, take_spare) = ring(sets.len(), || None);
    let mut sets = sets.into_iter();
    let current = sets.next();
    for set in sets {
        // There are as many slots as sets.
        put_spare.try_push(|slot| *slot = Some(set));
    }
    let stash = VecDeque::with_capacity(all);
    let user = User { current, full: put_full, spare: take_spare, stash, sets: all };
    (user, Keeper { full: take_full, spare: put_spare })
}

impl<S: Send> User<S> {
    /// Whether a set is in use, so that [`Self::current`] does not wait.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        self.current.is_some()
    }

    /// The set in use. Waits if the keeper has all sets.
    ///
    /// # Errors
    /// When the keeper was dropped.
    #[inline(always)]
    pub fn current(&mut self) -> Result<&mut S, Gone> {
        if self.current.is_none() {
            self.current = match self.stash.pop_front() {
                Some(set) => Some(set),
                None => self.spare.pop(Option::take)?,
            };
        }
        self.current.as_mut().ok_or(Gone)
    }

    /// Whether the keeper was dropped, so that sets handed over are lost.
    pub fn is_gone(&self) -> bool {
        self.full.is_gone()
    }

    /// The set in use, if there is one.
    pub fn in_use(&mut self) -> Option<&mut S> {
        self.current.as_mut()
    }

    /// Hands the set in use over and continues with a spare one, if there is one. Waits only if no
    /// set is in use.
    ///
    /// # Errors
    /// When the keeper was dropped.
    pub fn hand_over(&mut self) -> Result<(), Gone> {
        self.current()?;
        let set = self.current.take();
        self.full.push(|slot| *slot = set)?;
        self.current = self.next_spare();
        Ok(())
    }

    /// Hands the set in use over if there is a spare one, and continues with that. Never waits:
    /// without a spare it returns `false` and the same set stays in use.
    ///
    /// # Errors
    /// When the keeper was dropped.
    pub fn try_hand_over(&mut self) -> Result<bool, Gone> {
        let Some(spare) = self.next_spare() else {
            return if self.full.is_gone() { Err(Gone) } else { Ok(false) };
        };
        let set = self.current.replace(spare);
        // There are as many slots as sets.
        self.full.push(|slot| *slot = set)?;
        Ok(true)
    }

    /// Hands the set in use over and waits until the keeper gives the same set back.
    ///
    /// # Errors
    /// When the keeper was dropped.
    pub fn lend(&mut self) -> Result<(), Gone> {
        self.current()?;
        let set = self.current.take();
        self.full.push(|slot| *slot = set)?;
        // Sets come back in the order in which they were handed over, the lent one last.
        while self.stash.len() < self.sets - 1 {
            let spare = self.spare.pop(Option::take)?.ok_or(Gone)?;
            self.stash.push_back(spare);
        }
        self.current = self.spare.pop(Option::take)?;
        Ok(())
    }

    fn next_spare(&mut self) -> Option<S> {
        self.stash.pop_front().or_else(|| self.spare.try_pop(Option::take).flatten())
    }
}

impl<S: Send> Keeper<S> {
    /// The next set handed over; waits for it.
    ///
    /// # Errors
    /// When the user was dropped and all its sets were taken.
    pub fn take(&mut self) -> Result<S, Gone> {
        self.full.pop(Option::take)?.ok_or(Gone)
    }

    /// The next set handed over; `None` if there is none yet.
    ///
    /// # Errors
    /// When the user was dropped and all its sets were taken.
    pub fn try_take(&mut self) -> Result<Option<S>, Gone> {
        let gone = self.full.is_gone();
        match self.full.try_pop(Option::take).flatten() {
            None if gone => Err(Gone),
            set => Ok(set),
        }
    }

    /// Gives a set back for reuse. It is dropped if the user was dropped.
    pub fn give_back(&mut self, set: S) {
        let _ = self.spare.push(|slot| *slot = Some(set));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sets_circulate_and_a_user_without_one_returns_when_the_keeper_is_dropped() {
        let (mut user, mut keeper) = exchange(vec![1, 2]);
        assert_eq!(user.current().copied(), Ok(1));
        assert_eq!(user.hand_over(), Ok(()));
        assert_eq!(user.current().copied(), Ok(2));
        assert_eq!(user.hand_over(), Ok(()));
        assert!(!user.is_ready());
        assert_eq!(keeper.take(), Ok(1));
        keeper.give_back(3);
        assert_eq!(user.current().copied(), Ok(3));
        assert_eq!(user.hand_over(), Ok(()));
        assert_eq!((keeper.take(), keeper.take()), (Ok(2), Ok(3)));
        drop(keeper);
        assert_eq!(user.current(), Err(Gone));
        assert_eq!(user.hand_over(), Err(Gone));
        assert_eq!(user.lend(), Err(Gone));
    }

    #[test]
    fn try_hand_over_keeps_the_set_without_a_spare() {
        let (mut user, mut keeper) = exchange(vec![1, 2]);
        assert_eq!(keeper.try_take(), Ok(None));
        assert_eq!((user.try_hand_over(), user.try_hand_over()), (Ok(true), Ok(false)));
        assert_eq!(user.in_use().copied(), Some(2));
        assert_eq!((keeper.try_take(), keeper.try_take()), (Ok(Some(1)), Ok(None)));
        keeper.give_back(3);
        assert_eq!((user.try_hand_over(), user.in_use().copied()), (Ok(true), Some(3)));
        drop(user);
        assert_eq!((keeper.try_take(), keeper.try_take()), (Ok(Some(2)), Err(Gone)));
    }

    #[test]
    fn a_lent_set_comes_back() {
        let (mut user, mut keeper) = exchange(vec![1, 2, 3]);
        assert_eq!(user.hand_over(), Ok(()));
        let keeping = std::thread::spawn(move || {
            for set in [1, 2, 2, 3, 1] {
                assert_eq!(keeper.take(), Ok(set));
                keeper.give_back(set);
            }
        });
        assert_eq!((user.lend(), user.in_use().copied()), (Ok(()), Some(2)));
        for set in [3, 1, 2] {
            assert_eq!((user.hand_over(), user.current().copied()), (Ok(()), Ok(set)));
        }
        assert!(keeping.join().is_ok());
    }
}

/// Workers and a closer, interleaved by [`crate::ring::model::check`].
#[cfg(all(test, loom))]
mod model {
    use loom::thread;

    use super::*;
    use crate::ring::model::check;

    /// Two epochs. The busy worker has one update in each, the silent one none. In every
    /// interleaving, the closer gets each epoch with its updates.
    #[test]
    fn every_update_is_in_one_epoch_and_a_silent_worker_holds_none_open() {
        check(|| {
            let (mut busy, mut busy_keeper) = exchange(vec![0, 0]);
            let (mut silent, mut silent_keeper) = exchange(vec![0, 0]);
            let busy = thread::spawn(move || {
                for update in [1, 2] {
                    if let Ok(set) = busy.current() {
                        *set += update;
                    }
                    assert_eq!(busy.hand_over(), Ok(()));
                }
            });
            let silent = thread::spawn(move || {
                for _ in 0..2 {
                    assert_eq!(silent.hand_over(), Ok(()));
                }
            });
            for epoch in [1, 2] {
                for (keeper, counted) in [(&mut busy_keeper, epoch), (&mut silent_keeper, 0)] {
                    assert_eq!(keeper.take(), Ok(counted));
                    keeper.give_back(0);
                }
            }
            let _ = (busy.join(), silent.join());
        });
    }

    /// With one spare, the third epoch waits until the closer gives the first epoch's set back,
    /// cleared.
    #[test]
    fn a_returned_set_is_reused() {
        check(|| {
            let (mut user, mut keeper) = exchange(vec![0, 0]);
            let counting = thread::spawn(move || {
                for update in 1..=3 {
                    if let Ok(set) = user.current() {
                        *set += update;
                    }
                    assert_eq!(user.hand_over(), Ok(()));
                }
            });
            for epoch in 1..=3 {
                assert_eq!(keeper.take(), Ok(epoch));
                keeper.give_back(0);
            }
            let _ = counting.join();
        });
    }
}
