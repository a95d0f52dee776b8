//! Conditions joined by and, or, not; and how they become a program.

use super::machine::{Condition, Program, Step, Test};
use super::shorten::shorten;

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

/// All nodes of an expression in one vector, so that no chain of them is too long for the stack.
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

    /// `left`, and if that holds, `right`.
    pub(super) fn and(&mut self, left: Node, right: Node) -> Node {
        self.push(Join::And(left, right))
    }

    /// `left`, and if that does not hold, `right`.
    pub(super) fn or(&mut self, left: Node, right: Node) -> Node {
        self.push(Join::Or(left, right))
    }

    pub(super) fn not(&mut self, node: Node) -> Node {
        self.push(Join::Not(node))
    }

    /// The program that accepts where `root` holds. Tests are evaluated from left to right and
    /// only as far as needed.
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

/// The two places where a program ends; tests follow from 2 on, the last one first.
const ACCEPT: u32 = 0;
const REJECT: u32 = 1;

/// Tests from the last to the first: so every jump is to a place that is known already.
struct Emitter {
    tests: Vec<Test>,
}

/// Work that is left: a node, and where to go on when it holds and when it does not. `None` is
/// the place that the work done just before has begun at.
struct Work {
    node: Node,
    yes: Option<u32>,
    no: Option<u32>,
}

impl Emitter {
    /// Emits the tests of `root` and returns the place of the first.
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
