//! The device without threads.

mod hostile;
mod rig;
mod twin;
