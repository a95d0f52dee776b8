//! InstaMeasure: decoding at saturation.
