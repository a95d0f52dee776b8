//! Named measurements: words `option=value`, or YAML.

use clap::{Args, FromArgMatches};
use flowgauge_core::unknown::suggestion;
use flowgauge_engine::is_name;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::{Measurement, sentence};

/// A measurement with its name.
pub struct Named {
    /// The name; reports carry it.
    pub name: String,
    /// Its options.
    pub measurement: Measurement,
}

/// Parses a measurement in the form of `--measure`: its name, a colon, and words `option=value`.
///
/// ```
/// use flowgauge_engine::EpochLength;
///
/// let named = flowgauge_options::parse("scanners: key=source memory=16MiB")?;
/// let config = named.measurement.config(&named.name, EpochLength::Whole)?;
/// assert_eq!((config.name.as_str(), config.memory_bytes), ("scanners", 16 << 20));
/// assert!(flowgauge_options::parse("scanners: kay=source").is_err());
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// With a one-line reason, when a word is invalid.
pub fn parse(text: &str) -> Result<Named, String> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let mut options = Vec::new();
    for word in words(rest)? {
        let (option, value) = word
            .split_once('=')
            .ok_or_else(|| format!("'{word}' in '{name}' is not OPTION=VALUE"))?;
        options.push((option.to_owned(), value.to_owned()));
    }
    named(name, options)
}

/// Splits text at spaces. Single or double quotes keep spaces within a word.
fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    match quote {
        Some(open) => Err(format!("unclosed quote {open} in '{}'", text.trim())),
        None => Ok(words.into_iter().chain(word).collect()),
    }
}

/// The measurement with this name and these options, named without dashes.
fn named(name: &str, options: Vec<(String, String)>) -> Result<Named, String> {
    if !is_name(name) {
        return Err(format!(
            "invalid name '{name}'; write NAME: OPTION=VALUE …, with letters, digits, '-', '_' \
             or '.' in the name"
        ));
    }
    let command = Measurement::augment_args(clap::Command::new("measurement").no_binary_name(true));
    let known: Vec<_> =
        command.get_arguments().filter_map(|option| option.get_long()).map(str::to_owned).collect();
    let mut arguments = Vec::new();
    for (option, value) in options {
        if !known.contains(&option) {
            return Err(unknown(name, &option, known.iter().map(String::as_str)));
        }
        arguments.push(format!("--{option}={value}"));
    }
    let measurement = command
        .try_get_matches_from(arguments)
        .and_then(|matches| Measurement::from_arg_matches(&matches))
        .map_err(|error| format!("'{name}': {}", sentence(&error)))?;
    Ok(Named { name: name.to_owned(), measurement })
}

fn unknown<'a>(name: &str, option: &str, known: impl Iterator<Item = &'a str>) -> String {
    format!("unknown option '{option}' in '{name}'; {}", suggestion(option, known))
}

/// Parses the measurements of a configuration file, as described by `docs/config.schema.json`.
///
/// ```
/// let yaml = "measurements:\n  scanners:\n    key: source\n    tasks: [superspreaders]\n";
/// let measurements = flowgauge_options::parse_yaml(yaml)?;
/// assert_eq!(measurements[0].name, "scanners");
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// With a one-line reason, when the text is not such a file or an option is invalid.
pub fn parse_yaml(text: &str) -> Result<Vec<Named>, String> {
    let file: File = serde_saphyr::from_str(text).map_err(|error| complaint(&error))?;
    let measurements = file.measurements.named()?;
    if measurements.is_empty() {
        return Err(
            "the file has no measurement; name one, such as { measurements: { main: {} } }"
                .to_owned(),
        );
    }
    Ok(measurements)
}

/// The place and the problem of a YAML error in one line.
pub fn complaint(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let place = error.location().map_or(String::new(), |at| format!("line {}: ", at.line()));
    let problem = first.strip_prefix("error: ").unwrap_or(first);
    let problem = match problem.split_once(": ") {
        Some((position, problem)) if position.starts_with("line ") => problem,
        _ => problem,
    };
    if let Some(key) = problem.strip_prefix("duplicate mapping key: ") {
        let key = key.split_once(", set ").map_or(key, |(key, _)| key);
        return format!("{place}'{key}' appears twice");
    }
    for (prefix, what) in [("unknown variant `", "value"), ("unknown field `", "field")] {
        let unknown = problem.strip_prefix(prefix).and_then(|rest| rest.split_once('`'));
        if let Some((name, known)) = unknown {
            let known = known.trim_start_matches(", expected ").trim_start_matches("one of ");
            let known = known.split([',', ' ']).map(|name| name.trim_matches('`'));
            let known = known.filter(|name| !name.is_empty() && *name != "or");
            return format!("{place}unknown {what} '{name}'; {}", suggestion(name, known));
        }
    }
    let problem = problem.replace("sequence start", "a list, such as [a, b]");
    format!("{place}{}", problem.replace("mapping start", "fields, such as { a: b }"))
}

