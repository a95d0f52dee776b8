//! Packet filters in the language of tcpdump, pcap-filter(7).
//!
//! An expression is compiled once per link type, in safe code and without libpcap, to tests that
//! jump only forward. It accepts the same packets as `tcpdump -O -r` with libpcap 1.10;
//! `tests/libpcap.rs` compares both. Without `-O`, tcpdump's optimizer may reorder tests and so
//! judge a packet differently if the packet was cut within the bytes that the expression reads.
//!
//! As in tcpdump, a packet cut within these bytes is rejected, even under `not`; `vlan`, `mpls` and
//! `pppoes` change the offsets for all following primitives; ports are not found after IPv6
//! extension headers; and `ip broadcast` does not know the netmask.
//!
//! Differences, besides the texts of errors:
//! - `protochain`, `geneve`, names of hosts and networks, `DECnet` addresses, `byte` with `&` or
//!   `|`, negative constant offsets and words for unsupported link types are errors.
//! - An expression that no packet of a link type can satisfy is not an error. It rejects all
//!   packets.
//! - With link type 0, the address family may have either byte order.

#![forbid(unsafe_code)]

mod arithmetic;
mod classic;
mod condition;
mod identifier;
mod lexer;
mod machine;
mod offsets;
mod parser;
mod primitive;
mod words;

use flowgauge_core::packet::LinkType;

pub use classic::Instruction;
use machine::Program;
use offsets::HeaderOffsets;
use parser::Parser;
use primitive::Generator;

/// Maximum length of an expression in bytes: some ten thousand addresses.
pub const LONGEST_EXPRESSION: usize = 256 * 1024;

/// Number of characters of the expression that an error quotes.
const EXCERPT: usize = 60;

/// Why a filter cannot be used.
///
/// ```
/// use flowgauge_filter::{Filter, FilterError};
///
/// let error = Filter::new("tcp port").unwrap_err();
/// assert!(matches!(error, FilterError::Expression { position: 8, .. }), "{error:?}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The expression is wrong for every link type.
    #[error(
        "filter, character {}: {problem}{}; see pcap-filter(7)",
        .position + 1,
        if .excerpt.is_empty() { String::new() } else { format!(", at '{}'", .excerpt) }
    )]
    Expression {
        /// Offset in the expression, in bytes.
        position: usize,
        /// The problem at this offset.
        problem: String,
        /// The expression from this offset, escaped and shortened; empty at its end.
        excerpt: String,
    },
    /// The expression is longer than [`LONGEST_EXPRESSION`].
    #[error("the filter has {0} bytes; shorten it to {LONGEST_EXPRESSION} or less")]
    TooLong(usize),
    /// Frames of this link type lack what the expression reads.
    #[error(
        "the filter does not support link type {link}: {problem}; change the filter, or leave \
         out such captures"
    )]
    LinkType {
        /// The link type.
        link: LinkType,
        /// The missing feature.
        problem: String,
    },
}

/// A problem of an expression, with its place once that is known.
#[derive(Debug)]
struct Problem {
    place: Option<usize>,
    what: String,
    /// Whether the problem is only for this link type.
    link: bool,
}

impl Problem {
    fn at(place: usize, what: impl Into<String>) -> Self {
        Self { place: Some(place), what: what.into(), link: false }
    }

    fn usage(what: impl Into<String>) -> Self {
        Self { place: None, what: what.into(), link: false }
    }

    fn link(what: impl Into<String>) -> Self {
        Self { place: None, what: what.into(), link: true }
    }

    fn or_at(self, place: usize) -> Self {
        Self { place: self.place.or(Some(place)), ..self }
    }
}

/// A filter expression, compiled for each link type of the frames so far.
///
/// ```
/// use flowgauge_filter::Filter;
/// use flowgauge_core::packet::LinkType;
///
/// let mut filter = Filter::new("ip and not port 53").unwrap();
/// let arp = [[0xff; 6].as_slice(), &[2; 6], &[0x08, 0x06], &[0; 46]].concat();
/// assert_eq!(filter.matches(LinkType::ETHERNET, &arp, 60), Ok(false));
/// assert!(Filter::new("prot 53").is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Filter {
    expression: String,
    compiled: Vec<(LinkType, Result<Program, FilterError>)>,
}

