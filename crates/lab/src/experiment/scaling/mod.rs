//! How structures of their own scale over cores.

mod replay;
mod separate;
mod updates;

pub(super) use separate::SEPARATE;
pub(super) use updates::UPDATES;
