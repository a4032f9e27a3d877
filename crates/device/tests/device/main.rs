//! The device whole, with threads and queues, between hosts in memory.

mod served;
mod world;
