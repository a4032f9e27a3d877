//! What a client is owed, in the order of its requests.
//!
//! ```text
//!   front ─▶ Plain(3) │ Reply(effect) │ Local(12) │ Plain(1) ◀─ back      3 replies that pass, one
//!                                         │                              that changes something,
//!              held: bytes of local replies, in the same order           12 bytes of the cache, …
//! ```
//!
//! Cost: a run of replies that change nothing is one entry: a pipeline of a million reads is one.

use std::collections::VecDeque;

/// Entries, and bytes, that an empty queue has room for.
const KEEP: usize = 64;

/// One entry.
#[derive(Debug)]
enum Owed<E> {
    /// Number of replies of the server that change nothing: at least one.
    Plain(u64),
    /// A reply of the server, and what it changes.
    Reply(E),
    /// Bytes of `held`.
    Local(usize),
}

/// See the module. `E` is what a reply changes.
#[derive(Debug)]
pub struct Queue<E> {
    queue: VecDeque<Owed<E>>,
    held: VecDeque<u8>,
    /// Replies of the server that have not come.
    replies: u64,
}

/// What a reply of the server was.
#[derive(Debug, PartialEq, Eq)]
pub enum Front<E> {
    Plain,
    Effect(E),
    /// None was expected.
    Nothing,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Queue { queue: VecDeque::new(), held: VecDeque::new(), replies: 0 }
    }
}

impl<E> Queue<E> {
    /// Returns the number of replies that the server owes.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Returns the bytes of local replies that wait for the server's.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns the number of entries: what the queue takes.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Adds a reply of the server that changes nothing.
    pub fn plain(&mut self) {
        self.replies += 1;
        match self.queue.back_mut() {
            Some(Owed::Plain(count)) => *count += 1,
            _ => self.queue.push_back(Owed::Plain(1)),
        }
    }

    /// Adds a reply of the server that changes something.
    pub fn effect(&mut self, effect: E) {
        self.replies += 1;
        self.queue.push_back(Owed::Reply(effect));
    }

    /// Adds a local reply: to `out` if nothing is owed before it.
    pub fn local(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.replies == 0 {
            out.extend_from_slice(bytes);
            return;
        }
        self.held.extend(bytes);
        match self.queue.back_mut() {
            Some(Owed::Local(count)) => *count += bytes.len(),
            _ => self.queue.push_back(Owed::Local(bytes.len())),
        }
    }

    /// Returns what the next reply of the server changes, without taking it.
    pub fn front(&mut self) -> Option<&mut E> {
        match self.queue.front_mut() {
            Some(Owed::Reply(effect)) => Some(effect),
            _ => None,
        }
    }

    /// Returns what the last reply of the server changes, if nothing is owed behind it.
    pub fn back(&mut self) -> Option<&mut E> {
        match self.queue.back_mut() {
            Some(Owed::Reply(effect)) => Some(effect),
            _ => None,
        }
    }

    /// Takes the next reply of the server, which has come to its end. Local replies that waited for
    /// it go to `out` by [`Queue::release`].
    pub fn take(&mut self) -> Front<E> {
        match self.queue.front_mut() {
            Some(Owed::Plain(count)) if *count > 1 => {
                *count -= 1;
                self.replies -= 1;
                Front::Plain
            }
            Some(Owed::Local(_)) | None => Front::Nothing,
            Some(Owed::Plain(_) | Owed::Reply(_)) => {
                self.replies -= 1;
                match self.queue.pop_front() {
                    Some(Owed::Reply(effect)) => Front::Effect(effect),
                    _ => Front::Plain,
                }
            }
        }
    }

    /// Moves local replies that wait for nothing more to `out`.
    pub fn release(&mut self, out: &mut Vec<u8>) {
        if let Some(Owed::Local(count)) = self.queue.front() {
            out.extend(self.held.drain(..*count));
            self.queue.pop_front();
        }
        // An idle client keeps little of a deep pipeline.
        if self.queue.is_empty() {
            self.queue.shrink_to(KEEP);
            self.held.shrink_to(KEEP);
        }
    }

    /// Takes all effects that wait: the server is gone.
    pub fn abandon(&mut self) -> impl Iterator<Item = E> {
        self.replies = 0;
        self.held.clear();
        std::mem::take(&mut self.queue).into_iter().filter_map(|owed| match owed {
            Owed::Reply(effect) => Some(effect),
            Owed::Plain(_) | Owed::Local(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Plain,
        Effect(u8),
        Local(u8),
        Reply,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            2 => Just(Step::Plain),
            1 => any::<u8>().prop_map(Step::Effect),
            1 => (1u8..9).prop_map(Step::Local),
            3 => Just(Step::Reply),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// The twin has one entry a reply.
        #[test]
        fn replies_come_in_the_order_of_requests(steps in steps()) {
            let (mut queue, mut out) = (Queue::default(), Vec::new());
            let (mut twin, mut twin_out) = (VecDeque::<Option<Option<u8>>>::new(), Vec::new());
            let mut texts = VecDeque::new();
            for (at, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Plain => {
                        queue.plain();
                        twin.push_back(Some(None));
                    }
                    Step::Effect(effect) => {
                        queue.effect(effect);
                        twin.push_back(Some(Some(effect)));
                    }
                    Step::Local(length) => {
                        let bytes = vec![at as u8; usize::from(length)];
                        queue.local(&bytes, &mut out);
                        twin.push_back(None);
                        texts.push_back(bytes);
                    }
                    Step::Reply => {
                        let expected = match twin.pop_front() {
                            Some(Some(Some(effect))) => Front::Effect(effect),
                            Some(Some(None)) => Front::Plain,
                            _ => Front::Nothing,
                        };
                        prop_assert_eq!(queue.take(), expected);
                        queue.release(&mut out);
                    }
                }
                while let Some(None) = twin.front() {
                    twin.pop_front();
                    twin_out.extend(texts.pop_front().unwrap_or_default());
                }
                prop_assert_eq!(&out, &twin_out);
                prop_assert_eq!(queue.replies(), twin.iter().flatten().count() as u64);
            }
            let effects: Vec<u8> = queue.abandon().collect();
            prop_assert_eq!(effects, twin.into_iter().flatten().flatten().collect::<Vec<_>>());
        }
    }
}
