//! The loop of the paper's figure 3.

use crate::Failed;
use crate::front::{Found, Front};
use crate::index::Index;
use crate::item::{Item, Reading};
use crate::outside::{Ask, client};

/// Serves the client's requests until there are no more. Values have `words` words.
///
/// # Errors
/// An insert fails.
pub fn serve<I: Index, F: Front>(
    index: &mut I,
    front: &mut F,
    words: usize,
    reading: Reading,
) -> Result<(), Failed> {
    loop {
        let request = client::next();
        let key = request.key;
        let answer = match request.ask() {
            Ask::End => return Ok(()),
            Ask::Read => lookup(index, front, key),
            Ask::Update => {
                let item = front.update(key, || index.find(key));
                item.inspect(|item| item.write(words, request.version()))
            }
            Ask::Insert => {
                let item = Item::new(key, words)?;
                front.insert(key, item, || index.insert(key, item))?;
                Some(item)
            }
        };
        match answer {
            // A writer reads nothing.
            Some(_) if request.ask() != Ask::Read => client::answer(0),
            Some(item) => client::answer(item.sum(reading)),
            None => client::nothing(),
        }
    }
}

#[inline]
fn lookup<I: Index, F: Front>(index: &mut I, front: &mut F, key: u64) -> Option<Item> {
    match front.get(key) {
        Found::Hit(item) => {
            client::hit();
            Some(item)
        }
        Found::Dropped => None,
        Found::Miss(ticket) => {
            let item = index.find(key)?;
            front.fill(ticket, key, item);
            Some(item)
        }
    }
}
