//! How structures of their own scale over cores.
