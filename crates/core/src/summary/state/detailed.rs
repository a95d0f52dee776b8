//! A counter that also records when and how its flow was seen.

use bytemuck::Zeroable;

use super::{Count, State};
use crate::key::Detail;
use crate::summary::Seen;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::terms::Size;

/// A counter, a counter of the packets that came back, the times of the first and the last packet,
/// and the union of TCP flags: 48 bytes.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
pub(crate) struct Detailed {
    count: Count,
    back: Count,
    first_ns: i64,
    last_ns: i64,
    tcp_flags: u32,
    padding: u32,
}

impl Detailed {
    /// Extends the time range by these times.
    #[inline(always)]
    fn extend(&mut self, first_ns: i64, last_ns: i64) {
        if self.is_silent() {
            (self.first_ns, self.last_ns) = (first_ns, last_ns);
        } else {
            self.first_ns = self.first_ns.min(first_ns);
            self.last_ns = self.last_ns.max(last_ns);
        }
    }
}

impl State for Detailed {
    const NAME: &'static str = "detail";
    const DETAILS: bool = true;
    const STORED_BYTES: usize = 2 * Count::STORED_BYTES + 2 * size_of::<i64>() + size_of::<u8>();

    #[inline(always)]
    fn see(&mut self, time_ns: i64) {
        self.extend(time_ns, time_ns);
    }

    #[inline(always)]
    fn add(&mut self, packets: u32, bytes: u64, element: u64) -> Size {
        let detail = Detail::from(element);
        self.tcp_flags |= u32::from(detail.tcp_flags);
        if detail.back {
            // The excess needs no note: where this counter is full, the total is, too.
            self.back.add(packets, bytes, element);
        }
        self.count.add(packets, bytes, element)
    }

    fn merge(&mut self, other: &Self) -> Size {
        if !other.is_silent() {
            self.extend(other.first_ns, other.last_ns);
        }
        self.tcp_flags |= other.tcp_flags;
        self.back.merge(&other.back);
        self.count.merge(&other.count)
    }

    #[inline(always)]
    fn size(&self) -> Size {
        self.count.size()
    }

    fn save(&self, out: &mut Writer) {
        self.count.save(out);
        self.back.save(out);
        out.number(self.first_ns);
        out.number(self.last_ns);
        out.number(self.tcp_flags as u8);
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (count, back) = (Count::load(from)?, Count::load_any(from)?);
        if back.packets() > count.packets() || back.size().bytes > count.size().bytes {
            return Err(from.invalid("packets back", Count::STORED_BYTES, "they exceed the total"));
        }
        let (first_ns, last_ns) = (from.number("first seen")?, from.number("last seen")?);
        if first_ns > last_ns {
            return Err(from.invalid("last seen", size_of::<i64>(), "it is before the first"));
        }
        let tcp_flags = from.number::<u8>("TCP flags")?.into();
        Ok(Self { count, back, first_ns, last_ns, tcp_flags, padding: 0 })
    }

    fn seen(&self) -> Option<Seen> {
        let &Self { first_ns, last_ns, tcp_flags, .. } = self;
        let seen = Seen { first_ns, last_ns, tcp_flags: tcp_flags as u8, back: self.back.size() };
        (!self.is_silent()).then_some(seen)
    }
}
