//! The instructions of a rule: its actions, `clear_actions`, `write_actions(…)` and `goto_table`.
//!
//! They have to come in this order; each of the last three may occur once. Actions within
//! `write_actions` obey the same conditions as immediate ones, and cannot look up.

use super::actions::{ActionReader, canonical, well_formed, writes_nothing};
use super::error::{Fault, RuleErrorKind, quote};
use super::lex::{Join, Span, Word, Words};
use super::{ACTIONS_MAX, LineErrors};
use crate::rule::Action;

/// The instructions of OpenFlow, in the required order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Apply,
    Clear,
    Write,
    Goto,
}

/// The parsed instructions of a rule.
#[derive(Debug, Default)]
pub(super) struct Actions {
    /// As [`crate::Rule::actions`].
    pub list: Vec<Action>,
    /// As [`crate::Rule::clear_actions`].
    pub clear: bool,
    /// As [`crate::Rule::write_actions`].
    pub set: Vec<Action>,
}

/// Replaces the name of the action by its canonical spelling, which has the same length.
fn with_known_name<'a>(word: &Word<'a>) -> Word<'a> {
    let key = Span { text: canonical(word.key.text), at: word.key.at };
    Word { key, ..*word }
}

/// The instructions read so far.
pub(super) struct Builder {
    actions: Actions,
    reader: ActionReader,
    drop_at: Option<usize>,
    words: usize,
    stage: Stage,
}

impl Builder {
    pub fn new(reader: ActionReader) -> Builder {
        Builder {
            actions: Actions::default(),
            reader,
            drop_at: None,
            words: 0,
            stage: Stage::Apply,
        }
    }

    /// Reads one action or instruction. Returns false if reading must stop.
    pub fn word(&mut self, word: &Word<'_>, errors: &mut LineErrors<'_>) -> bool {
        if !self.count_word(word, errors) {
            return false;
        }
        let word = &with_known_name(word);
        if let Err(fault) = self.enter(word) {
            errors.push(fault);
        }
        if word.key.text == "write_actions" {
            return self.write_actions(word, errors);
        }
        match self.reader.action(word) {
            Ok(Some(action)) => {
                if let Action::GotoTable(_) = action {
                    self.stage = Stage::Goto;
                }
                if !writes_nothing(&action) {
                    self.actions.list.push(action);
                }
            }
            Ok(None) if word.key.text == "clear_actions" => self.actions.clear = true,
            Ok(None) => self.drop_at = Some(word.key.at),
            Err(fault) => {
                self.reader.skip();
                errors.push(fault);
            }
        }
        true
    }

    fn count_word(&mut self, word: &Word<'_>, errors: &mut LineErrors<'_>) -> bool {
        self.words += 1;
        if self.words > ACTIONS_MAX {
            let kind = RuleErrorKind::TooManyActions { max: ACTIONS_MAX };
            errors.push(Fault::new(word.key.at, kind));
        }
        self.words <= ACTIONS_MAX
    }

    /// Advances to the instruction that a word is or belongs to.
    fn enter(&mut self, word: &Word<'_>) -> Result<(), Fault> {
        let (stage, once) = match word.key.text {
            "clear_actions" => (Stage::Clear, true),
            "write_actions" => (Stage::Write, true),
            // `goto_table` ends the list only if it could be read.
            "goto_table" => (self.stage, false),
            _ => (Stage::Apply, false),
        };
        let (at, found) = (word.key.at, word.whole.text);
        match self.stage {
            Stage::Goto => Err(Fault::new(at, RuleErrorKind::AfterGoto { found: quote(found) })),
            now if once && stage == now => {
                Err(Fault::expected(at, format!("{} once", quote(word.key.text)), found))
            }
            now if stage < now => {
                let first = if now == Stage::Clear { "clear_actions" } else { "write_actions" };
                let expected = format!("{} before `{first}`", quote(word.key.text));
                let found = "it after".to_owned();
                Err(Fault::new(at, RuleErrorKind::Expected { expected: expected.into(), found }))
            }
            _ => {
                self.stage = stage;
                Ok(())
            }
        }
    }

    /// Reads `write_actions(ACTION,…)`. Returns false if reading must stop.
    fn write_actions(&mut self, word: &Word<'_>, errors: &mut LineErrors<'_>) -> bool {
        if let Err(fault) = well_formed(word) {
            errors.push(fault);
            return true;
        }
        if !matches!(word.join, Join::Parens(_)) {
            let expected = "`(` and actions after `write_actions`";
            let found = &word.whole.text[word.key.text.len()..];
            errors.push(Fault::expected(word.key.end(), expected, found));
            return true;
        }
        for inner in Words::within(word.value) {
            if !self.count_word(&inner, errors) {
                return false;
            }
            let inner = with_known_name(&inner);
            let name = inner.key.text;
            let refused = ["drop", "resubmit", "goto_table", "clear_actions", "write_actions"];
            if refused.contains(&name) {
                let expected = "an action that an action set can hold";
                errors.push(Fault::expected(inner.key.at, expected, name));
                continue;
            }
            match self.reader.action(&inner) {
                Ok(action) => {
                    let writes = action.filter(|action| !writes_nothing(action));
                    self.actions.set.extend(writes);
                }
                Err(fault) => {
                    self.reader.skip();
                    errors.push(fault);
                }
            }
        }
        true
    }

    /// Returns the instructions after the last word.
    pub fn finish(self, errors: &mut LineErrors<'_>) -> Actions {
        if let Some(at) = self.drop_at.filter(|_| self.words > 1) {
            errors.push(Fault::new(at, RuleErrorKind::DropNotAlone));
        }
        self.actions
    }
}
