//! Jang et al., "InstaMeasure: instant per-flow detection using large in-DRAM working set of active
//! flows" (ICDCS 2019).