/// A configuration file.
#[derive(Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct File {
    /// Measurements by name. Each packet is read once for all of them.
    measurements: Entries,
}

/// Measurements in the order of a file, which may hold more than them.
#[derive(Default)]
pub struct Entries(Vec<(String, Entry)>);

impl Entries {
    /// The measurements by name.
    ///
    /// # Errors
    /// With a one-line reason, when an option is invalid.
    pub fn named(self) -> Result<Vec<Named>, String> {
        self.0.into_iter().map(|(name, entry)| named(&name, entry.options())).collect()
    }
}

#[cfg(any(test, feature = "schema"))]
impl schemars::JsonSchema for Entries {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Measurements".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        std::collections::BTreeMap::<String, Entry>::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Entries;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("measurements by name")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        from.deserialize_map(InOrder)
    }
}

/// A number or a text, as a person writes it. The option's own parser checks it.
struct Scalar(String);

#[cfg(any(test, feature = "schema"))]
impl schemars::JsonSchema for Scalar {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Scalar".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        /// A number or a text, as a person writes it.
        #[derive(schemars::JsonSchema)]
        #[schemars(untagged)]
        #[expect(dead_code, reason = "only its schema counts")]
        enum Scalar {
            Number(u64),
            Text(String),
        }
        Scalar::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Scalar;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number or a text")
            }
            fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }
            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }
        }
        from.deserialize_any(Any)
    }
}

/// One measurement of a configuration file. Its options are those of the command line.
#[derive(Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    /// Packets to measure, in tcpdump's syntax.
    filter: Option<String>,
    /// Key of the flows, with prefix lengths, such as `source/24,48`.
    key: Option<String>,
    /// `packets` or `bytes`.
    by: Option<String>,
    /// Names of the tasks.
    tasks: Option<Vec<String>>,
    /// Length of an epoch: `whole`, a time such as `10s`, or packets such as `2000000p`.
    epoch: Option<String>,
    /// Interval between reports of an epoch that goes on.
    updates: Option<String>,
    /// Threshold of heavy hitters: a share such as `0.1%`, or a number of packets or bytes.
    threshold: Option<Scalar>,
    /// Distinct peers that superspreaders and victims exceed.
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "Option<u64>"))]
    spread: Option<Scalar>,
    /// What a peer is: `address`, `port` or `endpoint`.
    spread_of: Option<String>,
    /// How `changes` forecasts: `ewma`, `moving-average` or `holt-winters`.
    forecast: Option<String>,
    /// Most items in `top` and `changes`.
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "Option<u64>"))]
    top: Option<Scalar>,
    /// Prefixes of `hierarchical`: `bytes`, `bits` or `pair`.
    hierarchy: Option<String>,
    /// Flows that `flow-size` is asked for, such as `source=10.0.0.1,destination=10.0.0.2`.
    flows: Option<Vec<String>>,
    /// Algorithm with its parameters, such as `count-min:rows=3`.
    algorithm: Option<String>,
    /// Accelerators with their parameters; packets meet the first one first.
    accelerators: Option<Vec<String>>,
    /// The slice of the flows that an exact table counts, too, so that reports say how far sizes are off:
    /// `1/64`.
    audit: Option<String>,
    /// Memory limit, such as `64MiB`.
    memory: Option<Scalar>,
}

