//! Writes images of HyperLogLog and KLL into a folder, with this library's answers for each, which
//! `tests/interop.sh` compares with another library's.
//!
//! Run with `cargo run -p flowgauge-core --example images FOLDER`.
#![expect(clippy::unwrap_used, reason = "an example may stop at the first surprise")]

use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::summary::distinct::HllRegisters;
use flowgauge_core::summary::quantile::QuantileSketch;
use flowgauge_core::summary::{Options, Summary};

/// A summary of `flows` flows of two packets each, numbered from `first`.
fn filled(
    name: &str,
    parameters: &[(&str, &str)],
    first: u32,
    flows: u32,
) -> Box<dyn Summary<Key8>> {
    let options = Options::new(1 << 20, 1).with(parameters.iter().copied());
    let mut summary = catalog::build::<Key8>(name, &options).unwrap();
    let mut random = fastrand::Rng::with_seed(u64::from(flows));
    let mut batch = Batch::new();
    let mut time_ns = 0;
    for packet in 0..2 * flows {
        let key = Key8::from_canonical(&(first + packet % flows).to_be_bytes()).unwrap();
        time_ns += random.i64(0..100_000);
        batch.push(key, random.u32(64..1500), time_ns);
        if batch.len() == 256 || packet + 1 == 2 * flows {
            summary.ingest(&mut batch);
            batch.clear();
        }
    }
    summary
}

fn main() {
    let folder = PathBuf::from(env::args().nth(1).expect("a folder to write to"));
    let mut answers = String::new();
    let mut write = |name: &str, image: Vec<u8>, of: &[(&str, f64)]| {
        fs::write(folder.join(name), image).unwrap();
        for (question, answer) in of {
            writeln!(answers, "{name}\t{question}\t{answer:?}").unwrap();
        }
    };
    // Few flows are a list, some a set, many are registers; merged registers use another estimator.
    for flows in [0, 5, 300, 2_000, 100_000] {
        let mut summary = filled("hyperloglog", &[], 0, flows);
        for kind in ["counted", "merged"] {
            let estimate = summary.answers().cardinality().unwrap();
            let image = summary.downcast_ref::<HllRegisters>().unwrap().image();
            let of = [("value", estimate.value), ("low", estimate.low), ("high", estimate.high)];
            write(&format!("hll-{kind}-{flows}"), image, &of);
            summary.merge(&*filled("hyperloglog", &[], flows / 2, flows)).unwrap();
        }
    }
    for of in ["size", "gap"] {
        for flows in [0, 1, 50, 50_000] {
            let summary = filled("kll", &[("of", of)], 0, flows);
            let quantiles = summary.answers().quantiles().unwrap();
            let image = summary.downcast_ref::<QuantileSketch<Key8>>().unwrap().image();
            let count = quantiles.count() as f64;
            let mut of_it = vec![("count", count), ("error", quantiles.error())];
            if count > 0.0 {
                of_it.push(("largest", quantiles.largest()));
                let numbers = ["64", "100.5", "400", "900", "1499", "20000", "77777"];
                of_it.extend(numbers.map(|at| (at, quantiles.rank(at.parse().unwrap()))));
            }
            write(&format!("kll-{of}-{flows}"), image, &of_it);
        }
    }
    fs::write(folder.join("answers.tsv"), answers).unwrap();
}
