//! The rows of a report: flows and hosts that its tasks list.

use std::net::IpAddr;

use serde_json::Value;

/// An item of a list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The flow or host.
    pub(super) name: String,
    /// Its addresses.
    pub(super) addresses: Vec<IpAddr>,
    /// Packets, bytes and distinct peers, if the list has them.
    pub(super) numbers: [Option<Number>; 3],
    /// Share of the epoch's traffic.
    pub(super) share: Option<f64>,
}

/// A number with its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The tasks whose lists can be shown.
const LISTS: [&str; 7] = [
    "top",
    "heavy-hitters",
    "top-sources",
    "top-destinations",
    "superspreaders",
    "victims",
    "changes",
];

/// The tasks of a report that have lists.
pub(super) fn lists(report: &Value) -> Vec<&'static str> {
    let has = |task: &&str| report["tasks"][*task]["items"].is_array();
    LISTS.into_iter().filter(has).collect()
}

/// The rows of a list.
pub(super) fn rows(report: &Value, task: &str) -> Vec<Row> {
    let items = report["tasks"][task]["items"].as_array();
    items.into_iter().flatten().map(|item| row(item, &report["labels"])).collect()
}

fn row(item: &Value, labels: &Value) -> Row {
    let number = |name: &str| {
        let number = &item[name];
        let value = number["value"].as_f64()?;
        let bound = |side: &str| number[side].as_f64().unwrap_or(value);
        Some(Number { value, low: bound("low"), high: bound("high") })
    };
    // A superspreader has only an address.
    let key = if item["key"].is_object() { &item["key"] } else { item };
    let fields = key.as_object().into_iter().flatten();
    let known = fields.clone().filter_map(|(_, value)| label(&labels[value.as_str()?]));
    let known: Vec<_> = known.collect();
    let text = |value: &Value| value.as_str().and_then(|text| text.split('/').next()?.parse().ok());
    let addresses = fields.filter_map(|(_, value)| text(value)).collect();
    let numbers = [number("packets"), number("bytes"), number("distinct")];
    let mut name = name(key);
    if !known.is_empty() {
        name = format!("{name} ({})", known.join(" → "));
    }
    Row { name, addresses, numbers, share: item["share"].as_f64() }
}

/// The label of an address: `office, AS64500 Example, DE`.
fn label(known: &Value) -> Option<String> {
    let text = |name: &str| known[name].as_str().map(str::to_owned);
    let system = known["as"].as_u64().map(|number| match text("as_name") {
        Some(organization) => format!("AS{number} {organization}"),
        None => format!("AS{number}"),
    });
    let parts: Vec<_> = [text("name"), system, text("country")].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// A key in readable form: `10.0.0.1:53 → 10.0.0.2:5000 udp`.
fn name(key: &Value) -> String {
    let text = |name: &str| match &key[name] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let end = |address: &str, port: &str| match (text(address), text(port)) {
        (Some(address), Some(port)) if port != "0" && address.contains(':') => {
            Some(format!("[{address}]:{port}"))
        }
        (Some(address), Some(port)) if port != "0" => Some(format!("{address}:{port}")),
        (Some(address), _) => Some(address),
        (None, Some(port)) => Some(format!("port {port}")),
        (None, None) => None,
    };
    let joined = |one: Option<String>, other: Option<String>| match (one, other) {
        (Some(one), Some(other)) => Some(format!("{one} → {other}")),
        (one, other) => one.or(other),
    };
    let protocol = text("protocol").map(|number| match &*number {
        "1" => "icmp".to_owned(),
        "6" => "tcp".to_owned(),
        "17" => "udp".to_owned(),
        "58" => "icmpv6".to_owned(),
        number => format!("protocol {number}"),
    });
    let ends = joined(end("source", "source_port"), end("destination", "destination_port"));
    let macs = joined(text("source_mac"), text("destination_mac"));
    let vlan = text("vlan").map(|vlan| format!("vlan {vlan}"));
    let parts =
        [text("host"), text("address"), ends, protocol, text("mac"), macs, vlan, text("tcp_flags")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// A prefix of addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// Parses a prefix such as `10.1.2.0/24`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.parse().ok().filter(|bits| *bits <= most)?;
        Some(Self { address, bits })
    }

    /// Whether it contains an address.
    pub(super) fn has(self, address: IpAddr) -> bool {
        let (own, other, most) = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (u128::from(own.to_bits()), u128::from(other.to_bits()), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128),
            _ => return false,
        };
        (own ^ other).checked_shr(most - u32::from(self.bits)).unwrap_or(0) == 0
    }

    /// The /24 or /48 around an address.
    pub(super) fn around(address: IpAddr) -> String {
        match address {
            IpAddr::V4(address) => {
                let [a, b, c, _] = address.octets();
                format!("{a}.{b}.{c}.0/24")
            }
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 80 << 80;
                format!("{}/48", std::net::Ipv6Addr::from_bits(network))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_read_aloud() {
        for (key, text) in [
            (
                json!({ "source": "10.0.0.1", "destination": "10.0.0.2", "source_port": 53,
                        "destination_port": 5000, "protocol": 17 }),
                "10.0.0.1:53 → 10.0.0.2:5000 udp",
            ),
            (json!({ "source": "::1", "source_port": 1, "protocol": 6 }), "[::1]:1 tcp"),
            (json!({ "destination": "10.0.0.2" }), "10.0.0.2"),
            (json!({ "destination_port": 80, "protocol": 132 }), "port 80 protocol 132"),
            (json!({ "host": "10.0.0.0/24", "vlan": 7 }), "10.0.0.0/24 vlan 7"),
        ] {
            assert_eq!(name(&key), text);
        }
    }

    #[test]
    fn labels_stand_behind_the_flow() {
        let item =
            json!({ "key": { "source": "10.0.0.1", "destination": "192.0.2.7", "protocol": 6 } });
        let report = json!({
            "labels": {
                "10.0.0.1": { "name": "office" },
                "192.0.2.7": { "as": 64500, "as_name": "Example", "country": "DE" },
                "192.0.2.8": { "name": "another" },
            },
            "tasks": { "top": { "items": [item] } },
        });
        let name = &rows(&report, "top")[0].name;
        // In the order of the key's fields.
        assert_eq!(name, "10.0.0.1 → 192.0.2.7 tcp (office → AS64500 Example, DE)");
    }

    #[test]
    fn prefixes_have_their_addresses() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for (prefix, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.3", "10.2.0.0"),
            ("0.0.0.0/0", "255.0.0.1", "::1"),
            ("10.1.2.3/32", "10.1.2.3", "10.1.2.2"),
            ("2001:db8::/32", "2001:db8:1::1", "2001:db9::1"),
        ] {
            let prefix = Prefix::parse(prefix).unwrap();
            assert!(prefix.has(address(inside)) && !prefix.has(address(outside)), "{prefix:?}");
        }
        for text in ["10.1.0.0", "10.1.0.0/33", "x/8", "10.1.0.0/"] {
            assert_eq!(Prefix::parse(text), None, "{text}");
        }
        assert_eq!(Prefix::around(address("10.1.2.3")), "10.1.2.0/24");
        assert_eq!(Prefix::around(address("2001:db8:1:2::3")), "2001:db8:1::/48");
    }
}
