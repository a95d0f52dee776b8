//! Several files as one stream.

use std::{fs, path::PathBuf};

use flowgauge_capture::{CaptureError, Captures, Refusal};
use flowgauge_engine::source::Source;

use crate::{
    compression::{gzip, zstd},
    support::{pcap, pcapng, read},
};

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn each_is_read_as_far_as_it_goes() {
    let folder = folder("each");
    let plain = pcap(false, 0xa1b2_c3d4, (2, 4), &[60, 61, 62]);
    let files = [
        ("a.pcap", plain.clone()),
        ("cut.pcap", plain[..plain.len() - 1].to_vec()),
        ("empty.pcap", Vec::new()),
        ("b.gz", gzip(&pcapng(true))),
        ("text", b"no capture".to_vec()),
        ("c.zst", zstd(&plain)),
    ];
    let mut paths = Vec::new();
    for (name, bytes) in &files {
        paths.push(folder.join(name));
        fs::write(paths.last().unwrap(), bytes).unwrap();
    }
    paths.push(folder.join("absent"));
    paths.push(folder.clone());
    paths.push(folder.join("a.pcap"));

    let mut captures = Captures::open(&paths);
    let total: usize = files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() + plain.len();
    assert_eq!(captures.progress().total, Some(total as u64));
    assert_eq!(captures.progress().read, 0);
    let (packets, errors, irregular) = read(&mut captures);
    assert_eq!(captures.progress().read, total as u64);
    assert_eq!(
        captures.inputs(),
        paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
    );
    let alone = paths.iter().map(|path| read(&mut Captures::open([path])));
    let (alone, each): (Vec<_>, Vec<_>) =
        alone.map(|(packets, ..)| (packets.len(), packets)).unzip();
    assert_eq!(alone, [3, 2, 0, 10, 0, 3, 0, 0, 3]);
    assert_eq!(packets, each.concat());
    assert_eq!(irregular, 2);

    assert!(matches!(&errors[0], CaptureError::Damaged { .. }), "{errors:?}");
    let refusals: Vec<&Refusal> = errors[1..]
        .iter()
        .map(|error| match error {
            CaptureError::Unreadable { refusal, .. } => refusal,
            CaptureError::Damaged { .. } => panic!("{error}"),
        })
        .collect();
    assert!(
        matches!(
            refusals[..],
            [Refusal::Empty, Refusal::NotCapture(_), Refusal::Open(_), Refusal::Directory]
        ),
        "{refusals:?}"
    );
    let absent = errors[3].to_string();
    assert!(absent.contains("absent: cannot be read: No such file"), "{absent}");
    assert!(errors.iter().all(|error| !error.to_string().contains('\n')));
}

#[test]
fn names_cannot_break_the_line() {
    let name = "a\nb\u{1b}[31m\u{202e}'\"\\é";
    let captures = &mut Captures::open([name]);
    let (_, errors, _) = read(captures);
    let text = errors[0].to_string();
    assert!(text.starts_with("a\\nb\\u{1b}[31m\\u{202e}'\"\\é: cannot be read"), "{text}");
    assert_eq!(captures.inputs(), [name]);
}

#[test]
fn no_file_is_an_end_at_once() {
    let mut captures = Captures::open([""; 0]);
    assert_eq!(captures.progress().total, Some(0));
    assert_eq!(read(&mut captures).0, []);
}
