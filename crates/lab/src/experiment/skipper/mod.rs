//! Skipper: black-box acceleration of measurement algorithms in software switches.
