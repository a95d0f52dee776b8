//! Conditions joined by `and`, `or` and `not`, and their compilation to a program.

use super::machine::{Condition, Program, Step, Test};

/// A node of [`Conditions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node(u32);

#[derive(Clone, Copy, Debug)]
enum Join {
    Test(Condition),
    Constant(bool),
    And(Node, Node),
    Or(Node, Node),
    Not(Node),
}

/// All nodes of an expression. They are in one vector, so that a long chain cannot overflow the
/// stack.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    nodes: Vec<Join>,
}

impl Conditions {
    fn push(&mut self, join: Join) -> Node {
        self.nodes.push(join);
        Node(self.nodes.len() as u32 - 1)
    }

    pub(super) fn test(&mut self, condition: Condition) -> Node {
        self.push(Join::Test(condition))
    }

    pub(super) fn constant(&mut self, value: bool) -> Node {
        self.push(Join::Constant(value))
    }

    /// Evaluates `right` only if `left` holds.
    pub(super) fn and(&mut self, left: Node, right: Node) -> Node {
        self.push(Join::And(left, right))
    }

    /// Evaluates `right` only if `left` does not hold.
    pub(super) fn or(&mut self, left: Node, right: Node) -> Node {
        self.push(Join::Or(left, right))
    }

    pub(super) fn not(&mut self, node: Node) -> Node {
        self.push(Join::Not(node))
    }

    /// The program that accepts if `root` holds. Tests run from left to right, and only as far as
    /// needed.
    pub(super) fn compile(&self, root: Node, steps: Vec<Step>) -> Program {
        let mut emitter = Emitter { tests: Vec::new() };
        let entry = emitter.emit(&self.nodes, root);
        let count = emitter.tests.len() as u32;
        let entry = count + 1 - entry;
        emitter.tests.reverse();
        shorten(&mut emitter.tests, entry);
        Program { tests: emitter.tests, steps, entry }
    }
}

/// The two places where a program ends. Tests have the places from 2 on, the last test first.
const ACCEPT: u32 = 0;
const REJECT: u32 = 1;

/// Emits tests from the last to the first, so that the target of each jump is known.
struct Emitter {
    tests: Vec<Test>,
}

/// Pending work: a node, and the places to continue at if it holds or not. `None` means the start
/// of the tests emitted just before.
struct Work {
    node: Node,
    yes: Option<u32>,
    no: Option<u32>,
}

impl Emitter {
    /// Emits the tests of `root` and returns the place of the first one.
    fn emit(&mut self, nodes: &[Join], root: Node) -> u32 {
        let mut work = vec![Work { node: root, yes: Some(ACCEPT), no: Some(REJECT) }];
        let mut place = ACCEPT;
        while let Some(Work { node, yes, no }) = work.pop() {
            let (yes, no) = (yes.unwrap_or(place), no.unwrap_or(place));
            let (all_yes, all_no) = (Some(yes), Some(no));
            match nodes[node.0 as usize] {
                Join::Test(condition) => place = self.test(condition, yes, no),
                Join::Constant(value) => place = if value { yes } else { no },
                Join::Not(inner) => work.push(Work { node: inner, yes: all_no, no: all_yes }),
                Join::And(left, right) => {
                    work.push(Work { node: left, yes: None, no: all_no });
                    work.push(Work { node: right, yes: all_yes, no: all_no });
                }
                Join::Or(left, right) => {
                    work.push(Work { node: left, yes: all_yes, no: None });
                    work.push(Work { node: right, yes: all_yes, no: all_no });
                }
            }
        }
        place
    }

    fn test(&mut self, condition: Condition, yes: u32, no: u32) -> u32 {
        let place = self.tests.len() as u32 + 2;
        self.tests.push(Test { condition, yes: place - yes - 1, no: place - no - 1 });
        place
    }
}

/// Maximum number of facts kept, enough for ordinary expressions.
const FACTS: usize = 6;
/// Maximum number of tests that one jump skips, likewise.
const PASSED: usize = 16;

/// The outcome of the test at this index.
type Fact = (u32, bool);

/// Redirects jumps past tests whose outcome is known.
///
/// `tcp and port 443` tests the version and the transport twice. This visits every test once, in
/// order, with the facts that hold on all ways to it; its jumps then skip the tests that these
/// facts decide. A skipped test would have loaded bytes that were loaded before, so no packet is
/// judged differently.
fn shorten(tests: &mut [Test], entry: u32) {
    // The facts at each test, once a way to it was seen.
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

/// Adds a fact. If there are too many, removes one that is not an equality, or the first one.
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

/// Follows the tests from `target` on while `facts` decide their outcomes.
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

/// The outcome of `other`, if it follows from the outcome of `known`.
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
