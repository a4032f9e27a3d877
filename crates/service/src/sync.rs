//! The atomics of [`crate::published`]: those of std, or those of the model checker under
//! `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering, fence},
};
