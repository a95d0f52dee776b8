//! Arithmetic on the bytes and the length of a packet, and comparisons.

use super::Problem;
use super::condition::Node;
use super::machine::{Base, Binary, Compare, Condition, Load, STACK, Step, Subject, Width};
use super::offsets::carried;
use super::primitive::Generator;
use super::words::{IPV4, IPV6, Protocol, Relation};

/// A piece of arithmetic. Its steps are the last ones of the generator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arithmetic {
    start: usize,
    /// Stack depth.
    depth: usize,
    /// The condition under which its loads are meaningful.
    guard: Option<Node>,
}

impl Generator {
    pub(super) fn constant(&mut self, value: u32) -> Arithmetic {
        self.leaf(Step::Constant(value))
    }

    pub(super) fn wire_length(&mut self) -> Arithmetic {
        self.leaf(Step::Length)
    }

    fn leaf(&mut self, step: Step) -> Arithmetic {
        self.steps.push(step);
        Arithmetic { start: self.steps.len() - 1, depth: 1, guard: None }
    }

    /// The value of the piece, if it is one constant.
    fn value(&self, piece: Arithmetic) -> Option<u32> {
        match self.steps.get(piece.start..) {
            Some(&[Step::Constant(value)]) => Some(value),
            _ => None,
        }
    }

    pub(super) fn negate(&mut self, piece: Arithmetic) -> Arithmetic {
        if let Some(value) = self.value(piece) {
            self.steps[piece.start] = Step::Constant(value.wrapping_neg());
        } else {
            self.steps.push(Step::Negate);
        }
        piece
    }

    /// `left <operator> right`, where the steps of `right` follow those of `left`. As in tcpdump,
    /// only the protocol of the left side is tested: `len - ip[2:2]` is computed for any packet.
    pub(super) fn binary(
        &mut self,
        operator: Binary,
        left: Arithmetic,
        right: Arithmetic,
    ) -> Result<Arithmetic, Problem> {
        let divides = matches!(operator, Binary::Divide | Binary::Remainder);
        let shifts = matches!(operator, Binary::ShiftLeft | Binary::ShiftRight);
        let divisor = self.value(right);
        if divides && divisor == Some(0) {
            return Err(Problem::usage("a division by zero"));
        }
        if shifts && divisor.is_some_and(|bits| bits > 31) {
            return Err(Problem::usage("a shift by more than 31 bits"));
        }
        let both = self.steps.get(left.start..).and_then(|steps| match *steps {
            [Step::Constant(left), Step::Constant(right)] => operator.apply(left, right),
            _ => None,
        });
        if let Some(value) = both {
            self.steps.truncate(left.start);
            self.steps.push(Step::Constant(value));
        } else {
            self.steps.push(Step::Binary(operator));
        }
        let depth = left.depth.max(right.depth + 1);
        if depth > STACK {
            return Err(Problem::usage("arithmetic is nested too deeply"));
        }
        Ok(Arithmetic { depth, ..left })
    }

    /// `protocol[index:width]`.
    pub(super) fn load(
        &mut self,
        protocol: Protocol,
        index: Arithmetic,
        width: u32,
    ) -> Result<Arithmetic, Problem> {
        let width = match width {
            1 => Width::One,
            2 => Width::Two,
            4 => Width::Four,
            _ => return Err(Problem::usage("the size of an access is 1, 2 or 4 bytes")),
        };
        let network = self.offsets.network;
        let (base, offset) = match protocol {
            Protocol::Link => (Base::Frame, self.offsets.header),
            Protocol::Network(_) => (Base::Frame, network),
            Protocol::Icmp6 => (Base::Frame, network + 40),
            _ => (Base::BehindIpv4(network), 0),
        };
        let guard = self.guard(protocol, index.guard)?;
        let load = Load { base, offset, width };
        if let Some(value) = self.value(index) {
            // With a negative index, tcpdump reads another header or nothing, depending on its
            // optimizer.
            let place = i32::try_from(value).ok().and_then(|_| offset.checked_add(value));
            let offset = place.ok_or_else(|| Problem::usage("a negative offset"))?;
            self.steps[index.start] = Step::Load(Load { offset, ..load });
        } else {
            self.steps.push(Step::Indexed(load));
        }
        Ok(Arithmetic { guard, ..index })
    }

