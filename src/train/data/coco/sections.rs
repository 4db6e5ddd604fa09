//! The entries of the file's lists, some thousands at a time. COCO's training set has 860,000 annotations in 450 MB,
//! which would take gigabytes as one tree. Each portion is read on several threads, and entries are returned in the
//! order of the file.

use super::fault::{Fault, Halt};
use rayon::prelude::*;
use serde_json::{Deserializer, Value};
use std::ops::Range;

/// The number of entries that are read at a time.
const PORTION: usize = 1 << 14;

/// The lists that are read; everything else in the file is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Images,
    Annotations,
    Categories,
}

impl List {
    pub const ALL: [Self; 3] = [Self::Images, Self::Annotations, Self::Categories];

    pub fn name(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Annotations => "annotations",
            Self::Categories => "categories",
        }
    }
}

/// An entry of a list, and its place.
pub(super) struct Entry {
    pub list: List,
    /// Its place in the list, from 0.
    pub index: usize,
    /// Its first byte.
    pub offset: usize,
    pub value: Value,
}

/// Calls `read` for every entry, on several threads, and `keep` for each result, in the order of the file. Stops at the
/// first fault in the file.
pub(super) fn visit<T: Send>(
    bytes: &[u8],
    read: impl Fn(Entry) -> Result<T, Halt> + Sync,
    mut keep: impl FnMut(T) -> Result<(), Halt>,
) -> Result<(), Halt> {
    let start = if bytes.starts_with("\u{feff}".as_bytes()) { 3 } else { 0 };
    let mut cursor = Cursor { bytes, at: start };
    let mut seen: Vec<List> = Vec::new();
    cursor.expect(b'{')?;
    let mut more = !cursor.take(b'}');
    while more {
        let offset = cursor.peeked();
        let Value::String(key) = cursor.value()? else {
            return Err(syntax(offset, "a key was expected"));
        };
        cursor.expect(b':')?;
        match List::ALL.into_iter().find(|list| list.name() == key) {
            Some(list) if seen.contains(&list) => {
                return Err(Halt { offset, fault: Fault::SecondList { list: list.name() } });
            }
            Some(list) => {
                seen.push(list);
                cursor.list(list, &read, &mut keep)?;
            }
            None => {
                cursor.value()?;
            }
        }
        more = cursor.more(b'}')?;
    }
    let end = cursor.peeked();
    if end < bytes.len() {
        return Err(syntax(end, "more follows after the end"));
    }
    match List::ALL.into_iter().find(|list| !seen.contains(list)) {
        Some(list) => Err(Halt { offset: end, fault: Fault::NoList { list: list.name() } }),
        None => Ok(()),
    }
}

fn syntax(offset: usize, reason: &str) -> Halt {
    Halt { offset, fault: Fault::Syntax { reason: reason.to_owned() } }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    /// Returns the place of the next byte that is not white space.
    fn peeked(&mut self) -> usize {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at += rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
        self.at
    }

    fn take(&mut self, byte: u8) -> bool {
        let at = self.peeked();
        let found = self.bytes.get(at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), Halt> {
        if self.take(byte) { Ok(()) } else { Err(syntax(self.at, &format!("`{}` was expected", char::from(byte)))) }
    }

    /// Returns whether another item follows; false at the closing `end`.
    fn more(&mut self, end: u8) -> Result<bool, Halt> {
        match (self.take(b','), end) {
            (true, _) => Ok(true),
            (false, end) if self.take(end) => Ok(false),
            (false, end) => Err(syntax(self.at, &format!("`,` or `{}` was expected", char::from(end)))),
        }
    }

    fn value(&mut self) -> Result<Value, Halt> {
        let start = self.peeked();
        let rest = self.bytes.get(start..).unwrap_or_default();
        let mut values = Deserializer::from_slice(rest).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                self.at = start + values.byte_offset();
                Ok(value)
            }
            Some(Err(fault)) => Err(located(start, rest, &fault)),
            None => Err(syntax(start, "the file ends too early")),
        }
    }

    /// Returns the range of an entry. Brackets tell where an object ends; its content is checked when it is parsed.
    fn entry(&mut self) -> Result<Range<usize>, Halt> {
        let start = self.peeked();
        match extent(self.bytes.get(start..).unwrap_or_default()) {
            Some(len) => self.at = start + len,
            None => {
                self.value()?;
            }
        }
        Ok(start..self.at)
    }

    fn list<T: Send>(
        &mut self,
        list: List,
        read: &(impl Fn(Entry) -> Result<T, Halt> + Sync),
        keep: &mut impl FnMut(T) -> Result<(), Halt>,
    ) -> Result<(), Halt> {
        let offset = self.peeked();
        if !self.take(b'[') {
            return Err(Halt { offset, fault: Fault::NotList { list: list.name() } });
        }
        let mut more = !self.take(b']');
        let mut first = 0;
        while more {
            let mut places: Vec<Range<usize>> = Vec::new();
            let mut next = Ok(true);
            while matches!(next, Ok(true)) && places.len() < PORTION {
                next = self.entry().and_then(|place| {
                    places.push(place);
                    self.more(b']')
                });
            }
            let parse = |(n, place): (usize, &Range<usize>)| {
                let text = self.bytes.get(place.clone()).unwrap_or_default();
                let value = serde_json::from_slice(text).map_err(|fault| located(place.start, text, &fault))?;
                read(Entry { list, index: first + n, offset: place.start, value })
            };
            let entries: Vec<Result<T, Halt>> = places.par_iter().enumerate().map(parse).collect();
            entries.into_iter().try_for_each(|entry| keep(entry?))?;
            // A fault behind these entries counts only if they have none.
            more = next?;
            first += places.len();
        }
        Ok(())
    }
}

/// Returns a parser's fault in a text that begins at byte `start` of the file.
fn located(start: usize, text: &[u8], fault: &serde_json::Error) -> Halt {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines.take(fault.line().saturating_sub(1)).map(<[u8]>::len).sum();
    let message = fault.to_string();
    // The parser's own position is relative to this text.
    let reason = message.split(" at line ").next().unwrap_or(&message);
    syntax(start + before + fault.column().saturating_sub(1), reason)
}

/// Returns the length of the object at the beginning of a text; `None` if there is none or it has no end.
fn extent(text: &[u8]) -> Option<usize> {
    if text.first() != Some(&b'{') {
        return None;
    }
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => depth += 1,
            b'}' | b']' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}
