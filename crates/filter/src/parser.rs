//! The parser: from tokens to conditions, primitive by primitive in the order of the text.
//!
//! `and` and `or` have equal precedence, from left to right; `not` binds more tightly. An
//! identifier without qualifiers inherits those of the primitive before it: `port 80 or 443`.

use flowgauge_core::unknown::nearest;

use super::Problem;
use super::arithmetic::Arithmetic;
use super::condition::{Conditions, Node};
use super::lexer::Token;
use super::machine::{Binary, Compare};
use super::offsets::carried;
use super::primitive::Generator;
use super::words::{Direction, Kind, Protocol, Word};

/// Maximum nesting of parentheses, brackets and signs.
const DEEPEST: usize = 100;

/// The description of a primitive in errors.
const PRIMITIVE: &str = "a primitive such as 'host 10.0.0.1', 'port 53' or 'tcp'";

/// Words that are often mistyped.
const FREQUENT: [&str; 18] = [
    "port",
    "host",
    "net",
    "src",
    "dst",
    "and",
    "or",
    "not",
    "tcp",
    "udp",
    "icmp",
    "ip6",
    "arp",
    "vlan",
    "proto",
    "portrange",
    "greater",
    "less",
];

/// The qualifiers before an identifier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Qualifiers {
    pub(super) protocol: Option<Protocol>,
    pub(super) direction: Option<Direction>,
    pub(super) kind: Option<Kind>,
}

/// The qualifiers that the next identifier inherits, if the last primitive had any.
type Inherited = Option<Qualifiers>;

/// The contents of parentheses.
enum Group {
    Condition(Node),
    Arithmetic(Arithmetic),
}

pub(super) struct Parser<'a> {
    tokens: &'a [(usize, Token<'a>)],
    at: usize,
    nesting: usize,
    pub(super) generator: Generator,
}

