//! The stored form of summaries: a [`Writer`] and a [`Reader`] of numbers, keys and sizes.
//!
//! All numbers are little-endian. A reader never reads past the end, and does not allocate. Methods
//! for single fields are not inlined, since every summary calls them.

use bytemuck::Zeroable;
use flowgauge_kernel::SeedId;

use super::BuildError;
use crate::key::FlowKey;
use crate::sorting::order_of_bytes;
use crate::terms::{Size, Threshold};

/// Why bytes are not a summary. Boxed to one word, since most code only passes it on.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DecodeError(Box<DecodeErrorKind>);

impl DecodeError {
    /// What is wrong.
    pub fn kind(&self) -> &DecodeErrorKind {
        &self.0
    }
}

impl From<DecodeErrorKind> for DecodeError {
    #[cold]
    #[inline(never)]
    fn from(kind: DecodeErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

impl From<BuildError> for DecodeError {
    fn from(error: BuildError) -> Self {
        DecodeErrorKind::from(error).into()
    }
}

/// What is wrong with bytes that should be a summary.
#[derive(Debug, thiserror::Error)]
pub enum DecodeErrorKind {
    /// The bytes end too early.
    #[error("truncated in {field}, at offset {offset}")]
    Cut {
        /// The missing field.
        field: &'static str,
        /// The offset where it begins.
        offset: usize,
    },
    /// A field has an invalid value.
    #[error("invalid {field} at offset {offset}: {reason}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The offset where it begins.
        offset: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// The summary was made under a seed file.
    #[error("the summary was made with the seed file {needed}, and {given}; give that file")]
    SeedFile {
        /// The identity of the file's seed.
        needed: SeedId,
        /// What was given instead.
        given: &'static str,
    },
    /// The summary that the bytes describe cannot be built.
    #[error("invalid parameters of the summary: {0}")]
    Build(#[from] BuildError),
}

/// A number of fixed size in the stored form.
pub trait Number: Copy + Zeroable {
    /// Appends it.
    fn write(self, out: &mut Vec<u8>);
    /// Reads it from a slice of exactly its size.
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Number for $number {
            #[inline(always)]
            fn write(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline(always)]
            fn read(bytes: &[u8]) -> Self {
                let mut number = [0; size_of::<Self>()];
                number.copy_from_slice(bytes);
                Self::from_le_bytes(number)
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, i8, i16, i32, i64, f64);

/// Appends fields to the stored form.
///
/// ```
/// use flowgauge_core::summary::codec::Writer;
///
/// let mut out = Writer::default();
/// out.number(258u32);
/// out.bytes(b"abc");
/// let stored = out.checked();
/// assert_eq!(&stored[..4], &[2, 1, 0, 0]);
/// // A length precedes the bytes, and a CRC-32 ends the form.
/// assert_eq!(stored.len(), 4 + (8 + 3) + 4);
/// ```
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    key_bytes: usize,
}

impl Writer {
    /// A writer that overwrites `room` and holds up to `most` bytes without reallocation.
    pub fn over(mut room: Vec<u8>, most: usize) -> Self {
        room.clear();
        room.reserve_exact(most);
        Self { bytes: room, key_bytes: 0 }
    }

    /// The bytes written.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes written, followed by their CRC-32.
    pub fn checked(mut self) -> Vec<u8> {
        self.check(0);
        self.bytes
    }

    /// Appends the CRC-32 of all bytes from `start` on.
    pub(crate) fn check(&mut self, start: usize) {
        let checksum = crc32fast::hash(&self.bytes[start..]);
        self.number(checksum);
    }

    /// Bytes written so far.
    pub(crate) fn written(&self) -> usize {
        self.bytes.len()
    }

    /// Sets the length of keys to `key_bytes` canonical bytes from here on.
    pub(crate) fn write_keys(&mut self, key_bytes: usize) {
        self.key_bytes = key_bytes;
    }

    /// Canonical bytes of a key.
    pub(crate) fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Appends a number.
    #[inline(never)]
    pub fn number(&mut self, number: impl Number) {
        number.write(&mut self.bytes);
    }

    /// Appends a number in as few bytes as it needs: 7 bits in each, from the lowest on, and a bit
    /// that says whether another byte follows (LEB128).
    #[inline(always)]
    pub(crate) fn short(&mut self, mut number: u64) {
        while number >= 1 << 7 {
            self.bytes.push(number as u8 | 1 << 7);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// Appends numbers without their count, which the reader knows.
    pub fn numbers<N: Number>(&mut self, numbers: &[N]) {
        self.each(numbers.iter().copied());
    }

    /// Appends the numbers of an iterator, whose count the reader knows.
    pub(crate) fn each<N: Number>(&mut self, numbers: impl ExactSizeIterator<Item = N>) {
        self.bytes.reserve(numbers.len() * size_of::<N>());
        numbers.for_each(|number| number.write(&mut self.bytes));
    }

    /// Appends a key. It copies as many bytes as the longest key has, since a copy of constant length
    /// is faster.
    #[inline(never)]
    pub fn key<K: FlowKey>(&mut self, key: K) {
        let end = self.bytes.len() + self.key_bytes;
        self.bytes.extend_from_slice(key.canonical(K::BYTES));
        self.bytes.truncate(end);
    }

    /// Appends a length and so many bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends packets and bytes.
    #[inline(never)]
    pub fn size(&mut self, size: Size) {
        self.numbers(&[size.packets, size.bytes]);
    }

    /// Appends a threshold.
    pub fn threshold(&mut self, threshold: Threshold) {
        match threshold {
            Threshold::Share(share) => {
                self.number(0u8);
                self.number(share);
            }
            Threshold::Weight(weight) => {
                self.number(1u8);
                self.number(weight);
            }
        }
    }

    /// Appends the records that `write` writes, each of `width` bytes, sorted by their bytes: so
    /// equal contents have equal bytes, whatever their order. Takes up to 20 bytes of memory per record.
    pub fn sorted(&mut self, width: usize, write: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        write(self);
        sort_records(&mut self.bytes[start..], width);
    }

    /// Appends the length of what `write` writes, and then that.
    pub fn measured(&mut self, write: impl FnOnce(&mut Self)) {
        let length_at = self.bytes.len();
        self.number(0u64);
        write(self);
        let length = (self.bytes.len() - length_at - size_of::<u64>()) as u64;
        self.bytes[length_at..][..size_of::<u64>()].copy_from_slice(&length.to_le_bytes());
    }

    /// Appends a text of up to 255 bytes, with its length in one byte.
    pub(crate) fn text(&mut self, text: &str) {
        debug_assert!(text.len() < 256);
        self.bytes.push(text.len() as u8);
        self.bytes.extend_from_slice(text.as_bytes());
    }
}

/// Sorts fewer than 2³² records of `width` bytes.
fn sort_records(records: &mut [u8], width: usize) {
    let at = |number: usize| number * width..(number + 1) * width;
    // The record that goes to each place.
    let mut from = order_of_bytes(records.len() / width, &|number| &records[at(number)]);
    let mut first = vec![0; width];
    for start in 0..from.len() as u32 {
        if from[start as usize] == start {
            continue;
        }
        // Each record of a cycle moves to the place before it; the first record closes the cycle.
        first.copy_from_slice(&records[at(start as usize)]);
        let mut place = start;
        loop {
            let next = std::mem::replace(&mut from[place as usize], place);
            if next == start {
                break;
            }
            records.copy_within(at(next as usize), place as usize * width);
            place = next;
        }
        records[at(place as usize)].copy_from_slice(&first);
    }
}

/// Takes fields from the stored form, and never reads past its end.
///
/// ```
/// use flowgauge_core::summary::codec::{DecodeError, Reader};
///
/// let mut from = Reader::new(&[2, 1, 0, 0, 7]);
/// assert_eq!(from.number::<u32>("total")?, 258);
/// let error = from.number::<u16>("rows").unwrap_err();
/// assert_eq!(error.to_string(), "truncated in rows, at offset 4");
/// # Ok::<(), DecodeError>(())
/// ```
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
    key_bytes: usize,
    /// The version of the form.
    version: u16,
    /// Whether the checksum of the bytes around these holds.
    is_checked: bool,
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from their start.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0, key_bytes: 0, version: u16::MAX, is_checked: false }
    }

    /// As [`Self::new`], for a part of bytes whose checksum was right: [`Self::check`] does not compute
    /// that of the part.
    pub(crate) fn inside(bytes: &'a [u8]) -> Self {
        Self { is_checked: true, ..Self::new(bytes) }
    }

    /// Sets the version of the form; without this it is the newest.
    pub(crate) fn expect_version(&mut self, version: u16) {
        self.version = version;
    }

    /// Whether cells of sketches are stored as wide as they are in memory, as they once were.
    pub(crate) fn has_wide_cells(&self) -> bool {
        self.version <= 3
    }

    /// Whether counts of exact tables are stored as wide as they are in memory, as they once were.
    pub(crate) fn has_wide_counts(&self) -> bool {
        self.version <= 4
    }

    /// Whether registers of HyperLogLog follow from a hash of the digests, as they once did.
    pub(crate) fn is_rehashed(&self) -> bool {
        self.version <= 5
    }

    /// Whether all bytes have been read.
    pub fn is_at_end(&self) -> bool {
        self.offset == self.bytes.len()
    }

    /// Bytes not read yet.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// The bytes read since `left` bytes were not read yet.
    pub(crate) fn read_since(&self, left: usize) -> &'a [u8] {
        &self.bytes[self.bytes.len() - left..self.offset]
    }

    /// Canonical bytes of a key.
    pub(crate) fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Sets the length of keys to `key_bytes` canonical bytes from here on.
    pub(crate) fn expect_keys(&mut self, key_bytes: usize) {
        self.key_bytes = key_bytes;
    }

    /// Takes `count` bytes.
    ///
    /// # Errors
    /// When the bytes end.
    pub(crate) fn take(
        &mut self,
        count: usize,
        field: &'static str,
    ) -> Result<&'a [u8], DecodeError> {
        let rest = &self.bytes[self.offset..];
        let taken = rest.get(..count).ok_or(DecodeErrorKind::Cut { field, offset: self.offset })?;
        self.offset += count;
        Ok(taken)
    }

    /// Takes a number.
    ///
    /// # Errors
    /// When the bytes end.
    #[inline(never)]
    pub fn number<N: Number>(&mut self, field: &'static str) -> Result<N, DecodeError> {
        Ok(N::read(self.take(size_of::<N>(), field)?))
    }

    /// Takes a threshold.
    ///
    /// # Errors
    /// When the bytes end, or it is neither share nor weight.
    pub fn threshold(&mut self) -> Result<Threshold, DecodeError> {
        match self.number::<u8>("kind of threshold")? {
            0 => {
                let share = self.number("threshold")?;
                if (0.0..=1.0).contains(&share) {
                    Ok(Threshold::Share(share))
                } else {
                    Err(self.invalid("threshold", 8, "a share is from 0 to 1"))
                }
            }
            1 => Ok(Threshold::Weight(self.number("threshold")?)),
            _ => Err(self.invalid("kind of threshold", 1, "it is neither share nor weight")),
        }
    }

    /// Takes a number that [`Writer::short`] wrote.
    ///
    /// # Errors
    /// When the bytes end, or the number is longer than necessary or exceeds 64 bits.
    #[inline(always)]
    pub(crate) fn short(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        match self.bytes[self.offset..] {
            [byte, ..] if byte < 1 << 7 => {
                self.offset += 1;
                Ok(byte.into())
            }
            [low, high @ 1..0x80, ..] => {
                self.offset += 2;
                Ok(u64::from(high) << 7 | u64::from(low & 0x7f))
            }
            _ => self.short_of_more(field),
        }
    }

    /// [`Self::short`] of any length.
    #[inline(never)]
    fn short_of_more(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte: u8 = self.number(field)?;
            let bits = u64::from(byte & !(1 << 7));
            number |= bits << shift;
            if byte < 1 << 7 {
                if number >> shift != bits || bits == 0 && shift > 0 {
                    break;
                }
                return Ok(number);
            }
        }
        Err(self.invalid(field, 1, "it is longer than necessary, or exceeds 64 bits"))
    }

