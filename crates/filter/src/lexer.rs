//! The lexer: splits the text into tokens, the longest possible one at each place.

use std::net::Ipv6Addr;

use super::words::{Relation, Word, constant, keyword};
use super::{Problem, machine::Binary};

/// A token of the expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Word(Word),
    Number(u32),
    /// Two to four numbers, separated by dots.
    Ipv4(&'a str),
    Ipv6(Ipv6Addr),
    Ethernet([u8; 6]),
    /// Any other word: the name of a port or protocol, or a range of ports.
    Name(&'a str),
    End,
}

/// The longest text of an IPv6 address and of an Ethernet address.
const LONGEST_IPV6: usize = 45;
const LONGEST_ETHERNET: usize = 17;

/// The tokens of `text` with their offsets. The last one is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token<'_>)>, Problem> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.as_bytes().get(at) {
        let rest = &text[at..];
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            at += 1;
            continue;
        }
        let (token, length) = token(rest).map_err(|what| Problem::at(at, what))?;
        tokens.push((at, token));
        at += length;
    }
    tokens.push((at, Token::End));
    Ok(tokens)
}

fn token(rest: &str) -> Result<(Token<'_>, usize), String> {
    let word = word_length(rest);
    if let Some((token, length)) = address(rest)
        && length >= word
    {
        return Ok((token, length));
    }
    if word > 0 {
        return Ok((self::word(&rest[..word])?, word));
    }
    if let Some(escaped) = rest.strip_prefix('\\') {
        let end = escaped.find([' ', '!', '(', ')', '\n', '\t']).unwrap_or(escaped.len());
        if end > 0 {
            return Ok((Token::Name(&escaped[..end]), end + 1));
        }
    }
    symbol(rest).map(|(word, length)| (Token::Word(word), length)).ok_or_else(|| {
        let odd = rest.chars().next().unwrap_or_default();
        format!("unexpected character {odd:?}")
    })
}

fn word(text: &str) -> Result<Token<'_>, String> {
    Ok(if let Some(word) = keyword(text) {
        Token::Word(word)
    } else if let Some(value) = constant(text) {
        Token::Number(value)
    } else if is_number(text) {
        Token::Number(number(text)?)
    } else if is_dotted(text) {
        Token::Ipv4(text)
    } else {
        Token::Name(text)
    })
}

fn symbol(rest: &str) -> Option<(Word, usize)> {
    let bytes = rest.as_bytes();
    let two = match bytes.get(..2) {
        Some(b"&&") => Word::And,
        Some(b"||") => Word::Or,
        Some(b">=") => Word::Relation(Relation::GreaterEqual),
        Some(b"<=") => Word::Relation(Relation::LessEqual),
        Some(b"!=") => Word::Relation(Relation::NotEqual),
        Some(b"==") => Word::Relation(Relation::Equal),
        Some(b"<<") => Word::Operator(Binary::ShiftLeft),
        Some(b">>") => Word::Operator(Binary::ShiftRight),
        _ => return single(*bytes.first()?).map(|word| (word, 1)),
    };
    Some((two, 2))
}

fn single(byte: u8) -> Option<Word> {
    Some(match byte {
        b'+' => Word::Operator(Binary::Add),
        b'-' => Word::Operator(Binary::Subtract),
        b'*' => Word::Operator(Binary::Multiply),
        b'/' => Word::Operator(Binary::Divide),
        b'%' => Word::Operator(Binary::Remainder),
        b'&' => Word::Operator(Binary::And),
        b'|' => Word::Operator(Binary::Or),
        b'^' => Word::Operator(Binary::Xor),
        b'<' => Word::Relation(Relation::Less),
        b'>' => Word::Relation(Relation::Greater),
        b'=' => Word::Relation(Relation::Equal),
        b'!' => Word::Not,
        b'(' => Word::Open,
        b')' => Word::Close,
        b'[' => Word::OpenIndex,
        b']' => Word::CloseIndex,
        b':' => Word::Colon,
        _ => return None,
    })
}

/// The length of the word at the start of `rest`: letters, digits and dots, and between them dashes
/// and underscores.
fn word_length(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    if !bytes.first().is_some_and(u8::is_ascii_alphanumeric) {
        return 0;
    }
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let run = bytes.iter().take_while(|byte| inside(byte)).count();
    let ends = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'.';
    bytes[..run].iter().rposition(ends).map_or(0, |last| last + 1)
}

/// The longest address at the start of `rest`: IPv6, or Ethernet with any separator.
fn address(rest: &str) -> Option<(Token<'_>, usize)> {
    let begins = |byte: &u8| byte.is_ascii_hexdigit() || rest.starts_with("::");
    rest.as_bytes().first().filter(|byte| begins(byte))?;
    let part = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.' | b'-');
    let run = rest.bytes().take(LONGEST_IPV6).take_while(part).count();
    let separated = rest[..run].bytes().any(|byte| byte == b':');
    let ipv6 = (2..=run).rev().filter(|_| separated).find_map(|length| {
        let address = rest[..length].parse().ok()?;
        Some((Token::Ipv6(address), length))
    });
    ipv6.or_else(|| {
        (11..=run.min(LONGEST_ETHERNET)).rev().find_map(|length| {
            let address = ethernet(&rest[..length])?;
            Some((Token::Ethernet(address), length))
        })
    })
}

/// An Ethernet address: six hexadecimal bytes with one separator, three groups of four digits with
/// dots, or twelve digits.
fn ethernet(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let hex = |digits: &str| {
        let sound = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        sound.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
    };
    let groups = |separator: char| text.split(separator).count() == 6;
    if let Some(separator) = [':', '-', '.'].into_iter().find(|&separator| groups(separator)) {
        for (byte, group) in address.iter_mut().zip(text.split(separator)) {
            *byte = u8::try_from(hex(group).filter(|_| group.len() <= 2)?).ok()?;
        }
        return Some(address);
    }
    let plain = match text.len() {
        12 => hex(text)?,
        14 if text.split('.').all(|group| group.len() == 4) => hex(&text.replace('.', ""))?,
        _ => return None,
    };
    address.copy_from_slice(&plain.to_be_bytes()[2..]);
    Some(address)
}

fn is_number(text: &str) -> bool {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match hex {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn is_dotted(text: &str) -> bool {
    let parts = text.split('.');
    let numbers = parts.clone().all(|part| !part.is_empty() && is_number(part));
    numbers && (2..=4).contains(&parts.count())
}

/// A number as in C: hexadecimal after `0x`, octal after `0`.
fn number(text: &str) -> Result<u32, String> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    u32::from_str_radix(digits, radix).map_err(|_| match radix {
        8 => format!("{text} is not an octal number of 32 bits; decimal numbers begin with 1 to 9"),
        _ => format!("{text} does not fit into 32 bits"),
    })
}
