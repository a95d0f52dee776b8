//! Inputs that give their bytes piecemeal.

use std::{
    io::{self, Read, Write},
    thread,
};

use flowgauge_capture::{CaptureError, Captures, Damage};
use flowgauge_engine::source::Source;

use crate::{
    compression::{gzip, zstd},
    support::{InChunks, enhanced, interface, other, pcap, pcapng, read, section, sound},
};

/// Gives at most so many bytes at a time, and is interrupted in between.
struct Piecemeal {
    bytes: io::Cursor<Vec<u8>>,
    most: usize,
    interrupted: bool,
}

impl Read for Piecemeal {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupted = !self.interrupted;
        if self.interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let most = self.most.min(buffer.len());
        self.bytes.read(&mut buffer[..most])
    }
}

fn piecemeal(bytes: &[u8], most: usize) -> Captures {
    let bytes = io::Cursor::new(bytes.to_vec());
    Captures::from_reader("x", Piecemeal { bytes, most, interrupted: false })
}

#[test]
fn pieces_of_any_size_read_as_the_whole_does() {
    for (name, file) in sound() {
        let cut = file[..file.len() - 3].to_vec();
        for bytes in [&file, &cut, &gzip(&file), &zstd(&file), &gzip(&cut)] {
            let (packets, errors, irregular) = read(&mut Captures::from_bytes("x", bytes.clone()));
            let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
            for most in 1..=64 {
                let (others, errors, irregulars) = read(&mut piecemeal(bytes, most));
                assert_eq!(others, packets, "{name} by {most}");
                assert_eq!(irregulars, irregular, "{name} by {most}");
                let others: Vec<_> = errors.iter().map(ToString::to_string).collect();
                assert_eq!(others, texts, "{name} by {most}");
                let (others, ..) = read(&mut InChunks::from(piecemeal(bytes, most)));
                assert_eq!(others, packets, "{name} in chunks by {most}");
            }
        }
    }
}

#[test]
fn records_that_straddle_the_buffer_are_whole() {
    let lengths: Vec<usize> = (0..3000).map(|i| i * 37 % 1500).collect();
    let file = pcap(true, 0xa1b2_3c4d, (2, 4), &lengths);
    assert!(file.len() > 4 * (256 << 10), "several buffers");
    let expected = crate::naive::walk(&file).packets;
    let (packets, errors, _) = read(&mut Captures::from_bytes("x", file.clone()));
    assert!(errors.is_empty());
    assert_eq!(packets, expected);
    let (packets, errors, _) = read(&mut InChunks::from(piecemeal(&file, 4099)));
    assert!(errors.is_empty());
    assert_eq!(packets, expected);
}

#[test]
fn blocks_larger_than_the_buffer_are_passed_over_or_held() {
    // Its second section is little-endian.
    let mut file = pcapng(true);
    file.extend(other(false, 0x0bad, 3 << 20));
    let large = vec![5; 262_144];
    file.extend(enhanced(false, 0, 9, &large, 262_144));
    // A comment of 16 KiB, over and over, behind the packet.
    let mut options = interface(false, 1, 0, &[(1, &[b'c'; 16_384][..]); 40]);
    let whole = options.len();
    file.append(&mut options);
    assert!(whole > 2 * (256 << 10));
    file.extend(enhanced(false, 2, 9, b"x", 1));
    let (expected, sound) = (crate::naive::walk(&file), file.len());
    let (packets, errors, irregular) = read(&mut Captures::from_bytes("x", file.clone()));
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(packets, expected.packets);
    assert_eq!(irregular, expected.irregular);
    let (packets, ..) = read(&mut piecemeal(&file, 4099));
    assert_eq!(packets, expected.packets);
    let (packets, errors, irregular) = read(&mut InChunks::from(piecemeal(&file, 4099)));
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!((packets, irregular), (expected.packets.clone(), expected.irregular));

    // Cut inside a block that is being passed over, of which the begin is gone from the buffer.
    file.extend(other(false, 0x0bad, 3 << 20));
    file.truncate(sound + (2 << 20));
    let begin =
        format!("x: byte {sound}: block cut short: the file ends after 2097152 of 3145740 ");
    let whole = || Captures::from_bytes("x", file.clone());
    for (packets, errors, _) in [read(&mut whole()), read(&mut InChunks::from(whole()))] {
        assert_eq!(packets.len(), expected.packets.len());
        assert!(errors[0].to_string().starts_with(&begin), "{}", errors[0]);
    }
}

#[test]
fn a_pipe_is_read_as_it_is_written() {
    let (reader, mut writer) = io::pipe().unwrap();
    let file = pcapng(true);
    let expected = crate::naive::walk(&file).packets;
    let writing = thread::spawn(move || {
        for piece in gzip(&file).chunks(100) {
            writer.write_all(piece).unwrap();
        }
    });
    let mut captures = Captures::from_reader("pipe", reader);
    assert_eq!(captures.progress().total, None);
    let (packets, errors, _) = read(&mut captures);
    writing.join().unwrap();
    assert!(errors.is_empty());
    assert_eq!(packets, expected);
}

/// Sound bytes, then an error.
struct Failing(io::Cursor<Vec<u8>>);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("the disk is gone")),
            read => Ok(read),
        }
    }
}

#[test]
fn an_input_that_fails_keeps_what_it_gave() {
    let file = pcap(false, 0xa1b2_c3d4, (2, 4), &[60, 60]);
    let failing = Failing(io::Cursor::new(file[..130].to_vec()));
    let (packets, errors, _) = read(&mut Captures::from_reader("x", failing));
    assert_eq!(packets.len(), 1);
    assert!(
        matches!(&errors[..], [CaptureError::Damaged { offset: 100, damage: Damage::Read(_), .. }]),
        "{errors:?}"
    );
    // Before the first byte of a header it is no capture at all.
    let failing = Failing(io::Cursor::new(section(false)[..3].to_vec()));
    let (_, errors, _) = read(&mut Captures::from_reader("x", failing));
    assert!(matches!(&errors[..], [CaptureError::Unreadable { .. }]), "{errors:?}");
}
