//! The command `overbank`.
fn main() {}
