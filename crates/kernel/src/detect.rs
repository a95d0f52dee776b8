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
        let levels = [Level::Scalar, Level::Avx2, Level::Avx512];
        levels.into_iter().filter(|level| level.detected()).map(Self).collect()
    }

    /// The portable instruction set, which every processor has.
    pub fn scalar() -> Self {
        Self(Level::Scalar)
    }

    /// `scalar`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Scalar => "scalar",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
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
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            // All but the first processors that have the foundation have these.
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn detected(self) -> bool {
        self == Self::Scalar
    }
}
