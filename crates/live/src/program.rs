//! The classic BPF programs with which a socket rejects packets in the kernel.

use flowgauge_core::packet::LinkType;
use flowgauge_filter::{Filter, Instruction};

/// Maximum length of a program in Linux.
const LONGEST: usize = 4096;

/// Load a word (`BPF_LD | BPF_W | BPF_ABS`), compare (`BPF_JMP | BPF_JEQ`), return.
const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Offsets of packet metadata (`SKF_AD_OFF` plus an offset).
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
const HARDWARE_TYPE: u32 = 0xffff_f000 + 28;
const VLAN_PRESENT: u32 = 0xffff_f000 + 48;

const fn load(k: u32) -> Instruction {
    Instruction { code: LOAD, jt: 0, jf: 0, k }
}

const fn skip_unless(k: u32, jf: u8) -> Instruction {
    Instruction { code: EQUAL, jt: 0, jf, k }
}

const ACCEPT: Instruction = Instruction { code: RETURN, jt: 0, jf: 0, k: u32::MAX };
const REJECT: Instruction = Instruction { code: RETURN, jt: 0, jf: 0, k: 0 };

/// Rejects every packet.
pub(crate) const NOTHING: &[Instruction] = &[REJECT];

/// Rejects packets that a loopback interface sends, because it receives them, too.
const ONCE: &[Instruction] = &[
    load(HARDWARE_TYPE),
    skip_unless(libc::ARPHRD_LOOPBACK as u32, 3),
    load(PACKET_TYPE),
    skip_unless(libc::PACKET_OUTGOING as u32, 1),
    REJECT,
];

/// The program of a socket, if it needs one: [`ONCE`] and a rejecting program.
pub(crate) fn of(once: bool, rejecting: Option<&[Instruction]>) -> Option<Vec<Instruction>> {
    let once = if once { ONCE } else { &[] };
    let program = [once, rejecting.unwrap_or(&[ACCEPT])].concat();
    (program != [ACCEPT]).then_some(program)
}

/// A program that rejects packets that `filter` rejects, but none that it accepts. `None` if
/// classic BPF cannot express it.
pub(crate) fn rejecting(filter: &Filter, link: LinkType) -> Option<Vec<Instruction>> {
    let program = filter.clone().classic(link).ok()??;
    // Accepts packets with a VLAN tag that the kernel stores apart, because the program would look
    // for the tag in the packet's bytes.
    let tagged = [load(VLAN_PRESENT), skip_unless(1, 1), ACCEPT];
    let program = [&tagged[..], &program].concat();
    (ONCE.len() + program.len() <= LONGEST).then_some(program)
}
