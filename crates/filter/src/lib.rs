//! Filters in the language of tcpdump, pcap-filter(7).
//!
//! An expression is compiled once per link type, in safe code and without libpcap, into tests
//! that jump only forward. It accepts the packets that `tcpdump -O -r` with libpcap 1.10 accepts;
//! `tests/libpcap.rs` compares the two. tcpdump's optimizer, which `-O` turns off, may
//! reorder tests, so that without `-O` it may judge a packet differently which was cut within the
//! bytes that the expression asks for. As in tcpdump, a packet cut there is rejected, even under
//! `not`; `vlan`, `mpls` and `pppoes` change where all that follows in the text looks; ports are
//! not looked for behind IPv6 extension headers; and `ip broadcast` does not know the netmask.
//!
//! What differs, besides the texts of errors:
//! - `protochain`, `geneve`, names of hosts and networks, `DECnet` addresses, `byte` with `&` or
//!   `|`, negative constant offsets and words for link types that are not read are errors.
//! - An expression that no packet of a link type can satisfy is no error: it rejects them all.
//! - With link type 0 the address family is taken in either byte order.

#![forbid(unsafe_code)]

mod arithmetic;
mod classic;
mod condition;
mod framing;
mod identifier;
mod layout;
mod lexer;
mod machine;
mod names;
mod parser;
mod primitive;
mod shorten;
mod words;

use flowgauge_core::packet::LinkType;

pub use classic::Instruction;
use layout::Layout;
use machine::Program;
use parser::Parser;
use primitive::Generator;

/// The longest expression in bytes; some ten thousand addresses.
pub const LONGEST_EXPRESSION: usize = 256 * 1024;

/// How much of an expression an error repeats.
const EXCERPT: usize = 60;

/// Why a filter cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The expression is wrong for every link type.
    #[error("filter, character {}: {problem}, at '{excerpt}'; see pcap-filter(7)", .position + 1)]
    Expression {
        /// Offset in the expression, in bytes.
        position: usize,
        /// What is wrong there.
        problem: String,
        /// The expression from there on, escaped and shortened.
        excerpt: String,
    },
    /// The expression is longer than [`LONGEST_EXPRESSION`].
    #[error("the filter has {0} bytes; shorten it to {LONGEST_EXPRESSION} or less")]
    TooLong(usize),
    /// The expression cannot be answered for frames of this link type.
    #[error(
        "the filter does not support link type {link}: {problem}; change the filter, or leave \
         out such captures"
    )]
    LinkType {
        /// The link type.
        link: LinkType,
        /// What the frames lack.
        problem: String,
    },
}

/// What is wrong with an expression, and where, once that is known.
#[derive(Debug)]
struct Problem {
    place: Option<usize>,
    what: String,
    /// Only frames of this link type lack something.
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

/// A filter expression, compiled for every link type that it has met.
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
    /// A filter of this expression; the empty one accepts every packet. Names of ports and
    /// protocols are looked up in `/etc/services` and `/etc/protocols`; nothing is ever asked of
    /// the network.
    ///
    /// # Errors
    /// When the expression is too long, or wrong whatever the link type.
    pub fn new(expression: &str) -> Result<Self, FilterError> {
        if expression.len() > LONGEST_EXPRESSION {
            return Err(FilterError::TooLong(expression.len()));
        }
        let mut filter = Self { expression: expression.to_owned(), compiled: Vec::new() };
        // What one link type cannot answer, another may, so that the rest of the text is read.
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

    /// Compiles the expression for a link type, so that [`Filter::matches`] need not.
    ///
    /// # Errors
    /// When frames of this link type cannot be asked what the expression asks, or when filters do
    /// not know the link type. (tcpdump refuses such a capture.)
    pub fn prepare(&mut self, link: LinkType) -> Result<(), FilterError> {
        self.program(link).map(|_| ()).map_err(Clone::clone)
    }

    /// Whether a frame is accepted. The first frame of every link type compiles the expression;
    /// after that the cost is linear in the tests that decide the frame, without allocation.
    ///
    /// # Errors
    /// As [`Filter::prepare`], for every frame of such a link type.
    #[inline]
    pub fn matches(
        &mut self,
        link: LinkType,
        captured: &[u8],
        wire: u32,
    ) -> Result<bool, &FilterError> {
        self.program(link).map(|program| program.accepts(captured, wire))
    }

    /// The expression for frames of this link type as a program of classic BPF, so that a kernel
    /// can reject packets before they are handed over; `None` where it cannot be one.
    ///
    /// The program may accept more than [`Filter::matches`], but never less. It sees the bytes of a
    /// packet only: a VLAN tag that the kernel keeps apart from them is up to the caller.
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

    /// Compiles the expression for a link type that was not met yet, and says where it stands.
    #[cold]
    fn meet(&mut self, link: LinkType) -> usize {
        let compiled = (link, compile(&self.expression, link));
        // A capture may name 65,536 link types. All that filters do not know share one place, for
        // else each packet would search for its own among them.
        let unknown = |link: LinkType| Layout::new(link).is_none();
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
    let Some(layout) = Layout::new(link) else {
        return Err(for_link("filters do not support it".to_owned()));
    };
    let compiled = lexer::tokens(expression).and_then(|tokens| {
        let mut parser = Parser::new(&tokens, Generator::new(layout));
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

    /// Each packet of a capture may be of another link type: what is kept must not grow with them.
    #[test]
    fn unknown_link_types_share_a_place() {
        let mut filter = Filter::new("ip").unwrap();
        for number in (0..=u16::MAX).chain([1, 147, 148, 1]) {
            let link = LinkType(number);
            match filter.matches(link, &[], 0) {
                Ok(accepted) => assert!(!accepted || link == LinkType::IPV4, "{number}"),
                Err(FilterError::LinkType { link: found, .. }) => assert_eq!(*found, link),
                Err(error) => panic!("{error}"),
            }
        }
        let known = (0..=u16::MAX).filter(|&link| Layout::new(LinkType(link)).is_some()).count();
        assert_eq!(filter.compiled.len(), known + 1);
    }
}
