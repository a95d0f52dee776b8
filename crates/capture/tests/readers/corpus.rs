//! Public captures, as tcpdump counted them.

use std::{collections::HashMap, env, fs, path::Path};

use flowgauge_capture::{CaptureError, Captures};

use crate::support::read;

/// Where this reader does otherwise on purpose: file, packets, outcome.
const DIFFERENCES: &[(&str, usize, &str)] = &[
    // tcpdump does not decompress; these are its counts of what gunzip gives.
    ("zeek/contentline__telnet-unclosed-suboption.pcapng.gz", 13_987, WHOLE),
    ("zeek/http__iso-download.pcap.gz", 289, WHOLE),
    ("zeek/pe__pe_files_timestamp.pcap.gz", 22, WHOLE),
    ("zeek/smb__smb_many_open_files_500.pcap.gz", 500, WHOLE),
    ("zeek/smtp__mime-header-size-limit.pcap.gz", 44, WHOLE),
    ("zeek/smtp__smtp-many-addresses.pcap.gz", 2_508, WHOLE),
    ("zeek/ssh__kex-quadratic-1000.pcap.gz", 11, WHOLE),
    // Blocks whose two lengths differ are accepted and counted as irregular.
    ("libpcap/tests__shb-option-too-long.pcapng", 1, WHOLE),
    // Interfaces may differ in their snap lengths.
    ("zeek/ldap__modify-request.pcapng", 17, WHOLE),
    // A file without interfaces is sound as long as it has no packets either.
    ("pcap-parser/test017-be.pcapng", 0, WHOLE),
    ("pcap-parser/test017-le.pcapng", 0, WHOLE),
    // Refused alike, though a reader that looks at no version counts packets in them.
    ("libpcap/tests__pcap-invalid-version-1.pcap", 0, UNREADABLE),
    ("libpcap/tests__pcap-invalid-version-2.pcap", 0, UNREADABLE),
];

const WHOLE: &str = "whole";
const DAMAGED: &str = "damaged";
const UNREADABLE: &str = "unreadable";

#[test]
fn counts_are_those_of_tcpdump() {
    let Some(folder) = env::var_os("FLOWGAUGE_CAPTURES") else {
        println!(
            "skipped: FLOWGAUGE_CAPTURES does not name a folder of captures with MANIFEST.tsv"
        );
        return;
    };
    let folder = Path::new(&folder);
    let manifest = fs::read_to_string(folder.join("MANIFEST.tsv")).unwrap();
    let mut columns = manifest.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let header = columns.next().unwrap();
    let column = |name| header.iter().position(|&column| column == name).unwrap();
    let [corpus, file, walked, counted, code] =
        ["corpus", "file", "walker_packets", "tcpdump_count", "tcpdump_rc"].map(column);
    let mut differences: HashMap<_, _> =
        DIFFERENCES.iter().map(|&(file, packets, outcome)| (file, (packets, outcome))).collect();
    let (mut files, mut wrong) = (0, Vec::new());
    for cells in columns {
        let name = format!("{}/{}", cells[corpus], cells[file]);
        // What tcpdump refused without counting, it refused at the file header.
        let expected = differences.remove(&name[..]).unwrap_or_else(|| {
            let count = [cells[counted], cells[walked]].into_iter().find(|cell| !cell.is_empty());
            let outcome = if cells[code] == "0" { WHOLE } else { UNREADABLE };
            (count.map_or(0, |count| count.parse().unwrap()), outcome)
        });
        let (packets, errors, _) = read(&mut Captures::open([folder.join(&name)]));
        let outcome = match &errors[..] {
            [] => WHOLE,
            [CaptureError::Damaged { .. }] => DAMAGED,
            _ => UNREADABLE,
        };
        files += 1;
        if (packets.len(), outcome) != expected {
            wrong.push(format!("{name}: {} {outcome}, not {expected:?}", packets.len()));
        }
    }
    println!("{files} files");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(differences.is_empty(), "no such files: {differences:?}");
    assert!(files >= 1000, "{files} files");
}
