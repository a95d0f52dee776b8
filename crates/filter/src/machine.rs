//! The compiled filter: tests of a packet's bytes that jump only forward, and their interpreter.
//!
//! Every jump skips some of the following tests, so no program can loop. A load beyond the captured
//! bytes rejects the packet.

/// Maximum stack depth of an arithmetic expression.
pub(super) const STACK: usize = 32;

/// Number of bytes of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    One = 1,
    Two = 2,
    Four = 4,
}

/// The place that the offset of a load counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The first byte of the frame.
    Frame,
    /// The end of the IPv4 header that begins at this byte of the frame.
    BehindIpv4(u32),
}

/// A number in the packet, in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) base: Base,
    pub(super) offset: u32,
    pub(super) width: Width,
}

/// One step of arithmetic, in postfix order. Results wrap at 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Constant(u32),
    /// Bytes on the wire.
    Length,
    Load(Load),
    /// A load at its offset plus the number on top of the stack, which the result replaces.
    Indexed(Load),
    Negate,
    Binary(Binary),
}

/// An operator of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

impl Binary {
    /// The result, or `None` for a division by zero.
    #[inline]
    pub(super) fn apply(self, left: u32, right: u32) -> Option<u32> {
        Some(match self {
            Self::Add => left.wrapping_add(right),
            Self::Subtract => left.wrapping_sub(right),
            Self::Multiply => left.wrapping_mul(right),
            Self::Divide => left.checked_div(right)?,
            Self::Remainder => left.checked_rem(right)?,
            Self::And => left & right,
            Self::Or => left | right,
            Self::Xor => left ^ right,
            Self::ShiftLeft => left.checked_shl(right).unwrap_or(0),
            Self::ShiftRight => left.checked_shr(right).unwrap_or(0),
        })
    }
}

/// An unsigned comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Equal,
    Greater,
    AtLeast,
}

impl Compare {
    fn holds(self, left: u32, right: u32) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Greater => left > right,
            Self::AtLeast => left >= right,
        }
    }
}

/// The number that a condition tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A number in the packet.
    Load(Load),
    /// Bytes on the wire.
    Length,
    /// 1 if `compare` holds for the results of the steps `start..middle` and `middle..end`, else 0.
    Comparison { start: u32, middle: u32, end: u32, compare: Compare },
}

/// `low <= subject & mask <= high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) subject: Subject,
    pub(super) mask: u32,
    pub(super) low: u32,
    pub(super) high: u32,
}

impl Condition {
    /// `subject & mask <compare> value`.
    pub(super) fn new(subject: Subject, mask: u32, compare: Compare, value: u32) -> Self {
        let (mask, low, high) = match compare {
            Compare::Equal => (mask, value, value),
            Compare::AtLeast => (mask, value, u32::MAX),
            // No number is greater than the largest one: test whether 0 is 1.
            Compare::Greater => match value.checked_add(1) {
                Some(low) => (mask, low, u32::MAX),
                None => (0, 1, 1),
            },
        };
        Self { subject, mask, low, high }
    }
}

/// A condition, and the numbers of following tests to skip if it holds (`yes`) or not (`no`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) condition: Condition,
    pub(super) yes: u32,
    pub(super) no: u32,
}

/// A filter compiled for one link type. A jump to the second place after the last test accepts; a
/// jump to the first place after it, or anywhere else, rejects.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) tests: Vec<Test>,
    pub(super) steps: Vec<Step>,
    /// Tests to skip at the start.
    pub(super) entry: u32,
}

impl Program {
    /// Whether the packet is accepted. Takes time linear in the program, and does not allocate.
    #[inline]
    pub(super) fn accepts(&self, captured: &[u8], wire: u32) -> bool {
        let mut at = self.entry as usize;
        while let Some(test) = self.tests.get(at) {
            let Some(holds) = self.holds(&test.condition, captured, wire) else { return false };
            at = (at + 1).saturating_add(if holds { test.yes } else { test.no } as usize);
        }
        at == self.tests.len() + 1
    }

    #[inline]
    fn holds(&self, condition: &Condition, captured: &[u8], wire: u32) -> Option<bool> {
        let value = match condition.subject {
            Subject::Load(load) => fetch(load, 0, captured)?,
            Subject::Length => wire,
            Subject::Comparison { start, middle, end, compare } => {
                let left = self.compute(start, middle, captured, wire)?;
                let right = self.compute(middle, end, captured, wire)?;
                u32::from(compare.holds(left, right))
            }
        };
        let above = (value & condition.mask).wrapping_sub(condition.low);
        Some(above <= condition.high.wrapping_sub(condition.low))
    }

