//! How structures of their own scale over cores.

mod separate;

pub(super) use separate::SEPARATE;
