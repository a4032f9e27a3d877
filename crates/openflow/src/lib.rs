//! OpenFlow 1.3 to 1.5: messages to bytes and back. No I/O; no panic on any input.