    /// The condition that a packet is of `protocol`, in addition to `earlier`.
    fn guard(
        &mut self,
        protocol: Protocol,
        earlier: Option<Node>,
    ) -> Result<Option<Node>, Problem> {
        let is_protocol = match protocol {
            Protocol::Link => return Ok(earlier),
            Protocol::Network(
                carried::IPV4
                | carried::IPV6
                | carried::ARP
                | carried::RARP
                | carried::ATALK
                | carried::DECNET
                | carried::SCA
                | carried::LAT
                | carried::MOP_LOAD
                | carried::MOP_CONSOLE,
            ) => self.is(protocol)?,
            Protocol::Icmp6 => {
                let v6 = self.is(IPV6)?;
                let v6 = self.both(earlier, v6);
                let icmp = self.all.equal(Width::One, self.offsets.network + 6, 58);
                return Ok(Some(self.all.and(v6, icmp)));
            }
            // All named protocols except AH and ESP.
            Protocol::Ipv4(_) | Protocol::Ip(6 | 17 | 103 | 132) => {
                let protocol = self.is(protocol)?;
                let first = self.not_a_later_fragment();
                let protocol = self.all.and(protocol, first);
                let protocol = self.both(earlier, protocol);
                let v4 = self.is(IPV4)?;
                return Ok(Some(self.all.and(v4, protocol)));
            }
            _ => return Err(Problem::usage("bytes of this protocol cannot be accessed")),
        };
        Ok(Some(self.both(earlier, is_protocol)))
    }

    fn both(&mut self, earlier: Option<Node>, node: Node) -> Node {
        earlier.map_or(node, |earlier| self.all.and(earlier, node))
    }

    /// `left <relation> right`.
    pub(super) fn relation(
        &mut self,
        relation: Relation,
        left: Arithmetic,
        right: Arithmetic,
    ) -> Node {
        let (compare, negated) = match relation {
            Relation::Equal => (Compare::Equal, false),
            Relation::NotEqual => (Compare::Equal, true),
            Relation::Greater => (Compare::Greater, false),
            Relation::LessEqual => (Compare::Greater, true),
            Relation::GreaterEqual => (Compare::AtLeast, false),
            Relation::Less => (Compare::AtLeast, true),
        };
        let end = self.steps.len();
        let condition = self.simple(compare, left, right).unwrap_or_else(|| {
            let [start, middle] = [left.start, right.start].map(|at| at as u32);
            let subject = Subject::Comparison { start, middle, end: end as u32, compare };
            Condition::new(subject, u32::MAX, Compare::Equal, 1)
        });
        let test = self.all.test(condition);
        let test = if negated { self.all.not(test) } else { test };
        let guard = match (left.guard, right.guard) {
            (Some(left), Some(right)) => Some(self.all.and(left, right)),
            (left, right) => left.or(right),
        };
        guard.map_or(test, |guard| self.all.and(guard, test))
    }

    /// A comparison of a field, masked or not, with a constant, which needs no arithmetic steps.
    fn simple(
        &mut self,
        compare: Compare,
        left: Arithmetic,
        right: Arithmetic,
    ) -> Option<Condition> {
        let value = self.value(right)?;
        let (step, mask) = match *self.steps.get(left.start..right.start)? {
            [step] => (step, u32::MAX),
            [step, Step::Constant(mask), Step::Binary(Binary::And)] => (step, mask),
            _ => return None,
        };
        let subject = match step {
            Step::Load(load) => Subject::Load(load),
            Step::Length => Subject::Length,
            _ => return None,
        };
        self.steps.truncate(left.start);
        Some(Condition::new(subject, mask, compare, value))
    }
}