    /// Takes as many numbers as `out` has.
    ///
    /// # Errors
    /// When the bytes end.
    pub fn numbers<N: Number>(
        &mut self,
        field: &'static str,
        out: &mut [N],
    ) -> Result<(), DecodeError> {
        let numbers = self.each(field, out.len())?;
        out.iter_mut().zip(numbers).for_each(|(out, number)| *out = number);
        Ok(())
    }

    /// Takes `count` numbers.
    ///
    /// # Errors
    /// When the bytes end.
    pub(crate) fn each<N: Number>(
        &mut self,
        field: &'static str,
        count: usize,
    ) -> Result<impl Iterator<Item = N> + use<'a, N>, DecodeError> {
        let bytes = self.take(count * size_of::<N>(), field)?;
        Ok(bytes.chunks_exact(size_of::<N>()).map(N::read))
    }

    /// Takes a count of following items, at most `most`.
    ///
    /// # Errors
    /// When the bytes end, or the number is larger.
    #[inline(never)]
    pub fn count(&mut self, field: &'static str, most: usize) -> Result<usize, DecodeError> {
        let count = self.number::<u64>(field)?;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= most)
            .ok_or_else(|| self.invalid(field, size_of::<u64>(), "it exceeds the available room"))
    }

    /// Takes a key.
    ///
    /// # Errors
    /// When the bytes end.
    pub fn key<K: FlowKey>(&mut self, field: &'static str) -> Result<K, DecodeError> {
        let bytes = self.take(self.key_bytes, field)?;
        let key = K::from_canonical(bytes);
        key.ok_or_else(|| self.invalid(field, self.key_bytes, "it is not a key"))
    }

    /// Takes a flag: a byte that is 0 or 1.
    ///
    /// # Errors
    /// When the bytes end, or the byte is another number.
    #[inline(never)]
    pub fn flag(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        match self.number::<u8>(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.invalid(field, 1, "it is neither 0 nor 1")),
        }
    }

    /// Takes a key that follows the one `before` in the order of [`Writer::sorted`], so that no key
    /// is there twice.
    #[inline(never)]
    pub(crate) fn next_key<K: FlowKey>(
        &mut self,
        field: &'static str,
        before: &mut Option<K>,
    ) -> Result<K, DecodeError> {
        let key: K = self.key(field)?;
        if before.replace(key).is_some_and(|before| before.order(&key).is_ge()) {
            return Err(self.invalid(field, self.key_bytes, "keys are out of order, or repeated"));
        }
        Ok(key)
    }

    /// Takes a length, at most `most`, and so many bytes.
    ///
    /// # Errors
    /// When the bytes end, or the length is larger.
    pub fn bytes(&mut self, field: &'static str, most: usize) -> Result<&'a [u8], DecodeError> {
        let count = self.count(field, most)?;
        self.take(count, field)
    }

    /// A reader of `bytes` without the CRC-32 at their end, which it checks.
    ///
    /// # Errors
    /// When the bytes end, or the checksum is wrong.
    pub fn checked(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut all = Self::new(bytes);
        all.check()?;
        Ok(all)
    }

    /// Checks the CRC-32 at the end of the bytes, and removes it.
    ///
    /// # Errors
    /// When the bytes end, or the checksum is wrong.
    pub(crate) fn check(&mut self) -> Result<(), DecodeError> {
        let end = self.bytes.len().saturating_sub(size_of::<u32>()).max(self.offset);
        let mut tail = Self { offset: end, ..*self };
        let stored = tail.number::<u32>("checksum")?;
        if !self.is_checked && stored != crc32fast::hash(&self.bytes[..end]) {
            return Err(tail.invalid("checksum", size_of::<u32>(), "the bytes were damaged"));
        }
        self.bytes = &self.bytes[..end];
        Ok(())
    }

    /// Takes packets and bytes.
    ///
    /// # Errors
    /// When the bytes end.
    #[inline(never)]
    pub fn size(&mut self, field: &'static str) -> Result<Size, DecodeError> {
        Ok(Size { packets: self.number(field)?, bytes: self.number(field)? })
    }

    /// The error that `field`, the last `width` bytes, is invalid.
    pub fn invalid(&self, field: &'static str, width: usize, reason: &'static str) -> DecodeError {
        DecodeErrorKind::Invalid { field, offset: self.offset - width, reason }.into()
    }

    /// Takes a text of up to 255 bytes, with its length in one byte.
    ///
    /// # Errors
    /// When the bytes end, or are not UTF-8.
    pub(crate) fn text(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let length = self.number::<u8>(field)?.into();
        let bytes = self.take(length, field)?;
        str::from_utf8(bytes).map_err(|_| self.invalid(field, length, "it is not UTF-8"))
    }
}

