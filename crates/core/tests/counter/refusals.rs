//! What cannot be built is refused with the reason.

use flowgauge_core::catalog;
use flowgauge_core::key::Key4;
use flowgauge_core::summary::Options;
use flowgauge_core::terms::Measure;

fn refusal(name: &str, by: Measure, parameters: &[(&str, &str)]) -> String {
    let options = Options::new(1 << 16, 1).with(parameters.iter().copied());
    catalog::build::<Key4>(name, &Options { by, ..options }).err().unwrap().to_string()
}

#[test]
fn sizes_and_targets_are_checked() {
    for name in ["space-saving", "stream-summary", "misra-gries"] {
        let both = refusal(name, Measure::Packets, &[("counters", "10"), ("epsilon", "0.1")]);
        assert!(both.contains("counters and epsilon set the same value"), "{both}");
        let none = refusal(name, Measure::Packets, &[("counters", "0")]);
        assert!(none.contains("'counters=0' is not a whole number from 1"), "{none}");
        let whole = refusal(name, Measure::Packets, &[("epsilon", "1.5")]);
        assert!(whole.contains("'epsilon=1.5' is not a number between 0 and 1"), "{whole}");
    }
    let none = refusal("netflow", Measure::Packets, &[("sample", "0")]);
    assert!(none.contains("'sample=0' is not"), "{none}");
    for (name, value) in [("rate", "0"), ("rate", "1000000001"), ("queue", "0")] {
        let out = refusal("sketch-visor", Measure::Packets, &[(name, value)]);
        assert!(
            out.contains(&format!("'{name}={value}' is not a whole number from 1 to")),
            "{out}"
        );
    }
    let more = refusal("csm", Measure::Packets, &[("counters", "10"), ("shared", "11")]);
    assert!(more.contains("'shared=11' is not a whole number from 1 to 10"), "{more}");
}

#[test]
fn an_error_gives_the_number_of_counters() {
    let options = Options::new(1 << 16, 1).with([("epsilon", "0.003")]);
    let summary = catalog::build::<Key4>("space-saving", &options).unwrap();
    assert_eq!(summary.parameters()[0].1.to_string(), "334");
}

#[test]
fn linked_buckets_count_packets_only() {
    let error = refusal("stream-summary", Measure::Bytes, &[]);
    assert!(error.contains("--algorithm space-saving"), "{error}");
}
