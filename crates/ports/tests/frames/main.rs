//! Frames in captures and in memory.

mod captures;
mod memory;
