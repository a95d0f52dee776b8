//! Translation to classic BPF (Berkeley packet filter), which kernels run.

use super::machine::{Base, Binary, Compare, Condition, Load, Program, Step, Subject, Test, Width};

/// An instruction of classic BPF, as Linux's `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Number of instructions to skip if a comparison holds.
    pub jt: u8,
    /// Number of instructions to skip if it does not hold.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

// Classes, sizes, modes and operations.
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const TAX: u16 = 0x07;
const H: u16 = 0x08;
const B: u16 = 0x10;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const MSH: u16 = 0xa0;
const X: u16 = 0x08;
const AND: u16 = 0x50;
const ADD: u16 = 0x00;
const NEG: u16 = 0x80;
const JA: u16 = 0x00;
const JEQ: u16 = 0x10;
const JGT: u16 = 0x20;
const JGE: u16 = 0x30;

/// Number of words of scratch memory.
const SCRATCH: u32 = 16;

/// Offsets from here on have a special meaning to the kernel.
const OFFSETS: u32 = 1 << 31;

/// A program from its last instruction to its first, so that the target of every jump is known.
/// Places are counted from the end.
struct Reversed(Vec<Instruction>);

/// Translates a program. `None` if classic BPF cannot express it: shifts by a number from the
/// packet, which classic BPF does not define from 32 on, and arithmetic that is nested too deeply.
pub(super) fn translate(program: &Program) -> Option<Vec<Instruction>> {
    let mut out = Reversed(Vec::new());
    let reject = out.push(RET, 0);
    let accept = out.push(RET, u32::MAX);
    let tests = program.tests.len();
    let mut places = vec![reject; tests + 2];
    places[tests + 1] = accept;
    let place = |places: &[usize], at: usize| places.get(at).copied().unwrap_or(reject);
    for (at, test) in program.tests.iter().enumerate().rev() {
        let target = |skip: u32| place(&places, (at + 1).saturating_add(skip as usize));
        let (yes, no) = (target(test.yes), target(test.no));
        places[at] = out.test(program, test, yes, no)?;
    }
    out.go_to(place(&places, program.entry as usize));
    out.0.reverse();
    Some(out.0)
}

impl Reversed {
    fn push(&mut self, code: u16, k: u32) -> usize {
        self.0.push(Instruction { code, jt: 0, jf: 0, k });
        self.0.len()
    }

    /// Makes the instruction pushed next, which runs before this one, continue at `target`.
    fn go_to(&mut self, target: usize) {
        let skip = self.0.len() - target;
        if skip > 0 {
            self.push(JMP | JA, skip as u32);
        }
    }

    /// Pushes a comparison with `k` or X, with the places to continue at.
    fn branch(&mut self, code: u16, k: u32, yes: usize, no: usize) {
        let far = |from: usize, target: usize| from - target > usize::from(u8::MAX);
        // The second jump below may add one more instruction in between.
        let (mut yes, mut no) = (yes, no);
        if far(self.0.len() + 1, yes) {
            let skip = self.0.len() - yes;
            yes = self.push(JMP | JA, skip as u32);
        }
        if far(self.0.len(), no) {
            let skip = self.0.len() - no;
            no = self.push(JMP | JA, skip as u32);
        }
        let (jt, jf) = ((self.0.len() - yes) as u8, (self.0.len() - no) as u8);
        self.0.push(Instruction { code: JMP | code, jt, jf, k });
    }

    /// Pushes a test. Returns the place where it begins.
    fn test(&mut self, program: &Program, test: &Test, yes: usize, no: usize) -> Option<usize> {
        let Condition { subject, mask, low, high } = test.condition;
        match subject {
            Subject::Load(_) | Subject::Length => {
                // Both bounds, the lower one first.
                if low == high {
                    self.branch(JEQ, low, yes, no);
                } else {
                    self.branch(JGT, high, no, yes);
                    let within = self.0.len();
                    self.branch(JGE, low, within, no);
                }
                self.push(ALU | AND, mask);
                match subject {
                    Subject::Load(load) => self.load(load)?,
                    _ => {
                        self.push(LD | LEN, 0);
                    }
                }
            }
            Subject::Comparison { start, middle, end, compare } => {
                let outcome = |holds: u32| {
                    let within = (low..=high).contains(&(holds & mask));
                    if within { yes } else { no }
                };
                let code = match compare {
                    Compare::Equal => JEQ,
                    Compare::Greater => JGT,
                    Compare::AtLeast => JGE,
                };
                self.branch(code | X, 0, outcome(1), outcome(0));
                self.push(LD | MEM, 0);
                self.push(LDX | MEM, 1);
                let mut forward = Vec::new();
                for (steps, result) in [(start..middle, 0), (middle..end, 1)] {
                    let steps = program.steps.get(steps.start as usize..steps.end as usize)?;
                    compute(steps, result, &mut forward)?;
                }
                self.0.extend(forward.iter().rev());
            }
        }
        Some(self.0.len())
    }

