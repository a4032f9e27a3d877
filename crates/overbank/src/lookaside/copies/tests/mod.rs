//! Tests of both kinds of table: beside twins, and one by one.

mod gate;
mod live;
mod threads;
mod twins;
mod versioned;
