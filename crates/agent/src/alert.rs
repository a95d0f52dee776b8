//! Alerts: conditions over reports.
