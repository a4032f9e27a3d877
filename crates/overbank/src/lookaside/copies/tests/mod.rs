//! Tests of both kinds of table: beside twins, and one by one.

mod gate;
mod live;
mod rate;
mod threads;
mod twins;
mod versioned;
