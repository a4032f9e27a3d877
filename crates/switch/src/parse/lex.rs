//! Cuts a line into words.
//!
//! ```text
//!  table=0, tcp tp_dst=80 actions=resubmit(1,2),set_field:5->nw_ttl
//!  key=value
//!           key key=value actions=key(value)    key:value
//! ```
//!
//! Commas, spaces and tabs separate words. A key ends at `=`, `:` or `(`; a value after `=` or `:`
//! ends at the next comma or space outside brackets. Nothing is copied and nothing fails: the
//! caller decides what a word means. Time is linear in the line.

/// A piece of the line with its byte offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<'a> {
    pub text: &'a str,
    pub at: usize,
}

impl<'a> Span<'a> {
    /// Returns the byte offset just after the piece.
    pub fn end(self) -> usize {
        self.at + self.text.len()
    }

    /// Removes the blanks at both ends.
    pub fn trim(self) -> Span<'a> {
        let start = self.text.trim_start();
        Span { text: start.trim_end(), at: self.at + (self.text.len() - start.len()) }
    }

    /// Splits at the first `separator` and returns the pieces before and after it.
    pub fn split_once(self, separator: &str) -> Option<(Span<'a>, Span<'a>)> {
        let (before, after) = self.text.split_once(separator)?;
        let at = self.at + before.len() + separator.len();
        Some((Span { text: before, at: self.at }, Span { text: after, at }))
    }
}

/// How a key is joined to its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    None,
    /// `=` or `:`.
    Assign,
    /// In parentheses; the flag says whether the closing one is present.
    Parens(bool),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    pub key: Span<'a>,
    pub join: Join,
    /// Empty without a value.
    pub value: Span<'a>,
    /// Text directly after a closing parenthesis; empty in a well-formed word.
    pub tail: Span<'a>,
    /// From the first byte of the key to the last byte of the word.
    pub whole: Span<'a>,
}

#[derive(Clone, Debug)]
pub(super) struct Words<'a> {
    line: &'a str,
    /// Offset of `line` in the line that spans refer to.
    base: usize,
    at: usize,
    in_actions: bool,
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b',' | b' ' | b'\t' | b'\r' | b'\n')
}

impl<'a> Words<'a> {
    pub fn new(line: &'a str) -> Words<'a> {
        Words { line, base: 0, at: 0, in_actions: false }
    }

    /// Iterates over the actions in a value.
    pub fn within(value: Span<'a>) -> Words<'a> {
        Words { line: value.text, base: value.at, at: 0, in_actions: true }
    }

    fn span(&self, from: usize, to: usize) -> Span<'a> {
        Span { text: &self.line[from..to], at: self.base + from }
    }

    /// Returns the first offset at or after `from` where `stop` holds, or the end of the line.
    /// `stop` looks for ASCII only, so the offset never lies within a character.
    fn offset(&self, from: usize, mut stop: impl FnMut(u8) -> bool) -> usize {
        let rest = &self.line.as_bytes()[from..];
        rest.iter().position(|&byte| stop(byte)).map_or(self.line.len(), |n| from + n)
    }

    /// Returns the end of a value that starts at `from`: the first blank outside brackets.
    fn value_end(&self, from: usize) -> usize {
        let mut depth = 0usize;
        self.offset(from, |byte| {
            match byte {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && is_blank(byte)
        })
    }

    /// Returns the position of the parenthesis that closes the one just before `from`.
    fn parens_end(&self, from: usize) -> usize {
        let mut depth = 1usize;
        self.offset(from, |byte| {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            depth == 0
        })
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        let start = self.offset(self.at, |byte| !is_blank(byte));
        if start == self.line.len() {
            self.at = start;
            return None;
        }
        let key_end = self.offset(start, |b| is_blank(b) || matches!(b, b'=' | b':' | b'('));
        let key = self.span(start, key_end);
        let nothing = self.span(key_end, key_end);
        let mut word =
            Word { key, join: Join::None, value: nothing, tail: nothing, whole: nothing };
        let bytes = self.line.as_bytes();
        if !self.in_actions && matches!(key.text, "actions" | "action") {
            // The first action follows `actions=` without a comma; blanks may precede the `=`.
            let equals = self.offset(key_end, |byte| !matches!(byte, b' ' | b'\t'));
            if bytes.get(equals) == Some(&b'=') {
                self.in_actions = true;
                self.at = equals + 1;
                word.join = Join::Assign;
                word.value = self.span(self.at, self.at);
                word.tail = word.value;
                word.whole = self.span(start, self.at);
                return Some(word);
            }
        }
        self.at = match bytes.get(key_end) {
            Some(b'=' | b':') => {
                let end = self.value_end(key_end + 1);
                word.join = Join::Assign;
                word.value = self.span(key_end + 1, end);
                end
            }
            Some(b'(') => {
                let end = self.parens_end(key_end + 1);
                word.value = self.span(key_end + 1, end);
                word.join = Join::Parens(end < self.line.len());
                let tail = (end + 1).min(self.line.len());
                let tail_end = self.offset(tail, is_blank);
                word.tail = self.span(tail, tail_end);
                tail_end
            }
            _ => key_end,
        };
        word.tail = if word.tail.text.is_empty() { self.span(self.at, self.at) } else { word.tail };
        word.whole = self.span(start, self.at);
        Some(word)
    }
}
