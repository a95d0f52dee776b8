//! Stored samples: bytes from outside reach the sampler before they reach the summary behind it.

use flowgauge_core::catalog::stored::{decode, encode};
use flowgauge_core::catalog::{self, ACCELERATORS};
use flowgauge_core::key::Key4;
use flowgauge_core::summary::{Options, Parameters};
use flowgauge_core::terms::Measure;

use super::ask::decode_and_use;
use super::codec::{flipped, raised, signed};
use super::stream::{feed, packets};

const LIMIT: usize = 4 << 20;

/// Bytes at the beginning: the parameters of both, what the sampler stores, and some of the summary's.
const DAMAGED: usize = 400;

/// What stands for tables, sketches, counters and prefixes.
const BEHIND: [&str; 6] =
    ["linear-table", "count-min", "count-sketch", "univmon", "space-saving", "mst"];

#[test]
fn damaged_samples_do_no_harm() {
    let samplers = ACCELERATORS.iter().filter(|info| info.samples).map(|info| info.name);
    let both = [Measure::Packets, Measure::Bytes];
    for (sampler, by) in samplers.flat_map(|name| both.map(|by| (name, by))) {
        let able = catalog::able(sampler);
        let mut damaged = 0;
        for name in BEHIND.into_iter().filter(|name| able.contains(name)) {
            let accelerators = [(sampler.to_owned(), Parameters::default())];
            let options = Options { by, ..Options::new(64 << 10, 1) };
            let mut summary =
                catalog::build_accelerated::<Key4>(&accelerators, name, &options).unwrap();
            feed(&mut *summary, &packets(2000, 60, 7), 256);
            let bytes = encode(catalog::info(name).unwrap(), &options, &*summary);
            decode_and_use::<Key4>(&bytes, LIMIT).unwrap();
            for end in 0..DAMAGED.min(bytes.len()) {
                assert!(decode::<Key4>(&signed(bytes[..end.max(4)].to_vec()), LIMIT).is_err());
            }
            for at in 0..DAMAGED.min(bytes.len() - 4) {
                let _ =
                    decode_and_use::<Key4>(&signed(flipped(&bytes, at, at as u32 * 5 % 8)), LIMIT);
                let _ = decode_and_use::<Key4>(&signed(raised(&bytes, at, 8)), LIMIT);
                damaged += 2;
            }
        }
        assert!(damaged > 0, "{sampler}");
    }
}