/// How many search steps hash tables may still take while they are decoded. The bytes contain the
/// seed, so their author may have chosen keys that collide.
#[derive(Debug)]
pub(crate) struct StepBudget(usize);

impl StepBudget {
    /// Keys that collide by chance take a few steps each; small tables may need more.
    const STEPS_PER_KEY: usize = 64;
    const STEPS: usize = 1 << 20;

    /// A budget for `keys` keys.
    pub(crate) fn new(keys: usize) -> Self {
        Self(Self::STEPS.saturating_add(keys.saturating_mul(Self::STEPS_PER_KEY)))
    }

    /// Steps that are left.
    pub(crate) fn left(&self) -> usize {
        self.0
    }

    /// Spends steps; returns whether the budget was enough.
    pub(crate) fn take(&mut self, steps: usize) -> bool {
        let enough = steps <= self.0;
        self.0 = self.0.saturating_sub(steps);
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_checked_bytes_is_not_checked_again() {
        let bytes = [7, 0, 0, 0, 0];
        let left = |mut from: Reader<'_>| from.check().map(|()| from.left());
        assert!(left(Reader::new(&bytes)).is_err());
        assert!(left(Reader::inside(&bytes)).is_ok_and(|left| left == 1));
    }

    #[test]
    fn short_numbers_have_one_form() {
        for shift in 0..u64::BITS {
            for number in [1 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut out = Writer::default();
                out.short(number);
                let bytes = out.into_bytes();
                let bits = (u64::BITS - number.leading_zeros()).max(1);
                assert_eq!(bytes.len(), bits.div_ceil(7) as usize, "{number}");
                let mut from = Reader::new(&bytes);
                assert!(from.short("number").is_ok_and(|read| read == number), "{number}");
                assert!(from.is_at_end());
                let mut cut = Reader::new(&bytes[..bytes.len() - 1]);
                assert!(cut.short("number").is_err(), "{number} without its last byte");
                // The same number with a needless byte.
                let mut longer = bytes.clone();
                longer[bytes.len() - 1] |= 1 << 7;
                longer.push(0);
                assert!(Reader::new(&longer).short("number").is_err(), "{number} in more bytes");
            }
        }
        let beyond = [[0xff; 9].as_slice(), &[2]].concat();
        assert!(Reader::new(&beyond).short("number").is_err(), "2 to the 64th and more");
    }

    #[test]
    fn records_are_sorted_by_their_bytes() {
        for (records, width) in [(0, 3), (1, 5), (2, 1), (257, 3), (1000, 12), (300, 2)] {
            let mut state = 7u64;
            let mut byte = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Few values, so that records are alike.
                (state >> 61) as u8
            };
            let mut bytes: Vec<u8> = (0..records * width).map(|_| byte()).collect();
            // Some records have their first bytes in common.
            if width == 12 {
                bytes.chunks_exact_mut(width).for_each(|record| record[..5].fill(9));
            }
            let mut expected: Vec<_> = bytes.chunks_exact(width).collect();
            expected.sort_unstable();
            let mut sorted = bytes.clone();
            sort_records(&mut sorted, width);
            assert_eq!(sorted, expected.concat(), "{records} records of {width} bytes");
        }
    }
}
