//! Headers of common frames: every instruction set equals the scalar twin.

use flowgauge_kernel::{Captured, Cut, Isa, ReadHeaders, ScalarHeaders, Tuple, WithHeaders};

/// The five-tuples read from a frame.
type Found = (Option<Tuple<8>>, Option<Tuple<32>>);

/// Reads each frame.
struct Each<'a>(&'a [Box<[u8]>]);

impl WithHeaders for Each<'_> {
    type Output = Vec<Found>;

    #[inline(always)]
    fn run<H: ReadHeaders>(self, headers: H) -> Vec<Found> {
        self.0.iter().map(|frame| (headers.v4(frame), headers.v6(frame))).collect()
    }
}

/// Frames with TCP and UDP. All bytes that do not decide are different.
fn common_frames() -> Vec<Vec<u8>> {
    let free = |frame: &mut Vec<u8>, bytes: u8| frame.extend((0..bytes).map(|i| 0xa0 + i));
    let frame = |protocol: u8, v6: bool| {
        let mut frame = vec![2; 12];
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 1, 2, 3, 0, 12, protocol, 64]);
            free(&mut frame, 32 + 12);
        } else {
            frame.extend([8, 0, 0x45, 0, 0, 32, 0, 9, 0x40, 0, 64, protocol, 1, 2]);
            free(&mut frame, 8 + 12);
        }
        frame
    };
    vec![frame(6, false), frame(17, false), frame(6, true), frame(17, true)]
}

/// All frames that differ from `frame` in one byte, in a length field, or in their length.
fn neighbours(frame: &[u8]) -> Vec<Box<[u8]>> {
    let changed = (0..frame.len()).flat_map(|at| {
        (0..=u8::MAX).map(move |byte| {
            let mut frame: Box<[u8]> = frame.into();
            frame[at] = byte;
            frame
        })
    });
    let cut = (0..=frame.len()).map(|length| frame[..length].into());
    // Both bytes of a length matter together.
    let lengths = [16, 18].into_iter().flat_map(|at| {
        (0..300).chain([0x7fff, 0x8000, u16::MAX]).map(move |length| {
            let mut frame: Box<[u8]> = frame.into();
            frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
            frame
        })
    });
    changed.chain(cut).chain(lengths).collect()
}

#[test]
fn every_instruction_set_reads_as_the_scalar_twin() {
    for frame in common_frames() {
        let frames = neighbours(&frame);
        let expected = Each(&frames).run(ScalarHeaders);
        let common = expected.iter().filter(|(v4, v6)| v4.is_some() || v6.is_some()).count();
        assert!(common > 5_000 && common < frames.len() - 500, "{common} of {}", frames.len());
        for isa in Isa::available() {
            for ((frame, found), expected) in
                frames.iter().zip(isa.with_headers(Each(&frames))).zip(&expected)
            {
                assert_eq!(found, *expected, "{isa} {frame:02x?}");
            }
        }
    }
}

#[test]
fn a_tuple_is_the_canonical_five_tuple() {
    let frames: Vec<_> = common_frames().into_iter().map(Vec::into_boxed_slice).collect();
    let ports = |at: usize| [0xa0, 0xa1, 0xa2, 0xa3].map(|byte| byte + at as u8);
    for isa in Isa::available() {
        let found = isa.with_headers(Each(&frames));
        for ((v4, v6), protocol) in found.iter().zip([6, 17, 6, 17]) {
            assert!(v4.is_none() != v6.is_none());
            if let Some(v4) = v4 {
                let addresses = std::array::from_fn(|i| 0xa0 + i as u8);
                assert_eq!(*v4, Tuple::new(addresses, ports(8), protocol));
                assert_eq!((v4.ports(), v4.protocol()), (ports(8), protocol));
            }
            if let Some(v6) = v6 {
                let addresses = std::array::from_fn(|i| 0xa0 + i as u8);
                assert_eq!(*v6, Tuple::new(addresses, ports(32), protocol));
            }
        }
    }
}

/// The keys of the leading frames, at most `most`.
fn keys<K: bytemuck::Pod>(cut: &Cut, isa: Isa, frames: &[&[u8]], most: usize) -> Vec<K> {
    let mut keys = vec![K::zeroed(); most];
    let frames: Vec<_> = frames.iter().copied().map(Captured::from).collect();
    let read = cut.keys(isa, &frames, &mut keys);
    keys.truncate(read);
    keys
}

#[test]
fn keys_are_cut_of_all_leading_common_frames() {
    let frames: Vec<Vec<u8>> = (0..11_u8)
        .map(|number| {
            let mut frame = common_frames().swap_remove(usize::from(number % 2));
            frame[29] = number;
            frame
        })
        .collect();
    for uncommon in 0..=frames.len() {
        let mut frames = frames.clone();
        if let Some(frame) = frames.get_mut(uncommon) {
            frame.truncate(37);
        }
        let frames: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
        for most in 0..=frames.len() {
            let expected: Vec<_> = frames[..uncommon.min(most)]
                .iter()
                .filter_map(|frame| ScalarHeaders.v4(frame))
                .collect();
            assert_eq!(expected.len(), uncommon.min(most));
            for isa in Isa::available() {
                let tuples: Vec<Tuple<8>> = keys(&Cut::whole(), isa, &frames, most);
                assert_eq!(tuples, expected, "{isa}");
            }
        }
    }
}

#[test]
fn a_cut_is_a_part_of_the_tuple_under_a_mask() {
    let frame = &common_frames()[0][..];
    let mut tuple = bytemuck::bytes_of(&ScalarHeaders.v4(frame).expect("it is common")).to_vec();
    tuple.resize(32, 0);
    let mask = std::array::from_fn(|at| 0xff_u8 << (at % 8));
    for first in 0..13 {
        let masked = tuple[first..].iter().zip(mask).map(|(byte, bits)| byte & bits);
        let expected: Vec<u8> = masked.collect();
        assert_eq!(expected.len(), 16);
        for isa in Isa::available() {
            let cut = Cut::new(first as u8, mask);
            let short: Vec<u64> = keys(&cut, isa, &[frame; 9], 9);
            let long: Vec<u128> = keys(&cut, isa, &[frame; 9], 9);
            assert_eq!(bytemuck::cast_slice::<_, u8>(&short), expected[..8].repeat(9), "{isa}");
            assert_eq!(bytemuck::cast_slice::<_, u8>(&long), expected.repeat(9), "{isa}");
        }
    }
}

/// Every frame that differs from a common one is judged the same alone and within a group.
#[test]
fn every_instruction_set_cuts_as_the_scalar_twin() {
    for frame in common_frames() {
        for other in neighbours(&frame) {
            let group = [&frame[..], &frame, &other, &frame, &frame];
            let expected: Vec<Tuple<8>> = keys(&Cut::whole(), Isa::scalar(), &group, 5);
            for isa in Isa::available() {
                let found: Vec<Tuple<8>> = keys(&Cut::whole(), isa, &group, 5);
                assert_eq!(found, expected, "{isa} {other:02x?}");
            }
        }
    }
}