impl Entry {
    /// The options that it sets, by their names on the command line.
    fn options(self) -> Vec<(String, String)> {
        let text = |scalar: Option<Scalar>| scalar.map(|Scalar(text)| text);
        let single = [
            ("filter", self.filter),
            ("key", self.key),
            ("by", self.by),
            ("task", self.tasks.map(|tasks| tasks.join(","))),
            ("epoch", self.epoch),
            ("updates", self.updates),
            ("threshold", text(self.threshold)),
            ("spread", text(self.spread)),
            ("spread-of", self.spread_of),
            ("forecast", self.forecast),
            ("top", text(self.top)),
            ("hierarchy", self.hierarchy),
            ("algorithm", self.algorithm),
            ("audit", self.audit),
            ("memory", text(self.memory)),
        ];
        let single = single.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let flows = self.flows.into_iter().flatten().map(|flow| ("flow", flow));
        let accelerators = self.accelerators.into_iter().flatten().map(|one| ("accelerator", one));
        let all = single.chain(flows).chain(accelerators);
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn refused<T>(result: Result<T, String>) -> String {
        result.err().unwrap()
    }

    #[test]
    fn a_measurement_is_a_name_and_options() {
        let Named { name, measurement } =
            parse("web.1: key=source/24 filter='tcp port 443' task=top,entropy memory=16MiB")
                .unwrap();
        assert_eq!(name, "web.1");
        assert_eq!(measurement.key.unwrap().to_string(), "source/24");
        assert_eq!(measurement.filter.as_deref(), Some("tcp port 443"));
        assert_eq!(measurement.task.unwrap(), ["top", "entropy"]);
        assert_eq!(measurement.memory, Some(16 << 20));
        assert!(parse("plain").unwrap().measurement.key.is_none());
    }

    #[test]
    fn a_measurement_that_makes_no_sense_is_refused_in_one_line() {
        for (text, message) in [
            ("a: kye=source", "unknown option 'kye' in 'a'; did you mean 'key'?"),
            ("a: source", "'source' in 'a' is not OPTION=VALUE"),
            ("a: filter='tcp", "unclosed quote ' in 'filter='tcp'"),
            (
                "a b: key=source",
                "invalid name 'a b'; write NAME: OPTION=VALUE …, with letters, digits, '-', '_' or \
                 '.' in the name",
            ),
        ] {
            assert_eq!(refused(parse(text).map(|_| ())), message, "{text}");
        }
        let message = refused(parse("a: memory=64Q").map(|_| ()));
        assert!(message.starts_with("'a': invalid value '64Q' for '--memory"), "{message}");
    }

    #[test]
    fn a_file_names_measurements_in_its_order() {
        let file: File = serde_saphyr::from_str(
            "measurements:\n  z: { key: source, tasks: [top], spread: 9, memory: 64MiB }\n  a: {}\n",
        )
        .unwrap();
        let entries = file.measurements.0.into_iter();
        let all: Vec<_> = entries.map(|(name, entry)| (name, entry.options())).collect();
        let z = [("key", "source"), ("task", "top"), ("spread", "9"), ("memory", "64MiB")];
        let z = z.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        assert_eq!(all, [("z".to_owned(), z), ("a".to_owned(), Vec::new())]);
    }

    #[test]
    fn an_unknown_field_of_a_file_is_refused_with_its_line_and_the_nearest_name() {
        for (text, message) in [
            (
                "measurements:\n  a: { kye: source }\n",
                "line 2: unknown field 'kye'; did you mean 'key'?",
            ),
            (
                "measurement:\n  a: { key: source }\n",
                "line 1: unknown field 'measurement'; did you mean 'measurements'?",
            ),
            ("measurements:\n  a: { tasks: top }\n", "line 2: expected a list, such as [a, b]"),
            ("measurements:\n  a: { top: 1 }\n  a: { top: 2 }\n", "line 3: 'a' appears twice"),
        ] {
            let error = serde_saphyr::from_str::<File>(text).err().unwrap();
            assert_eq!(complaint(&error), message, "{text}");
        }
    }

    #[test]
    fn numbers_in_a_file_are_judged_as_those_of_the_command_line() {
        for (option, message) in [
            ("threshold: 0.1", "'a': invalid value '0.1' for '--threshold"),
            ("top: -1", "'a': invalid value '-1' for '--top"),
            ("spread: many", "'a': invalid value 'many' for '--spread"),
        ] {
            let text = format!("measurements:\n  a: {{ {option} }}\n");
            let refused = refused(parse_yaml(&text).map(|_| ()));
            assert!(refused.starts_with(message), "{refused}");
        }
        let nothing = refused(parse_yaml("measurements: {}").map(|_| ()));
        assert!(nothing.starts_with("the file has no measurement; name one"), "{nothing}");
    }

    /// `FLOWGAUGE_GOLDEN=write` rewrites the committed schema after an intended change.
    #[test]
    fn the_schema_of_a_file_is_committed() {
        let schema = serde_json::to_value(schemars::schema_for!(File)).unwrap();
        let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.schema.json");
        if std::env::var_os("FLOWGAUGE_GOLDEN").is_some_and(|value| value == "write") {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), text);
        let validator = jsonschema::validator_for(&schema).unwrap();
        for (file, valid) in [
            (
                serde_json::json!({ "measurements": { "a": { "key": "source", "memory": 9 } } }),
                true,
            ),
            (serde_json::json!({ "measurements": { "a": { "kye": "source" } } }), false),
        ] {
            assert_eq!(validator.is_valid(&file), valid, "{file}");
        }
    }
}
