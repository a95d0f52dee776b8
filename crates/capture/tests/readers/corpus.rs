//! Public captures, as tcpdump counted them.

use std::{env, fs, path::Path};

use flowgauge_capture::{CaptureError, Captures};

use crate::support::read;

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
    let mut differences = Vec::new();
    for line in manifest.lines().skip(1) {
        let cells: Vec<&str> = line.split('\t').collect();
        let file = format!("{}/{}", cells[0], cells[1]);
        let counted = if cells[7].is_empty() { cells[5] } else { cells[7] };
        let (packets, errors, _) = read(&mut Captures::open([folder.join(&file)]));
        let outcome = match &errors[..] {
            [] => "whole",
            [CaptureError::Damaged { .. }] => "damaged",
            _ => "unreadable",
        };
        let expected = if cells[8] == "0" { "whole" } else { "refused" };
        if packets.len().to_string() != counted || outcome != expected {
            println!("{file}\t{}\t{outcome}\t{counted}\t{}\t{errors:?}", packets.len(), cells[9]);
            differences.push(file);
        }
    }
}
