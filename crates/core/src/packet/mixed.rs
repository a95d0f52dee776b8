//! Common frames of both versions of IP in turn, one by one.

use flowgauge_kernel::{ReadHeaders, ScalarHeaders, Tuple};

use super::common::is_plain;
use super::{Frame, Frames, ethernet};

/// Takes common packets by their five-tuples.
pub(crate) trait TakeTuples {
    fn v4_tuple(&mut self, tuple: &Tuple<8>, wire: u32, time_ns: i64);
    fn v6_tuple(&mut self, tuple: &Tuple<32>, wire: u32, time_ns: i64);
}

/// Frames of one version in a row after which a loop over more of them pays.
const ALIKE: usize = 8;

/// Passes leading common frames of Ethernet of both versions to `to`, one by one, until [`ALIKE`] in
/// a row are of one version. Returns their number. Where versions alternate, calls for each stretch
/// of either take several times as long.
#[inline(always)]
pub(crate) fn take_mixed(frames: Frames<'_>, inner: bool, to: &mut impl TakeTuples) -> usize {
    let (mut taken, mut alike, mut last_is_v4) = (0, 0, false);
    while taken < frames.len() && alike < ALIKE {
        let Frame { bytes, wire, time_ns, .. } = frames.at(taken);
        let bytes = ethernet::behind_tag(bytes).unwrap_or(bytes);
        let is_v4 = if let Some(tuple) = ScalarHeaders.v4(bytes).filter(|it| is_plain(it, inner)) {
            to.v4_tuple(&tuple, wire, time_ns);
            true
        } else if let Some(tuple) = ScalarHeaders.v6(bytes).filter(|it| is_plain(it, inner)) {
            to.v6_tuple(&tuple, wire, time_ns);
            false
        } else {
            break;
        };
        alike = if is_v4 == last_is_v4 { alike + 1 } else { 1 };
        last_is_v4 = is_v4;
        taken += 1;
    }
    taken
}
