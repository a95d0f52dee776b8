//! Liu et al., "NitroSketch: robust and general sketch-based monitoring in software switches" (SIGCOMM
//! 2019).