impl Filter {
    /// A filter of this expression; an empty one accepts every packet. Names of ports and protocols
    /// come from `/etc/services` and `/etc/protocols`, never from the network.
    ///
    /// # Errors
    /// When the expression is too long, or wrong for every link type.
    pub fn new(expression: &str) -> Result<Self, FilterError> {
        if expression.len() > LONGEST_EXPRESSION {
            return Err(FilterError::TooLong(expression.len()));
        }
        let mut filter = Self { expression: expression.to_owned(), compiled: Vec::new() };
        // Another link type may support what this one does not; the whole text is then checked.
        for link in [LinkType::ETHERNET, LinkType::LINUX_SLL, LinkType::LINUX_SLL2] {
            match filter.prepare(link) {
                Ok(()) => break,
                Err(FilterError::LinkType { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filter)
    }

    /// The expression.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Compiles the expression for a link type before its first frame arrives.
    ///
    /// # Errors
    /// When frames of this link type lack what the expression reads, or when filters do not support
    /// the link type. (tcpdump refuses the capture then.)
    pub fn prepare(&mut self, link: LinkType) -> Result<(), FilterError> {
        self.program(link).map(|_| ()).map_err(Clone::clone)
    }

    /// Whether a frame is accepted. The first frame of each link type compiles the expression.
    /// After that, the cost is linear in the number of tests evaluated, without allocation.
    ///
    /// # Errors
    /// As [`Filter::prepare`], for every frame of the link type.
    #[inline]
    pub fn matches(
        &mut self,
        link: LinkType,
        captured: &[u8],
        wire: u32,
    ) -> Result<bool, &FilterError> {
        self.program(link).map(|program| program.accepts(captured, wire))
    }

    /// The expression for this link type as a classic BPF program, for a kernel that rejects
    /// packets early. `None` if classic BPF cannot express it.
    ///
    /// The program may accept more than [`Filter::matches`], but never less. It reads only the
    /// bytes of a packet; the caller must handle VLAN tags that the kernel stores apart from them.
    ///
    /// ```
    /// use flowgauge_core::packet::LinkType;
    /// use flowgauge_filter::Filter;
    ///
    /// let mut filter = Filter::new("icmp").unwrap();
    /// let program = filter.classic(LinkType::ETHERNET).unwrap().unwrap();
    /// // It begins with a load of the EtherType: two bytes at offset 12.
    /// assert_eq!((program[0].code, program[0].k), (0x28, 12));
    /// ```
    ///
    /// # Errors
    /// As [`Filter::prepare`].
    pub fn classic(&mut self, link: LinkType) -> Result<Option<Vec<Instruction>>, FilterError> {
        self.program(link).map(classic::translate).map_err(Clone::clone)
    }

    #[inline]
    fn program(&mut self, link: LinkType) -> Result<&Program, &FilterError> {
        let known = self.compiled.iter().position(|(known, _)| *known == link);
        let at = known.unwrap_or_else(|| self.meet(link));
        self.compiled[at].1.as_ref()
    }

    /// Compiles the expression for a new link type, and returns its index.
    #[cold]
    fn meet(&mut self, link: LinkType) -> usize {
        let compiled = (link, compile(&self.expression, link));
        // A capture may name 65,536 link types. Those that filters do not support share one entry;
        // otherwise each packet would search for its own among them.
        let unknown = |link: LinkType| HeaderOffsets::new(link).is_none();
        let shared = self.compiled.iter().position(|(met, _)| unknown(*met) && unknown(link));
        match shared {
            Some(at) => self.compiled[at] = compiled,
            None => self.compiled.push(compiled),
        }
        shared.unwrap_or(self.compiled.len() - 1)
    }
}

fn compile(expression: &str, link: LinkType) -> Result<Program, FilterError> {
    let for_link = |problem: String| FilterError::LinkType { link, problem };
    let Some(offsets) = HeaderOffsets::new(link) else {
        return Err(for_link("no filter reads its frames".to_owned()));
    };
    let compiled = lexer::tokens(expression).and_then(|tokens| {
        let mut parser = Parser::new(&tokens, Generator::new(offsets));
        let root = parser.parse()?;
        Ok(parser.generator.all.compile(root, parser.generator.steps))
    });
    compiled.map_err(|problem| match problem {
        Problem { what, link: true, .. } => for_link(what),
        Problem { place, what, .. } => {
            let position = place.unwrap_or(0);
            let rest = expression.get(position..).unwrap_or_default();
            let excerpt = rest.chars().take(EXCERPT).flat_map(char::escape_debug).collect();
            FilterError::Expression { position, problem: what, excerpt }
        }
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    /// Each packet of a capture may have another link type. Memory must not grow with their number.
    #[test]
    fn unknown_link_types_share_an_entry() {
        let mut filter = Filter::new("ip").unwrap();
        for number in (0..=u16::MAX).chain([1, 147, 148, 1]) {
            let link = LinkType(number);
            match filter.matches(link, &[], 0) {
                Ok(accepted) => assert!(!accepted || link == LinkType::IPV4, "{number}"),
                Err(FilterError::LinkType { link: found, .. }) => assert_eq!(*found, link),
                Err(error) => panic!("{error}"),
            }
        }
        let known =
            (0..=u16::MAX).filter(|&link| HeaderOffsets::new(LinkType(link)).is_some()).count();
        assert_eq!(filter.compiled.len(), known + 1);
    }
}
