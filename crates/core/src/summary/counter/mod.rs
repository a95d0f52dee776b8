//! A bounded number of counters, each for a flow at a time.
