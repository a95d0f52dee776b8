//! Liu et al., "NitroSketch: robust and general sketch-based monitoring in software switches" (SIGCOMM
//! 2019).

mod fig3a;
mod fig3b;
mod strawmen;
mod table2;

pub(super) use fig3a::FIG3A;
pub(super) use fig3b::FIG3B;
pub(super) use strawmen::STRAWMEN;
pub(super) use table2::TABLE2;
