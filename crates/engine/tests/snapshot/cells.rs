//! Cells of sketches outside of the engine: they add up, and estimates are made from them.

use flowgauge_core::summary::Parameters;
use flowgauge_engine::Config;
use flowgauge_engine::snapshot::LaneCells;

use super::answers::{answers_of, part};
use super::capture::mixed;
use super::{asking, snapshot};

const COLUMNS: usize = 256;

fn sketch(name: &str) -> Config {
    Config {
        algorithm: name.to_owned(),
        parameters: Parameters::new([("columns", COLUMNS), ("rows", 5)]),
        key: "source".parse().unwrap(),
        ..asking(&["top"])
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The estimate as a database would make it.
fn estimate(algorithm: &str, lane: &LaneCells, places: &[(usize, bool)]) -> f64 {
    let signed = |&(place, is_subtracted): &(usize, bool)| {
        if is_subtracted { -lane.cells[place] } else { lane.cells[place] }
    };
    let values = places.iter().map(signed);
    match algorithm {
        "count-min" => values.fold(f64::INFINITY, f64::min),
        "count-sketch" => median(values.collect()),
        _ => {
            let mean = lane.cells[..lane.columns].iter().sum::<f64>() / lane.columns as f64;
            let share = 1.0 / lane.columns as f64;
            median(values.map(|cell| (cell - mean) / (1.0 - share)).collect())
        }
    }
}

#[test]
fn cells_add_up_and_estimates_are_made_of_them() {
    println!("seed 81");
    let bytes = mixed(81, 4000);
    for name in ["count-min", "count-sketch", "k-ary"] {
        let mut whole = snapshot(sketch(name), &bytes);
        let halves = [0, 1]
            .map(|half| snapshot(sketch(name), &part(&bytes, |number| number % 2 == half)).cells());
        let lanes = whole.cells();
        assert_eq!(lanes.iter().map(|lane| lane.key_bytes).collect::<Vec<_>>(), [4, 16], "{name}");
        for (lane, (one, other)) in lanes.iter().zip(halves[0].iter().zip(&halves[1])) {
            assert_eq!((lane.rows, lane.columns, lane.cells.len()), (5, COLUMNS, 5 * COLUMNS));
            let sum: Vec<_> = one.cells.iter().zip(&other.cells).map(|(a, b)| a + b).collect();
            assert!(lane.cells == sum, "{name}");
        }
        let found = answers_of(&mut whole, &["top"], &[]).unwrap();
        let items = found["tasks"]["top"]["items"].as_array().unwrap();
        assert!(items.len() > 5, "{name}");
        for item in items {
            let source = item["key"]["source"].as_str().unwrap();
            let flow = whole.config().key.parse_flow(&format!("source={source}")).unwrap();
            let (key_bytes, places) = whole.places(&flow).unwrap();
            assert_eq!(places.len(), 5);
            let lane = lanes.iter().find(|lane| lane.key_bytes == key_bytes).unwrap();
            let expected = item["packets"]["value"].as_f64().unwrap();
            let found = estimate(name, lane, &places);
            assert!((found - expected).abs() < 1e-6, "{name} of {source}: {found}, {expected}");
        }
    }
    assert!(snapshot(asking(&["top"]), &bytes).cells().is_empty());
}
