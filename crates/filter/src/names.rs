//! Names of ports and protocols, from the tables of the system. Names of hosts are not resolved.

use std::fs;

use flowgauge_core::unknown::nearest;

const SERVICES: &str = "/etc/services";
const PROTOCOLS: &str = "/etc/protocols";

/// The port of the service `name` of `transport`, by `/etc/services`.
pub(super) fn service(name: &str, transport: &str) -> Option<u16> {
    let table = fs::read_to_string(SERVICES).ok()?;
    find(&table, name, |value| value.strip_suffix(transport)?.strip_suffix('/')?.parse().ok())
}

/// The number of the IP protocol `name`, by `/etc/protocols`.
pub(super) fn protocol(name: &str) -> Option<u32> {
    let table = fs::read_to_string(PROTOCOLS).ok()?;
    find(&table, name, |value| value.parse().ok())
}

/// The service whose name is nearest to one that there is not.
pub(super) fn like_service(name: &str) -> Option<String> {
    like(&fs::read_to_string(SERVICES).ok()?, name)
}

/// The protocol whose name is nearest to one that there is not.
pub(super) fn like_protocol(name: &str) -> Option<String> {
    like(&fs::read_to_string(PROTOCOLS).ok()?, name)
}

/// The name or other name in a table that is nearest.
fn like(table: &str, name: &str) -> Option<String> {
    let names = table.lines().flat_map(|line| {
        let words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
        words.enumerate().filter(|(at, _)| *at != 1).map(|(_, word)| word)
    });
    nearest(name, names).map(str::to_owned)
}

/// The value of the first line that is about `name`: lines hold a name, a value and other names.
fn find<T>(table: &str, name: &str, value: impl Fn(&str) -> Option<T>) -> Option<T> {
    table.lines().find_map(|line| {
        let line = line.split('#').next()?;
        let mut words = line.split_ascii_whitespace();
        let (first, second) = (words.next()?, words.next()?);
        let named = first == name || words.any(|word| word == name);
        if named { value(second) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::{find, like};

    #[test]
    fn names_and_aliases_are_found_and_comments_are_not() {
        let table =
            "# ssh 1/tcp\ndomain 53/tcp\ndomain 53/udp # dns\nhttp\t80/tcp www # web\nbad\n";
        let tcp = |value: &str| value.strip_suffix("/tcp")?.parse::<u16>().ok();
        assert_eq!(find(table, "domain", tcp), Some(53));
        assert_eq!(find(table, "www", tcp), Some(80));
        for missing in ["ssh", "dns", "web", "bad", ""] {
            assert_eq!(find(table, missing, tcp), None, "{missing}");
        }
        for (word, near) in [("htpp", Some("http")), ("wwww", Some("www")), ("53/tcq", None)] {
            assert_eq!(like(table, word).as_deref(), near, "{word}");
        }
    }
}
