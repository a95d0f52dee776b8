//! What a set of heavy keys keeps for each of them.

use bytemuck::Zeroable;

use super::Counter;
use super::codec::{DecodeError, Reader, Writer};
use super::state::{Ewma, State};

/// A key's own share of what it has in common with others. All zero is none.
pub(crate) trait Share: Copy + Zeroable + Send + 'static {
    /// Bytes of the stored form.
    const STORED_BYTES: usize;
    /// Takes in another share of the same key.
    fn merge(&mut self, other: &Self);
    fn save(&self, out: &mut Writer);
    fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// The keys alone.
impl Share for () {
    const STORED_BYTES: usize = 0;

    fn merge(&mut self, (): &Self) {}

    fn save(&self, _: &mut Writer) {}

    fn load(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

/// Packets or bytes.
impl<C: Counter> Share for C {
    const STORED_BYTES: usize = size_of::<C>();

    /// What a share has no room for, the counter has none for either.
    fn merge(&mut self, other: &Self) {
        let _ = self.add(*other);
    }

    fn save(&self, out: &mut Writer) {
        out.number(*self);
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        from.number("share of a candidate")
    }
}

/// Sizes with their forecast.
impl Share for Ewma {
    const STORED_BYTES: usize = <Self as State>::STORED_BYTES;

    fn merge(&mut self, other: &Self) {
        let _ = State::merge(self, other);
    }

    fn save(&self, out: &mut Writer) {
        State::save(self, out);
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::load_any(from)
    }
}
