//! How long the frames are.

use std::fmt;
use std::str::FromStr;

use super::random::Random;

/// Lengths of frames on the wire, without the four bytes of the checksum that captures lack.
///
/// A frame that is too short for its headers is enlarged to them: Ethernet, IPv6 and TCP need 74
/// bytes, with UDP 62; IPv4 and TCP need 54, with UDP 42.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Every frame has this many bytes, 42 to 65,535.
    Fixed(u32),
    /// The simple Internet mix: of 12 frames, on average 7 have 64 bytes, 4 have 570, 1 has 1,518.
    Imix,
}

impl Size {
    /// The shortest and the longest fixed length.
    pub const RANGE: std::ops::RangeInclusive<u32> = 42..=65_535;

    /// The next length.
    #[inline]
    pub(super) fn draw(self, random: &mut Random) -> u32 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Imix => match random.below(12) {
                0..7 => 64,
                7..11 => 570,
                _ => 1518,
            },
        }
    }
}

/// Text that is no [`Size`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid frame size '{0}'; write 'imix' or a number of bytes from 42 to 65535")]
pub struct SizeError(String);

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        match text.parse() {
            _ if text == "imix" => Ok(Self::Imix),
            Ok(bytes) if Self::RANGE.contains(&bytes) => Ok(Self::Fixed(bytes)),
            _ => Err(SizeError(text.to_owned())),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::Imix => f.write_str("imix"),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::super::random::Stream;
    use super::*;

    #[test]
    fn text_is_read_and_written() {
        for (text, size) in
            [("64", Size::Fixed(64)), ("1518", Size::Fixed(1518)), ("imix", Size::Imix)]
        {
            assert_eq!(text.parse::<Size>().unwrap(), size);
            assert_eq!(size.to_string(), text);
        }
        for text in ["", "IMIX", "41", "65536", "-1", "64.0"] {
            assert_eq!(text.parse::<Size>().unwrap_err(), SizeError(text.to_owned()));
        }
    }

    /// Shares within 5 standard errors.
    #[test]
    fn imix_is_seven_four_one() {
        let mut random = Random::new(9, Stream::Sizes);
        let drawn: Vec<u32> = (0..120_000).map(|_| Size::Imix.draw(&mut random)).collect();
        for (bytes, expected) in [(64, 70_000.0_f64), (570, 40_000.0), (1518, 10_000.0)] {
            let count = drawn.iter().filter(|&&drawn| drawn == bytes).count() as f64;
            let error = (expected * (1.0 - expected / 120_000.0)).sqrt();
            assert!((count - expected).abs() < 5.0 * error, "{bytes} bytes: {count}");
        }
    }
}