    /// The result of some steps. `None` if they load beyond the captured bytes, divide by zero, or
    /// are not valid arithmetic.
    fn compute(&self, start: u32, end: u32, captured: &[u8], wire: u32) -> Option<u32> {
        let mut stack = [0u32; STACK];
        let mut depth = 0usize;
        for step in self.steps.get(start as usize..end as usize)? {
            let result = match *step {
                Step::Constant(value) => value,
                Step::Length => wire,
                Step::Load(load) => fetch(load, 0, captured)?,
                Step::Indexed(load) => {
                    depth = depth.checked_sub(1)?;
                    fetch(load, stack[depth], captured)?
                }
                Step::Negate => {
                    depth = depth.checked_sub(1)?;
                    stack[depth].wrapping_neg()
                }
                Step::Binary(operator) => {
                    depth = depth.checked_sub(2)?;
                    operator.apply(stack[depth], stack[depth + 1])?
                }
            };
            *stack.get_mut(depth)? = result;
            depth += 1;
        }
        depth.checked_sub(1).map(|top| stack[top])
    }
}

/// Loads a number; `None` if it lies beyond the captured bytes. As in tcpdump's interpreter, adding
/// the length of an IPv4 header to the index wraps around, but adding the base offset does not.
#[inline]
fn fetch(load: Load, index: u32, captured: &[u8]) -> Option<u32> {
    let (index, place) = match load.base {
        Base::Frame => (index, load.offset),
        Base::BehindIpv4(header) => {
            let length = 4 * u32::from(captured.get(header as usize)? & 0x0f);
            (index.wrapping_add(length), header.checked_add(load.offset)?)
        }
    };
    let rest = captured.get((index as usize).checked_add(place as usize)?..)?;
    let width = load.width as usize;
    let shift = 32 - 8 * width as u32;
    if let Some(&bytes) = rest.first_chunk() {
        return Some(u32::from_be_bytes(bytes) >> shift);
    }
    let mut bytes = [0; 4];
    bytes[..width].copy_from_slice(rest.get(..width)?);
    Some(u32::from_be_bytes(bytes) >> shift)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn load() -> impl Strategy<Value = Load> {
        let number = prop_oneof![0..40u32, any::<u32>()];
        let base = prop_oneof![Just(Base::Frame), number.clone().prop_map(Base::BehindIpv4)];
        let width = prop_oneof![Just(Width::One), Just(Width::Two), Just(Width::Four)];
        (base, number, width).prop_map(|(base, offset, width)| Load { base, offset, width })
    }

    fn step() -> impl Strategy<Value = Step> {
        let binary = prop::sample::select(vec![
            Binary::Add,
            Binary::Subtract,
            Binary::Multiply,
            Binary::Divide,
            Binary::Remainder,
            Binary::And,
            Binary::Or,
            Binary::Xor,
            Binary::ShiftLeft,
            Binary::ShiftRight,
        ]);
        prop_oneof![
            3 => any::<u32>().prop_map(Step::Constant),
            1 => Just(Step::Length),
            2 => load().prop_map(Step::Load),
            1 => load().prop_map(Step::Indexed),
            1 => Just(Step::Negate),
            2 => binary.prop_map(Step::Binary),
        ]
    }

    fn test() -> impl Strategy<Value = Test> {
        let compare =
            prop::sample::select(vec![Compare::Equal, Compare::Greater, Compare::AtLeast]);
        let steps =
            (0..60u32, 0..60u32, 0..60u32, compare).prop_map(|(start, middle, end, compare)| {
                Subject::Comparison { start, middle, end, compare }
            });
        let subject = prop_oneof![load().prop_map(Subject::Load), Just(Subject::Length), steps];
        let skip = prop_oneof![0..8u32, any::<u32>()];
        let condition = (subject, any::<u32>(), 0..300u32, any::<u32>());
        (condition, skip.clone(), skip).prop_map(|((subject, mask, low, high), yes, no)| {
            let condition = Condition { subject, mask, low, high: high.max(low) };
            Test { condition, yes, no }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Any program ends, does not panic, and accepts only at the accepting place.
        #[test]
        fn any_program_ends(
            tests in prop::collection::vec(test(), 0..40),
            steps in prop::collection::vec(step(), 0..60),
            entry in prop_oneof![0..40u32, any::<u32>()],
            captured in prop::collection::vec(any::<u8>(), 0..80),
            wire in any::<u32>(),
        ) {
            let program = Program { tests, steps, entry };
            let accepted = program.accepts(&captured, wire);
            prop_assert!(!accepted || !program.tests.is_empty() || entry == 1);
        }

        /// A load returns its bytes, or `None` if one of them was not captured.
        #[test]
        fn a_load_reads_only_captured_bytes(
            load in load(),
            index in prop_oneof![0..40u32, any::<u32>()],
            captured in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut place = u64::from(load.offset) + u64::from(index);
            let mut readable = true;
            if let Base::BehindIpv4(header) = load.base {
                let length = captured.get(header as usize).map_or(0, |byte| 4 * u32::from(byte & 15));
                readable = (header as usize) < captured.len()
                    && header.checked_add(load.offset).is_some();
                let index = u64::from(index.wrapping_add(length));
                place = u64::from(header) + u64::from(load.offset) + index;
            }
            let width = match load.width {
                Width::One => 1,
                Width::Two => 2,
                Width::Four => 4,
            };
            readable &= place + width <= captured.len() as u64;
            let expected = readable.then(|| {
                let bytes = &captured[place as usize..(place + width) as usize];
                bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte))
            });
            prop_assert_eq!(fetch(load, index, &captured), expected);
        }
    }
}
