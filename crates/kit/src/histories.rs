//! Judges recorded histories of a register: is there an order of its operations, each between its
//! call and its reply, in which every read returns the last value written?
//!
//! ```text
//!   put 1   |───|                      a value's zone: from the first reply of its operations
//!   get → 1        |──|   |──|         to their last call
//!               └─────────┘
//! ```
//!
//! In any such order, a value's write and its reads stand together, so one of two values comes as a
//! whole first. It is the one whose first reply is before the other's last call; that may not hold
//! both ways. Nor may a read end before the write of its value begins. Where values are unique,
//! nothing else is needed: a longer circle of values contains one of two. Sorted by their first
//! replies, values contradict their neighbours or none: O(n log n).
//!
//! # Guarantees
//! - **Puts and reads**, each put with another value: exact. A read of nothing is one of the start.
//! - **Deletes** all write the same value, and then the question is NP-hard. What is reported is
//!   wrong all the same; not all that is wrong is reported. Reported are reads of a value that a
//!   delete or a read of nothing has ended, and reads of nothing after a put that no delete may
//!   follow.
//! - A write without a reply takes effect at any time after its call, or never. A read without one
//!   says nothing.
//! - Operations whose times touch are concurrent.
//!
//! Source: Gibbons and Korach, *Testing Shared Memories*, SIAM J. Comput. 26(4), 1997, section 4.

use std::collections::HashMap;

/// What was asked, and answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Put(u64),
    Delete,
    /// With what it has returned; `None`: nothing.
    Read(Option<u64>),
}

/// A recorded operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    pub kind: Kind,
    /// When it began, after 0.
    pub call: u64,
    /// When its answer was there, if one came.
    pub reply: Option<u64>,
}

/// Why there is no such order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("value {0} was written twice: the history cannot be judged")]
    Twice(u64),
    #[error("{0:?} returned what nothing had written")]
    Unwritten(Operation),
    #[error("{0:?} ended before the write of its value began")]
    Early(Operation),
    #[error("value {} was there until a read at {}; meanwhile {} to {} had its turn", .0.value,
        .0.last_call, .1.first_reply, .1.last_call)]
    Between(Zone, Zone),
    #[error("{read:?} returned nothing, and no delete may follow {put:?}")]
    Lost { put: Operation, read: Operation },
}

/// When a value was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The value; 0 for none.
    pub value: u64,
    /// First reply and last call of its operations.
    pub first_reply: u64,
    pub last_call: u64,
}

impl Zone {
    /// The zone of one operation, and of what else was of its value.
    fn of(value: u64, operation: &Operation) -> Zone {
        let first_reply = operation.reply.unwrap_or(u64::MAX);
        Zone { value, first_reply, last_call: operation.call }
    }

    fn with(self, operation: &Operation) -> Zone {
        let other = Zone::of(self.value, operation);
        Zone {
            value: self.value,
            first_reply: self.first_reply.min(other.first_reply),
            last_call: self.last_call.max(other.last_call),
        }
    }

    /// Whether the value was there without a break from its first reply to its last call.
    fn is_forward(&self) -> bool {
        self.first_reply < self.last_call
    }
}

/// Judges the operations of one register, in any order. At the start it holds nothing.
///
/// # Errors
/// Fails with a violation if there is one.
pub fn judge(operations: &[Operation]) -> Result<(), Violation> {
    let mut zones = zones(operations)?;
    zones.sort_unstable_by_key(|zone| zone.first_reply);
    let (forward, backward): (Vec<Zone>, Vec<Zone>) = zones.into_iter().partition(Zone::is_forward);
    for pair in forward.windows(2) {
        if pair[1].first_reply < pair[0].last_call {
            return Err(Violation::Between(pair[0], pair[1]));
        }
    }
    // They follow one another now: only the last that begins before can hold another zone.
    for zone in backward {
        let after = forward.partition_point(|around| around.first_reply < zone.last_call);
        if let Some(around) = after.checked_sub(1).map(|at| forward[at])
            && zone.first_reply < around.last_call
        {
            return Err(Violation::Between(around, zone));
        }
    }
    lost(operations)
}

/// Returns the zone of each value, and one for each delete and each read of nothing where there are
/// deletes.
fn zones(operations: &[Operation]) -> Result<Vec<Zone>, Violation> {
    let deletes = operations.iter().any(|operation| operation.kind == Kind::Delete);
    let mut puts: HashMap<u64, (u64, Zone)> = HashMap::new();
    for operation in operations {
        if let Kind::Put(value) = operation.kind {
            let zone = Zone::of(value, operation);
            if puts.insert(value, (operation.call, zone)).is_some() {
                return Err(Violation::Twice(value));
            }
        }
    }
    // What was there at the start was written before all else.
    let mut start = Zone { value: 0, first_reply: 0, last_call: 0 };
    let mut alone = Vec::new();
    for operation in operations {
        match (operation.kind, operation.reply) {
            (Kind::Delete, _) => alone.push(Zone::of(0, operation)),
            (Kind::Read(None), Some(_)) if deletes => alone.push(Zone::of(0, operation)),
            (Kind::Read(None), Some(_)) => start = start.with(operation),
            (Kind::Read(Some(value)), Some(reply)) => {
                let put = puts.get_mut(&value).ok_or(Violation::Unwritten(*operation))?;
                if reply < put.0 {
                    return Err(Violation::Early(*operation));
                }
                put.1 = put.1.with(operation);
            }
            (Kind::Read(_), None) | (Kind::Put(_), _) => {}
        }
    }
    Ok(puts.into_values().map(|put| put.1).chain(alone).chain([start]).collect())
}

/// Looks for a read of nothing and a put before it, where each delete that could be between them
/// is before the put.
fn lost(operations: &[Operation]) -> Result<(), Violation> {
    let of = |kind: fn(Kind) -> bool| {
        let some: Vec<Operation> =
            operations.iter().filter(|operation| kind(operation.kind)).copied().collect();
        some
    };
    let mut deletes = of(|kind| kind == Kind::Delete);
    let mut puts = of(|kind| matches!(kind, Kind::Put(_)));
    let mut reads = of(|kind| kind == Kind::Read(None));
    reads.retain(|read| read.reply.is_some());
    puts.retain(|put| put.reply.is_some());
    reads.sort_unstable_by_key(|read| read.call);
    puts.sort_unstable_by_key(|put| put.reply);
    deletes.sort_unstable_by_key(|delete| delete.call);
    // The last reply of the deletes up to each.
    let ends: Vec<u64> = deletes
        .iter()
        .scan(0, |last, delete| {
            *last = delete.reply.unwrap_or(u64::MAX).max(*last);
            Some(*last)
        })
        .collect();
    let (mut next, mut latest) = (puts.iter().peekable(), None::<Operation>);
    for read in reads {
        while let Some(put) = next.next_if(|put| put.reply < Some(read.call)) {
            latest = latest.into_iter().chain([*put]).max_by_key(|put| put.call);
        }
        let Some(put) = latest else { continue };
        let before =
            deletes.partition_point(|delete| Some(delete.call) <= read.reply).checked_sub(1);
        let end = before.map(|at| ends[at]);
        if end.is_none_or(|end| end < put.call) {
            return Err(Violation::Lost { put, read });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
