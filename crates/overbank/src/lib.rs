//! Overbank.
