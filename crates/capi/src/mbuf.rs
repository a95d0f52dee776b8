//! Packets in structures of the program.

use std::ffi::c_void;

use arrayvec::ArrayVec;
use flowgauge_core::packet::{Column, Frames, LinkType};
use flowgauge_engine::{Arrivals, Meter};

use crate::{BURST, fg_mbuf_layout};

/// Measures up to [`BURST`] packets: all of them, or those that the sampler wants.
///
/// # Safety
/// Each item points to a structure of this layout, whose captured bytes are readable.
pub(crate) unsafe fn push(
    meter: &mut dyn Meter,
    link: LinkType,
    mbufs: &[*const c_void],
    layout: &fg_mbuf_layout,
    samples: bool,
    now_ns: i64,
) {
    let (mut frames, mut wires) = (ArrayVec::<&[u8], BURST>::new(), ArrayVec::<u32, BURST>::new());
    if samples {
        let bytes = mbufs.iter().map(|mbuf| {
            // SAFETY: this function's contract.
            u64::from(unsafe { layout.wire(*mbuf) })
        });
        let (packets, bytes) = (mbufs.len() as u32, bytes.sum());
        let mut wanted = meter.want(&Arrivals { packets, bytes, time_ns: now_ns });
        while wanted != 0 {
            let mbuf = mbufs[wanted.trailing_zeros() as usize];
            wanted &= wanted - 1;
            // SAFETY: this function's contract.
            let (frame, wire) = unsafe { layout.read(mbuf) };
            frames.push(frame);
            wires.push(wire);
        }
    } else {
        // Room for eight frames is checked at once.
        let (eights, rest) = mbufs.as_chunks::<8>();
        for eight in eights {
            // SAFETY: this function's contract.
            let read = eight.map(|mbuf| unsafe { layout.read(mbuf) });
            frames.try_extend_from_slice(&read.map(|(frame, _)| frame)).expect("a burst fits");
            wires.try_extend_from_slice(&read.map(|(_, wire)| wire)).expect("a burst fits");
        }
        for mbuf in rest {
            // SAFETY: this function's contract.
            let (frame, wire) = unsafe { layout.read(*mbuf) };
            frames.push(frame);
            wires.push(wire);
        }
    }
    if !frames.is_empty() {
        meter.push(Frames::new(&frames, &wires, Column::Same(link), Column::Same(now_ns)));
    }
}

impl fg_mbuf_layout {
    /// The captured bytes and the length on the wire of a packet.
    ///
    /// # Safety
    /// It points to a structure of this layout, whose captured bytes are readable for `'a`.
    #[inline(always)]
    unsafe fn read<'a>(&self, mbuf: *const c_void) -> (&'a [u8], u32) {
        let number = |offset: u16| {
            // SAFETY: the layout says so.
            unsafe { mbuf.byte_add(offset.into()).cast::<u16>().read_unaligned() }
        };
        // SAFETY: as above.
        let (buffer, wire) = unsafe {
            (
                mbuf.byte_add(self.buffer.into()).cast::<*const u8>().read_unaligned(),
                self.wire(mbuf),
            )
        };
        let whole = self.captured == self.wire;
        let captured = if whole { wire } else { number(self.captured).into() };
        // SAFETY: as above.
        let bytes = unsafe {
            std::slice::from_raw_parts(buffer.add(number(self.start).into()), captured as usize)
        };
        (bytes, wire)
    }

    /// The length of a packet on the wire.
    ///
    /// # Safety
    /// It points to a structure of this layout.
    #[inline(always)]
    unsafe fn wire(&self, mbuf: *const c_void) -> u32 {
        // SAFETY: as this function's contract says.
        unsafe { mbuf.byte_add(self.wire.into()).cast::<u32>().read_unaligned() }
    }
}