    fn load(&mut self, load: Load) -> Option<()> {
        let mut forward = Vec::new();
        fetch(load, &mut forward)?;
        self.0.extend(forward.iter().rev());
        Some(())
    }
}

fn instruction(code: u16, k: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k }
}

fn size(width: Width) -> u16 {
    match width {
        Width::One => B,
        Width::Two => H,
        Width::Four => 0,
    }
}

/// Loads into A.
fn fetch(Load { base, offset, width }: Load, out: &mut Vec<Instruction>) -> Option<()> {
    match base {
        Base::Frame => out.push(instruction(LD | ABS | size(width), plain(offset)?)),
        Base::BehindIpv4(header) => {
            out.push(instruction(LDX | MSH | B, plain(header)?));
            let place = plain(header.checked_add(offset)?)?;
            out.push(instruction(LD | IND | size(width), place));
        }
    }
    Some(())
}

fn plain(offset: u32) -> Option<u32> {
    (offset < OFFSETS).then_some(offset)
}

/// Computes `steps`, using scratch memory from `result` on as a stack, and stores the outcome at
/// `result`.
fn compute(steps: &[Step], result: u32, out: &mut Vec<Instruction>) -> Option<()> {
    let mut top = result;
    for (at, step) in steps.iter().enumerate() {
        match *step {
            Step::Constant(value) => out.push(instruction(LD | IMM, value)),
            Step::Length => out.push(instruction(LD | LEN, 0)),
            Step::Load(load) => fetch(load, out)?,
            Step::Indexed(Load { base, offset, width }) => {
                top = top.checked_sub(1)?;
                let place = match base {
                    Base::Frame => {
                        out.push(instruction(LDX | MEM, top));
                        offset
                    }
                    Base::BehindIpv4(header) => {
                        out.push(instruction(LDX | MSH | B, plain(header)?));
                        out.push(instruction(LD | MEM, top));
                        out.push(instruction(ALU | ADD | X, 0));
                        out.push(instruction(TAX, 0));
                        header.checked_add(offset)?
                    }
                };
                out.push(instruction(LD | IND | size(width), plain(place)?));
            }
            Step::Negate => {
                top = top.checked_sub(1)?;
                out.push(instruction(LD | MEM, top));
                out.push(instruction(ALU | NEG, 0));
            }
            Step::Binary(operator) => {
                top = top.checked_sub(2)?;
                out.push(instruction(LDX | MEM, top + 1));
                out.push(instruction(LD | MEM, top));
                out.push(instruction(
                    ALU | X | operation(operator, at.checked_sub(1).and_then(|at| steps.get(at)))?,
                    0,
                ));
            }
        }
        if top >= SCRATCH {
            return None;
        }
        out.push(instruction(ST, top));
        top += 1;
    }
    (top == result + 1).then_some(())
}

/// The code of an operator. `right` is the step that computes its right operand.
fn operation(operator: Binary, right: Option<&Step>) -> Option<u16> {
    let constant = matches!(right, Some(Step::Constant(_)));
    Some(match operator {
        Binary::Add => ADD,
        Binary::Subtract => 0x10,
        Binary::Multiply => 0x20,
        Binary::Divide => 0x30,
        Binary::Or => 0x40,
        Binary::And => AND,
        Binary::Remainder => 0x90,
        Binary::Xor => 0xa0,
        Binary::ShiftLeft if constant => 0x60,
        Binary::ShiftRight if constant => 0x70,
        Binary::ShiftLeft | Binary::ShiftRight => return None,
    })
}
