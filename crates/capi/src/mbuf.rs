//! Packets that the program describes in structures of its own.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use flowgauge_core::packet::{Captured, Column, Frame, Frames, LinkType};
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
    layout: fg_mbuf_layout,
    samples: bool,
    now_ns: i64,
) {
    if samples {
        let wire = |mbuf: &*const c_void| {
            // SAFETY: this function's contract.
            u64::from(unsafe { layout.wire(*mbuf) })
        };
        let (packets, bytes) = (mbufs.len() as u32, mbufs.iter().map(wire).sum());
        let mut frame = |place: usize| {
            let mbuf = mbufs[place];
            // SAFETY: this function's contract.
            let (bytes, wire) = unsafe { (layout.frame(mbuf), layout.wire(mbuf)) };
            Frame { bytes, wire, link, time_ns: now_ns }
        };
        return meter.push_wanted(&Arrivals { packets, bytes, time_ns: now_ns }, &mut frame);
    }
    let mut read = Read { frames: [MaybeUninit::uninit(); _], wires: [MaybeUninit::uninit(); _] };
    // SAFETY: this function's contract.
    let (frames, wires) = unsafe { read.all(mbufs, layout) };
    meter.push(Frames::new(frames, wires, Column::Same(link), Column::Same(now_ns)));
}

/// The packets of a burst in columns.
struct Read<'a> {
    frames: [MaybeUninit<Captured<'a>>; BURST],
    wires: [MaybeUninit<u32>; BURST],
}

impl<'a> Read<'a> {
    /// Reads up to [`BURST`] packets.
    ///
    /// # Safety
    /// Each item points to a structure of this layout, whose captured bytes are readable for `'a`.
    // Inlined, it would have too few registers for all places.
    #[inline(never)]
    unsafe fn all(
        &mut self,
        mbufs: &[*const c_void],
        layout: fg_mbuf_layout,
    ) -> (&[Captured<'a>], &[u32]) {
        let count = mbufs.len();
        let (frames, wires) = (&mut self.frames[..count], &mut self.wires[..count]);
        for ((mbuf, frame), wire) in mbufs.iter().zip(&mut *frames).zip(&mut *wires) {
            // SAFETY: this function's contract.
            unsafe {
                frame.write(layout.frame(*mbuf).into());
                wire.write(layout.wire(*mbuf));
            }
        }
        // SAFETY: the loop has written so many of both.
        unsafe {
            (
                std::slice::from_raw_parts(frames.as_ptr().cast(), count),
                std::slice::from_raw_parts(wires.as_ptr().cast(), count),
            )
        }
    }
}

impl fg_mbuf_layout {
    /// The captured bytes of a packet.
    ///
    /// # Safety
    /// It points to a structure of this layout, whose captured bytes are readable for `'a`.
    #[inline(always)]
    unsafe fn frame<'a>(self, mbuf: *const c_void) -> &'a [u8] {
        let number = |offset: u16| {
            // SAFETY: the layout says so.
            unsafe { mbuf.byte_add(offset.into()).cast::<u16>().read_unaligned() }
        };
        let is_whole = self.captured == self.wire;
        // SAFETY: as above.
        unsafe {
            let buffer = mbuf.byte_add(self.buffer.into()).cast::<*const u8>().read_unaligned();
            let captured = if is_whole { self.wire(mbuf) } else { number(self.captured).into() };
            std::slice::from_raw_parts(buffer.add(number(self.start).into()), captured as usize)
        }
    }

    /// The length of a packet on the wire.
    ///
    /// # Safety
    /// It points to a structure of this layout.
    #[inline(always)]
    unsafe fn wire(self, mbuf: *const c_void) -> u32 {
        // SAFETY: as this function's contract says.
        unsafe { mbuf.byte_add(self.wire.into()).cast::<u32>().read_unaligned() }
    }
}
