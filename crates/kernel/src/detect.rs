//! Which instruction set this process uses, found once.

use std::fmt;
use std::sync::OnceLock;

/// An instruction set that this processor has. Holding one proves that it was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Isa(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Scalar,
    Avx2,
    Avx512,
}

/// Names of the levels, in the order of [`Level`].
const NAMES: [(&str, Level); 3] =
    [("scalar", Level::Scalar), ("avx2", Level::Avx2), ("avx512", Level::Avx512)];

impl Isa {
    /// The widest instruction set of this processor, or the one that the environment variable
    /// `FLOWGAUGE_ISA` (`scalar`, `avx2` or `avx512`) names, if the processor has it.
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| {
            let forced = std::env::var("FLOWGAUGE_ISA").ok();
            let available = Self::available();
            let wanted = forced.and_then(|name| available.iter().find(|isa| isa.name() == name));
            *wanted.unwrap_or(&available[available.len() - 1])
        })
    }

    /// Every instruction set that this processor has, narrowest first.
    pub fn available() -> Vec<Self> {
        NAMES.iter().filter(|(_, level)| level.detected()).map(|(_, level)| Self(*level)).collect()
    }

    /// The portable instruction set, which every processor has.
    pub fn scalar() -> Self {
        Self(Level::Scalar)
    }

    /// `scalar`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        NAMES[self.0 as usize].0
    }

    pub(crate) fn level(self) -> Level {
        self.0
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Level {
    #[cfg(target_arch = "x86_64")]
    fn detected(self) -> bool {
        match self {
            Self::Scalar => true,
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2"),
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("bmi2")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn detected(self) -> bool {
        self == Self::Scalar
    }
}
