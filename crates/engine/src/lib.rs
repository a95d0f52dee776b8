//! The flowgauge engine: from packet source to report.
