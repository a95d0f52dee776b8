//! Jumps that pass over the tests whose outcome is known by then.
//!
//! `tcp and port 443` asks twice for the version and the transport. Every test is visited once,
//! in order, with what is known on all ways to it; its jumps then go on behind the tests which
//! that already answers. A test that is passed over would have loaded what was loaded before, so
//! that no packet is judged differently.

use super::machine::{Condition, Test};

/// The most facts that are carried along, and the most tests that one jump passes over: enough
/// for what people write, and a bound for what they should not.
const FACTS: usize = 6;
const PASSED: usize = 16;

/// The outcome of the test at this index.
type Fact = (u32, bool);

/// Shortens the ways through `tests` from `entry` on.
pub(super) fn shorten(tests: &mut [Test], entry: u32) {
    // What is known at a test, once a way to it was seen.
    let mut known: Vec<Option<Vec<Fact>>> = vec![None; tests.len()];
    if let Some(first) = known.get_mut(entry as usize) {
        *first = Some(Vec::new());
    }
    for at in 0..tests.len() {
        let Some(facts) = known[at].take() else { continue };
        for holds in [true, false] {
            let facts = with(&facts, (at as u32, holds), tests);
            let test = tests[at];
            let skip = if holds { test.yes } else { test.no };
            let target = pass(tests, &facts, at + 1 + skip as usize);
            let skip = (target - at - 1) as u32;
            if holds {
                tests[at].yes = skip;
            } else {
                tests[at].no = skip;
            }
            match known.get_mut(target) {
                Some(Some(others)) => others.retain(|fact| facts.contains(fact)),
                Some(none) => *none = Some(facts),
                None => {}
            }
        }
    }
}

/// `facts` and one more, in place of one that says less.
fn with(facts: &[Fact], fact: Fact, tests: &[Test]) -> Vec<Fact> {
    let mut facts = facts.to_vec();
    if facts.len() == FACTS {
        let exact = |&(at, holds): &Fact| {
            let condition = tests[at as usize].condition;
            holds && condition.low == condition.high
        };
        let least = facts.iter().position(|fact| !exact(fact)).unwrap_or(0);
        facts.remove(least);
    }
    facts.push(fact);
    facts
}

/// Follows the tests from `target` on as far as `facts` tell their outcomes.
fn pass(tests: &[Test], facts: &[Fact], mut target: usize) -> usize {
    for _ in 0..PASSED {
        let Some(test) = tests.get(target) else { break };
        let outcome = facts.iter().find_map(|&(at, holds)| {
            implied(&tests[at as usize].condition, holds, &test.condition)
        });
        let Some(outcome) = outcome else { break };
        target += 1 + if outcome { test.yes } else { test.no } as usize;
    }
    target
}

/// What `known`, which holds or does not, says of `other`.
fn implied(known: &Condition, holds: bool, other: &Condition) -> Option<bool> {
    if known.subject != other.subject || known.mask != other.mask {
        return None;
    }
    let within =
        |inner: &Condition, outer: &Condition| outer.low <= inner.low && inner.high <= outer.high;
    let apart = known.high < other.low || other.high < known.low;
    match holds {
        true if within(known, other) => Some(true),
        true if apart => Some(false),
        false if within(other, known) => Some(false),
        _ => None,
    }
}
