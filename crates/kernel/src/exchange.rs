//! Sets of anything that one thread uses and another one looks after: handing one over takes as long
//! as moving it, whatever is in it.

use crate::ring::{Consumer, Gone, Producer, ring};

/// The side that uses one set after another.
pub struct User<S> {
    /// The set in use; `None` after one was handed over while no other was there.
    current: Option<S>,
    full: Producer<Option<S>>,
    spare: Consumer<Option<S>>,
}

/// The side that takes the sets that were used, and gives them back.
pub struct Keeper<S> {
    full: Consumer<Option<S>>,
    spare: Producer<Option<S>>,
}

/// The two sides of an exchange of these sets, the first of which is in use.
pub fn exchange<S: Send>(sets: Vec<S>) -> (User<S>, Keeper<S>) {
    let (put_full, take_full) = ring(sets.len(), || None);
    let (mut put_spare, take_spare) = ring(sets.len(), || None);
    let mut sets = sets.into_iter();
    let current = sets.next();
    for set in sets {
        // There are as many slots as sets.
        put_spare.try_push(|slot| *slot = Some(set));
    }
    let user = User { current, full: put_full, spare: take_spare };
    (user, Keeper { full: take_full, spare: put_spare })
}

impl<S: Send> User<S> {
    /// Whether a set is in use, so that [`Self::current`] does not wait.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        self.current.is_some()
    }

    /// The set in use; waits for it where the keeper still has all of them.
    ///
    /// # Errors
    /// When the keeper is gone.
    #[inline(always)]
    pub fn current(&mut self) -> Result<&mut S, Gone> {
        if self.current.is_none() {
            self.current = self.spare.pop(Option::take)?;
        }
        self.current.as_mut().ok_or(Gone)
    }

    /// Hands the set in use over, and uses another one if it is there already. Waits only where
    /// there was none in use.
    ///
    /// # Errors
    /// When the keeper is gone.
    pub fn hand_over(&mut self) -> Result<(), Gone> {
        self.current()?;
        let set = self.current.take();
        self.full.push(|slot| *slot = set)?;
        self.current = self.spare.try_pop(Option::take).flatten();
        Ok(())
    }
}

impl<S: Send> Keeper<S> {
    /// The set that was handed over next; waits for it.
    ///
    /// # Errors
    /// When the user is gone and all that it handed over was taken.
    pub fn take(&mut self) -> Result<S, Gone> {
        self.full.pop(Option::take)?.ok_or(Gone)
    }

    /// Gives a set back to be used again; it is dropped where the user is gone.
    pub fn give_back(&mut self, set: S) {
        let _ = self.spare.push(|slot| *slot = Some(set));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sets_go_round_and_a_user_without_one_is_told_when_the_keeper_goes() {
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
    }
}

/// Workers and a closer, as [`crate::ring::model::check`] interleaves them.
#[cfg(all(test, loom))]
mod model {
    use loom::thread;

    use super::*;
    use crate::ring::model::check;

    /// Two epochs of one update each, of which the silent worker has none: the closer gets every
    /// epoch with what was counted in it, whoever is first.
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

    /// With one spare, a third epoch waits until the closer gives the first one's set back, cleared.
    #[test]
    fn a_set_that_comes_back_is_used_again() {
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
