//! The instruction set that this process uses, found once.

use std::fmt;
use std::sync::OnceLock;

/// The environment variable that selects an instruction set.
const VARIABLE: &str = "FLOWGAUGE_ISA";

/// An instruction set of this processor. A value of this type proves that it was detected.
///
/// ```
/// use flowgauge_kernel::{Digester, Isa, Seed};
///
/// let keys = [10_u64, 20, 30];
/// let digests = |isa| {
///     let mut out = [0; 3];
///     Digester::new(Seed::number(1), isa).digest_batch(&keys, 8, &mut out);
///     out
/// };
/// // All instruction sets give the same digests.
/// for isa in Isa::available() {
///     assert_eq!(digests(isa), digests(Isa::scalar()), "{isa}");
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Isa(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Scalar,
    Avx2,
    Avx512,
}

impl Level {
    const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];
}

impl Isa {
    /// The instruction set that `FLOWGAUGE_ISA` selects (see [`Self::selected`]), or the default one
    /// of this processor where the variable is not usable.
    ///
    /// The libraries and the agent's helpers start this way. The command checks
    /// [`Self::selected`] first and refuses to start on an error.
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Self::selected().unwrap_or_else(|_| Self::usual()))
    }

    /// The instruction set that the environment variable `FLOWGAUGE_ISA` names: `scalar`, `avx2` or
    /// `avx512`. Where the variable is unset or empty, the widest one of this processor, but `avx2`
    /// instead of `avx512` on Intel's, where vectors of 512 bits slow down the program around them.
    ///
    /// # Errors
    /// When the name is unknown, or the processor lacks that instruction set.
    pub fn selected() -> Result<Self, UnusableIsa> {
        match std::env::var_os(VARIABLE) {
            Some(name) if !name.is_empty() => {
                Self::among(&Self::available(), &name.to_string_lossy())
            }
            _ => Ok(Self::usual()),
        }
    }

    fn among(available: &[Self], name: &str) -> Result<Self, UnusableIsa> {
        available.iter().find(|isa| isa.name() == name).copied().ok_or_else(|| UnusableIsa {
            name: name.to_owned(),
            is_known: Level::ALL.iter().any(|level| level.name() == name),
            available: available.iter().map(|isa| isa.name()).collect(),
        })
    }

    fn usual() -> Self {
        let fast = |isa: &Self| isa.level() < Level::Avx512 || !is_intel();
        Self::available().into_iter().filter(fast).max().unwrap_or(Self::scalar())
    }

    /// Every instruction set of this processor, narrowest first.
    pub fn available() -> Vec<Self> {
        Level::ALL.into_iter().filter(|level| level.detected()).map(Self).collect()
    }

    /// The portable instruction set, which every processor has.
    pub fn scalar() -> Self {
        Self(Level::Scalar)
    }

    /// `scalar`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        self.0.name()
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
    fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn detected(self) -> bool {
        match self {
            Self::Scalar => true,
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            // Only the first processors with AVX-512F lack BW, DQ and VL.
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512cd")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn detected(self) -> bool {
        self == Self::Scalar
    }
}

/// Whether Intel made this processor.
#[cfg(target_arch = "x86_64")]
fn is_intel() -> bool {
    let std::arch::x86_64::CpuidResult { ebx, ecx, edx, .. } = std::arch::x86_64::__cpuid(0);
    [ebx, edx, ecx].map(u32::to_le_bytes).as_flattened() == b"GenuineIntel"
}

#[cfg(not(target_arch = "x86_64"))]
fn is_intel() -> bool {
    false
}

/// `FLOWGAUGE_ISA` names an instruction set that does not exist or that this processor lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableIsa {
    name: String,
    is_known: bool,
    available: Vec<&'static str>,
}

impl std::error::Error for UnusableIsa {}

impl fmt::Display for UnusableIsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, is_known, available } = self;
        let available = available.join(", ");
        if *is_known {
            write!(
                f,
                "instruction set '{name}' in {VARIABLE} is not supported by this processor; \
                 available: {available}"
            )
        } else {
            write!(f, "unknown instruction set '{name}' in {VARIABLE}; available: {available}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_available_name_selects_an_instruction_set() {
        let all = Level::ALL.map(Isa);
        for isa in all {
            assert_eq!(Isa::among(&all, isa.name()), Ok(isa));
        }
        for (name, message) in [
            ("avx3", "unknown instruction set 'avx3' in FLOWGAUGE_ISA; available: scalar, avx2"),
            (
                "avx512",
                "instruction set 'avx512' in FLOWGAUGE_ISA is not supported by this processor; \
                 available: scalar, avx2",
            ),
        ] {
            let refused = Isa::among(&all[..2], name).map_err(|error| error.to_string());
            assert_eq!(refused, Err(message.to_owned()));
        }
    }
}