impl<'a> Parser<'a> {
    /// A parser of tokens that end with [`Token::End`].
    pub(super) fn new(tokens: &'a [(usize, Token<'a>)], generator: Generator) -> Self {
        Self { tokens, at: 0, nesting: 0, generator }
    }

    /// The condition of the whole text.
    pub(super) fn parse(&mut self) -> Result<Node, Problem> {
        if self.peek() == Token::End {
            return Ok(self.generator.all.constant(true));
        }
        let node = self.expression(None)?;
        if self.peek() != Token::End {
            return Err(self.unexpected("'and' or 'or'"));
        }
        Ok(node)
    }

    fn look(&self, ahead: usize) -> Token<'a> {
        self.tokens.get(self.at + ahead).map_or(Token::End, |&(_, token)| token)
    }

    pub(super) fn peek(&self) -> Token<'a> {
        self.look(0)
    }

    pub(super) fn place(&self) -> usize {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |&(place, _)| place)
    }

    pub(super) fn skip(&mut self) {
        self.at += 1;
    }

    pub(super) fn take(&mut self, word: Word) -> bool {
        let taken = self.peek() == Token::Word(word);
        self.at += usize::from(taken);
        taken
    }

    fn expect(&mut self, word: Word, name: &str) -> Result<(), Problem> {
        if self.take(word) { Ok(()) } else { Err(self.unexpected(name)) }
    }

    pub(super) fn unexpected(&self, wanted: &str) -> Problem {
        let what = match self.peek() {
            Token::Word(Word::Unsupported(reason)) => reason.to_owned(),
            Token::End => format!("expected {wanted}, but the filter ends"),
            Token::Name(name) => match nearest(name, FREQUENT) {
                Some(meant) => format!("expected {wanted} (did you mean '{meant}'?)"),
                None => format!("expected {wanted}"),
            },
            _ => format!("expected {wanted}"),
        };
        Problem::at(self.place(), what)
    }

    fn nested<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        self.nesting += 1;
        if self.nesting > DEEPEST {
            let what = format!("nested more than {DEEPEST} deep");
            return Err(Problem::at(self.place(), what));
        }
        let result = inner(self);
        self.nesting -= 1;
        result
    }

    /// Terms and identifiers joined by `and` and `or`.
    fn expression(&mut self, inherited: Inherited) -> Result<Node, Problem> {
        let mut last = inherited;
        let first = self.term(&mut last)?;
        self.rest_of_expression(first, last)
    }

    fn rest_of_expression(&mut self, mut node: Node, mut last: Inherited) -> Result<Node, Problem> {
        while let Some(join) = self.join() {
            let next = if self.at_identifier() { self.id(last)? } else { self.term(&mut last)? };
            node = join(&mut self.generator.all, node, next);
        }
        Ok(node)
    }

    /// Takes an `and` or `or`, if one follows, and returns the function that joins its two sides.
    fn join(&mut self) -> Option<fn(&mut Conditions, Node, Node) -> Node> {
        if self.take(Word::And) {
            Some(Conditions::and)
        } else if self.take(Word::Or) {
            Some(Conditions::or)
        } else {
            None
        }
    }

    /// Whether arithmetic follows that does not begin with a parenthesis.
    fn at_arithmetic(&self) -> bool {
        match self.peek() {
            Token::Word(Word::Protocol(_)) => self.look(1) == Token::Word(Word::OpenIndex),
            Token::Number(_) | Token::Word(Word::Length | Word::Operator(Binary::Subtract)) => true,
            _ => false,
        }
    }

    /// Whether an identifier follows, not a primitive: after any parentheses and `not`, a name, an
    /// address, or a number without arithmetic after it.
    fn at_identifier(&self) -> bool {
        let (mut ahead, mut open) = (0, 0usize);
        loop {
            match self.look(ahead) {
                Token::Word(Word::Open) => open += 1,
                Token::Word(Word::Not) => {}
                Token::Name(_) | Token::Ipv4(_) | Token::Ipv6(_) | Token::Ethernet(_) => {
                    return true;
                }
                Token::Number(_) => break,
                Token::Word(_) | Token::End => return false,
            }
            ahead += 1;
        }
        ahead += 1;
        while open > 0 && self.look(ahead) == Token::Word(Word::Close) {
            ahead += 1;
            open -= 1;
        }
        !matches!(self.look(ahead), Token::Word(Word::Operator(_) | Word::Relation(_)))
    }

    /// Takes any number of `not`. Returns whether their number is odd.
    fn nots(&mut self) -> bool {
        let mut odd = false;
        while self.take(Word::Not) {
            odd = !odd;
        }
        odd
    }

    fn negate_if(&mut self, negated: bool, node: Node) -> Node {
        if negated { self.generator.all.not(node) } else { node }
    }

    /// A primitive or an expression in parentheses. Sets `last` to the qualifiers that the next
    /// identifier inherits.
    fn term(&mut self, last: &mut Inherited) -> Result<Node, Problem> {
        let negated = self.nots();
        let node = match self.peek() {
            Token::Word(Word::Open) => match self.group(*last)? {
                Group::Condition(node) => node,
                Group::Arithmetic(left) => {
                    *last = None;
                    self.comparison(left)?
                }
            },
            _ if self.at_arithmetic() => {
                *last = None;
                self.arithmetic_comparison()?
            }
            _ => self.primitive(last)?,
        };
        Ok(self.negate_if(negated, node))
    }

    /// `( … )`: a condition or arithmetic.
    fn group(&mut self, inherited: Inherited) -> Result<Group, Problem> {
        self.expect(Word::Open, "'('")?;
        let group = self.nested(|this| this.inside(inherited))?;
        self.expect(Word::Close, "')'")?;
        Ok(group)
    }

    fn inside(&mut self, inherited: Inherited) -> Result<Group, Problem> {
        let left = match self.peek() {
            Token::Word(Word::Open) => match self.group(inherited)? {
                Group::Condition(node) => {
                    return self.rest_of_expression(node, inherited).map(Group::Condition);
                }
                Group::Arithmetic(left) => self.arithmetic_from(left, 0)?,
            },
            _ if self.at_arithmetic() => self.arithmetic(0)?,
            _ => return self.expression(inherited).map(Group::Condition),
        };
        if self.peek() == Token::Word(Word::Close) {
            return Ok(Group::Arithmetic(left));
        }
        let first = self.relation(left)?;
        self.rest_of_expression(first, None).map(Group::Condition)
    }

    fn arithmetic_comparison(&mut self) -> Result<Node, Problem> {
        let left = self.arithmetic(0)?;
        self.relation(left)
    }

    /// The rest of a comparison after arithmetic in parentheses.
    fn comparison(&mut self, left: Arithmetic) -> Result<Node, Problem> {
        let left = self.arithmetic_from(left, 0)?;
        self.relation(left)
    }

    fn relation(&mut self, left: Arithmetic) -> Result<Node, Problem> {
        let Token::Word(Word::Relation(relation)) = self.peek() else {
            return Err(self.unexpected("a comparison such as '=' or '>'"));
        };
        self.at += 1;
        let right = self.arithmetic(0)?;
        Ok(self.generator.relation(relation, left, right))
    }

    fn arithmetic(&mut self, weakest: u8) -> Result<Arithmetic, Problem> {
        let left = self.nested(Self::operand)?;
        self.arithmetic_from(left, weakest)
    }

    /// Continues `left` with operators that bind at least as tightly as `weakest`.
    fn arithmetic_from(
        &mut self,
        mut left: Arithmetic,
        weakest: u8,
    ) -> Result<Arithmetic, Problem> {
        while let Token::Word(Word::Operator(operator)) = self.peek() {
            // `%` and `^` have no precedence in the language: their right operand is all that
            // follows.
            let (rank, right) = match operator {
                Binary::Remainder | Binary::Xor => (u8::MAX, 0),
                Binary::Or => (0, 1),
                Binary::And => (1, 2),
                Binary::ShiftLeft | Binary::ShiftRight => (2, 3),
                Binary::Add | Binary::Subtract => (3, 4),
                Binary::Multiply | Binary::Divide => (4, 5),
            };
            if rank < weakest {
                break;
            }
            let place = self.place();
            self.at += 1;
            let right = self.nested(|this| this.arithmetic(right))?;
            let result = self.generator.binary(operator, left, right);
            left = result.map_err(|problem| problem.or_at(place))?;
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<Arithmetic, Problem> {
        let place = self.place();
        match self.peek() {
            Token::Number(value) => {
                self.at += 1;
                Ok(self.generator.constant(value))
            }
            Token::Word(Word::Length) => {
                self.at += 1;
                Ok(self.generator.wire_length())
            }
            Token::Word(Word::Operator(Binary::Subtract)) => {
                self.at += 1;
                let inner = self.arithmetic(5)?;
                Ok(self.generator.negate(inner))
            }
            Token::Word(Word::Open) => {
                self.at += 1;
                let inner = self.arithmetic(0)?;
                self.expect(Word::Close, "')'")?;
                Ok(inner)
            }
            Token::Word(Word::Protocol(protocol)) => {
                self.at += 1;
                self.expect(Word::OpenIndex, "'['")?;
                let index = self.arithmetic(0)?;
                let width = if self.take(Word::Colon) { self.number("a size")? } else { 1 };
                self.expect(Word::CloseIndex, "']'")?;
                let loaded = self.generator.load(protocol, index, width);
                loaded.map_err(|problem| problem.or_at(place))
            }
            _ => Err(self.unexpected("a number, 'len' or an access such as 'tcp[13]'")),
        }
    }

    pub(super) fn number(&mut self, wanted: &str) -> Result<u32, Problem> {
        let Token::Number(value) = self.peek() else { return Err(self.unexpected(wanted)) };
        self.at += 1;
        Ok(value)
    }

    /// A number in any parentheses, if one follows.
    fn optional_number(&mut self) -> Result<Option<u32>, Problem> {
        let mut open = 0;
        while self.look(open) == Token::Word(Word::Open) {
            open += 1;
        }
        let Token::Number(value) = self.look(open) else { return Ok(None) };
        self.at += open + 1;
        for _ in 0..open {
            self.expect(Word::Close, "')'")?;
        }
        Ok(Some(value))
    }

    /// An identifier, or several in parentheses, under these qualifiers.
    fn id(&mut self, qualifiers: Inherited) -> Result<Node, Problem> {
        let negated = self.nots();
        let node = if self.take(Word::Open) {
            let node = self.nested(|this| this.ids(qualifiers))?;
            self.expect(Word::Close, "')'")?;
            node
        } else {
            let Some(qualifiers) = qualifiers else {
                return Err(self.unexpected("a qualifier such as 'host' or 'port'"));
            };
            self.identifier(qualifiers)?
        };
        Ok(self.negate_if(negated, node))
    }

    fn ids(&mut self, qualifiers: Inherited) -> Result<Node, Problem> {
        let mut node = self.id(qualifiers)?;
        while let Some(join) = self.join() {
            let next = self.id(qualifiers)?;
            node = join(&mut self.generator.all, node, next);
        }
        Ok(node)
    }

    fn primitive(&mut self, last: &mut Inherited) -> Result<Node, Problem> {
        let place = self.place();
        let protocol = match self.peek() {
            Token::Word(Word::Protocol(protocol)) => {
                self.at += 1;
                Some(protocol)
            }
            _ => None,
        };
        if let Some(qualifiers) = self.qualifiers(protocol) {
            *last = Some(qualifiers);
            return self.id(*last);
        }
        *last = None;
        self.keyword_primitive(protocol).map_err(|problem| problem.or_at(place))
    }

    /// The direction and kind after `protocol`, if at least one follows.
    fn qualifiers(&mut self, protocol: Option<Protocol>) -> Option<Qualifiers> {
        let direction = match (self.peek(), self.look(1), self.look(2)) {
            (
                Token::Word(one @ (Word::Source | Word::Destination)),
                Token::Word(join @ (Word::And | Word::Or)),
                Token::Word(other @ (Word::Source | Word::Destination)),
            ) if one != other => {
                self.at += 3;
                Some(if join == Word::And { Direction::Both } else { Direction::Either })
            }
            (Token::Word(Word::Source), ..) => {
                self.at += 1;
                Some(Direction::Source)
            }
            (Token::Word(Word::Destination), ..) => {
                self.at += 1;
                Some(Direction::Destination)
            }
            _ => None,
        };
        let kind = match self.peek() {
            Token::Word(Word::Kind(Kind::Protocol)) if direction.is_some() => None,
            Token::Word(Word::Kind(kind)) => {
                self.at += 1;
                Some(kind)
            }
            _ => None,
        };
        let any = direction.is_some() || kind.is_some();
        any.then_some(Qualifiers { protocol, direction, kind })
    }

    /// A primitive without an identifier.
    fn keyword_primitive(&mut self, protocol: Option<Protocol>) -> Result<Node, Problem> {
        if self.take(Word::Broadcast) {
            return self.generator.broadcast(protocol);
        }
        if self.take(Word::Multicast) {
            return self.generator.multicast(protocol);
        }
        if let Some(protocol) = protocol {
            return self.generator.is(protocol);
        }
        let Token::Word(word) = self.peek() else { return Err(self.unexpected(PRIMITIVE)) };
        self.at += 1;
        match word {
            Word::Less => {
                let value = self.number("a length")?;
                let longer = self.generator.length(Compare::Greater, value);
                Ok(self.generator.all.not(longer))
            }
            Word::Greater => {
                let value = self.number("a length")?;
                Ok(self.generator.length(Compare::AtLeast, value))
            }
            Word::Byte => {
                let offset = self.number("an offset")?;
                let Token::Word(Word::Relation(relation)) = self.peek() else {
                    return Err(self.unexpected("'=', '<' or '>'"));
                };
                self.at += 1;
                let value = self.number("a value")?;
                self.generator.byte(offset, relation, value)
            }
            Word::Outbound => self.generator.outbound(),
            Word::Inbound => {
                let outbound = self.generator.outbound()?;
                Ok(self.generator.all.not(outbound))
            }
            Word::InterfaceIndex => {
                let index = self.number("an interface index")?;
                self.generator.interface_index(index)
            }
            Word::Vlan => {
                let tag = self.optional_number()?;
                self.generator.vlan(tag)
            }
            Word::Mpls => {
                let label = self.optional_number()?;
                self.generator.mpls(label)
            }
            Word::PppoeDiscovery => self.generator.is(Protocol::Network(carried::PPPOE_DISCOVERY)),
            Word::PppoeSession => {
                let session = self.optional_number()?;
                self.generator.pppoe_session(session)
            }
            Word::Llc => {
                let kind = match self.peek() {
                    Token::Name(name) => Some(name),
                    Token::Word(Word::ReceiverNotReady) => Some("rnr"),
                    _ => None,
                };
                self.at += usize::from(kind.is_some());
                self.generator.llc(kind)
            }
            _ => {
                self.at -= 1;
                Err(self.unexpected(PRIMITIVE))
            }
        }
    }
}
