//! Sketches of many rows: Count-Min and its kin.
