//! Sketches of many rows: Count-Min and its kin.

mod bloom;
mod flow_radar;

pub use flow_radar::{FlowRadar, JointFlow, JointRadar, decode_jointly};
