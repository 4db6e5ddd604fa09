//! What is kept of a worker's output: its first and its last part, line by line in the order in which the lines ended.
//!
//! Secrets are taken out when it is sealed, of what is kept and of no more: a worker may write gigabytes.

use crate::host::secrets::Redactor;
use crate::journal::Side;
use crate::record::{Digest, Entry, OutputFacts, Piece, SourceText, Stream};
use crate::wire::encode_output;
use std::path::Path;

/// So much is kept of the beginning, and as much of the end, of both streams together.
pub(super) const PART_BYTES: usize = 1 << 20;
/// What has not ended by then counts as a line: bytes without any line end are kept too.
pub(super) const LONGEST_LINE: usize = 32 << 10;
const STREAMS: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

/// Whole lines of a text, each with its end; a bar that is drawn again and again on its line ends with each return.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(['\n', '\r'])
}

/// The same with lines that are too long cut into pieces, as [`Lines`] gives them.
pub(super) fn cut_lines(text: &str) -> impl Iterator<Item = &str> {
    lines(text).flat_map(|line| {
        let mut rest = line;
        std::iter::from_fn(move || {
            let at = if rest.len() > LONGEST_LINE { rest.floor_char_boundary(LONGEST_LINE) } else { rest.len() };
            let (piece, after) = rest.split_at(at);
            rest = after;
            (!piece.is_empty()).then_some(piece)
        })
    })
}

/// Makes lines of the chunks of a stream.
#[derive(Default)]
pub(super) struct Lines {
    begun: String,
}

impl Lines {
    /// Gives each line that is whole by now.
    pub(super) fn push(&mut self, text: &str, mut take: impl FnMut(&str)) {
        for line in lines(text) {
            let is_whole = line.ends_with(['\n', '\r']);
            if is_whole && self.begun.is_empty() && line.len() <= LONGEST_LINE {
                take(line);
                continue;
            }
            self.begun.push_str(line);
            let mut from = 0;
            while self.begun.len() - from > LONGEST_LINE {
                let to = self.begun.floor_char_boundary(from + LONGEST_LINE);
                take(&self.begun[from..to]);
                from = to;
            }
            self.begun.drain(..from);
            if is_whole {
                take(&std::mem::take(&mut self.begun));
            }
        }
    }

    /// How much was written of a line that has not ended.
    pub(super) fn begun_bytes(&self) -> usize {
        self.begun.len()
    }

    /// What no line end followed.
    pub(super) fn rest(&mut self) -> String {
        std::mem::take(&mut self.begun)
    }
}

/// Text of both streams in its order.
#[derive(Default)]
struct Part {
    text: String,
    /// Which stream it is of, and for how many bytes.
    runs: Vec<(Stream, usize)>,
}

impl Part {
    fn push(&mut self, stream: Stream, text: &str) {
        match self.runs.last_mut() {
            Some((last, bytes)) if *last == stream => *bytes += text.len(),
            _ => self.runs.push((stream, text.len())),
        }
        self.text.push_str(text);
    }

    fn pieces(&self) -> impl Iterator<Item = (Stream, &str)> {
        let mut rest = self.text.as_str();
        self.runs.iter().map(move |(stream, bytes)| {
            let (piece, after) = rest.split_at(*bytes);
            rest = after;
            (*stream, piece)
        })
    }

    /// Takes whole lines away from its beginning, of at least so many bytes.
    fn without_first(&self, bytes: usize) -> Self {
        let mut left = Self::default();
        let mut seen = 0;
        for (stream, piece) in self.pieces() {
            for line in cut_lines(piece) {
                if seen >= bytes {
                    left.push(stream, line);
                }
                seen += line.len();
            }
        }
        left
    }
}

/// The output of a worker so far.
#[derive(Default)]
pub(super) struct Output {
    first: Part,
    is_first_full: bool,
    /// The end of it: what came last, and what came before that.
    last: Part,
    before_last: Part,
    begun: [Lines; 2],
    bytes: u64,
}

/// The output as it is sealed.
pub(super) struct Kept {
    pub(super) source: SourceText,
    pub(super) facts: OutputFacts,
}

impl Output {
    /// Takes what was written to a stream.
    pub(super) fn push(&mut self, stream: Stream, text: &str) {
        self.bytes += text.len() as u64;
        let mut begun = std::mem::take(&mut self.begun[place(stream)]);
        begun.push(text, |line| self.line(stream, line));
        self.begun[place(stream)] = begun;
    }

    /// Takes note that so many bytes were written in all before what comes next, of which not everything can be had any more.
    pub(super) fn had(&mut self, bytes: u64) {
        if bytes > self.bytes {
            self.end_lines();
            self.bytes = bytes;
            self.is_first_full = true;
        }
    }

    fn end_lines(&mut self) {
        for stream in STREAMS {
            let rest = self.begun[place(stream)].rest();
            if !rest.is_empty() {
                self.line(stream, &rest);
            }
        }
    }

    fn line(&mut self, stream: Stream, line: &str) {
        if !self.is_first_full && self.first.text.len() + line.len() <= PART_BYTES {
            return self.first.push(stream, line);
        }
        self.is_first_full = true;
        if self.last.text.len() >= PART_BYTES {
            self.before_last = std::mem::take(&mut self.last);
        }
        self.last.push(stream, line);
    }

    /// What is sealed of it; none if nothing was written.
    pub(super) fn seal(mut self) -> Option<Kept> {
        self.end_lines();
        let after = self.before_last.text.len() + self.last.text.len();
        let surplus = after.saturating_sub(PART_BYTES);
        let earlier = if surplus > 0 { self.before_last.without_first(surplus) } else { self.before_last };
        let kept = self.first.text.len() + earlier.text.len() + self.last.text.len();
        let left_out = self.bytes.saturating_sub(kept as u64);
        let mut pieces = Clean::default();
        pieces.take(&self.first);
        if left_out > 0 {
            pieces.gap(left_out, &[&earlier, &self.last]);
        }
        pieces.take(&earlier);
        pieces.take(&self.last);
        if pieces.pieces.is_empty() {
            return None;
        }
        let kept = encode_output(&pieces.pieces).ok()?;
        let digest = Digest::of(&kept);
        let source = SourceText { original: digest, is_redacted: false, kept };
        Some(Kept { source, facts: OutputFacts { digest, bytes: self.bytes, left_out } })
    }
}

/// Keeps of a living attempt's output as much on the disk as is sealed of it: the first part in the journal, the newest beside it.
pub(super) struct Overflow {
    side: Side,
    /// Of the output.
    bytes: u64,
    /// Of the file that is written.
    in_file: usize,
}

impl Overflow {
    /// Of that journal.
    pub(super) fn of(journal: &Path) -> Self {
        Self { side: Side::of(journal), bytes: 0, in_file: 0 }
    }

    /// Whether an entry belongs beside the journal; it is written there.
    pub(super) fn takes(&mut self, entry: &Entry) -> bool {
        let (Entry::Stdout(text) | Entry::Stderr(text)) = entry else { return false };
        let before = self.bytes;
        self.bytes += text.len() as u64;
        if before < PART_BYTES as u64 {
            return false;
        }
        // What cannot be written is still in memory, and is sealed unless this process dies.
        if !self.side.is_begun() || self.in_file >= PART_BYTES {
            self.in_file = 0;
            let _ = self.side.turn(before);
        }
        self.in_file += text.len();
        let _ = self.side.append(entry);
        true
    }
}

fn place(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// Pieces without secrets.
#[derive(Default)]
struct Clean {
    redactors: [Redactor; 2],
    pieces: Vec<Piece>,
}

impl Clean {
    fn take(&mut self, part: &Part) {
        for (stream, text) in part.pieces() {
            let redactor = &mut self.redactors[place(stream)];
            let clean: String = cut_lines(text).map(|line| redactor.line(line)).collect();
            match self.pieces.last_mut() {
                Some(Piece::Text(last, text)) if *last == stream => text.push_str(&clean),
                _ => self.pieces.push(Piece::Text(stream, clean)),
            }
        }
    }

    /// A private key may have begun in what is left out.
    fn gap(&mut self, left_out: u64, behind: &[&Part]) {
        for stream in STREAMS {
            let pieces = behind.iter().flat_map(|part| part.pieces()).filter(|(of, _)| *of == stream);
            self.redactors[place(stream)] = Redactor::amid(pieces.map(|(_, text)| text));
        }
        self.pieces.push(Piece::LeftOut(left_out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::decode_output;

    fn sealed(written: &[(Stream, &str)]) -> (Vec<Piece>, OutputFacts) {
        let mut output = Output::default();
        written.iter().for_each(|(stream, text)| output.push(*stream, text));
        let kept = output.seal().unwrap();
        assert!(kept.source.kept.len() < SourceText::MOST_BYTES);
        (decode_output(&kept.source.kept).unwrap(), kept.facts)
    }

    fn text(piece: &Piece) -> &str {
        let Piece::Text(_, text) = piece else { panic!("{piece:?}") };
        text
    }

    use Stream::{Stderr, Stdout};

    #[test]
    fn both_streams_are_kept_in_the_order_in_which_their_lines_ended() {
        let (pieces, facts) =
            sealed(&[(Stdout, "one\ntw"), (Stderr, "oh\n"), (Stdout, "o\n 5%\r 9%\r"), (Stderr, "the end")]);
        let expected = [(Stdout, "one\n"), (Stderr, "oh\n"), (Stdout, "two\n 5%\r 9%\r"), (Stderr, "the end")];
        assert_eq!(pieces, expected.map(|(stream, text)| Piece::Text(stream, text.to_owned())));
        assert_eq!((facts.bytes, facts.left_out), (26, 0));
        assert!(Output::default().seal().is_none());
    }

    #[test]
    fn of_a_long_output_both_ends_are_kept_and_the_gap_is_counted() {
        let line = |number: usize| format!("line {number:09} of a long output\n");
        let each = line(0).len();
        let mut output = Output::default();
        let count = 300_000;
        (0..count).for_each(|number| output.push(Stdout, &line(number)));
        let kept = output.seal().unwrap();
        let pieces = decode_output(&kept.source.kept).unwrap();
        let [first, Piece::LeftOut(gap), last] = &pieces[..] else { panic!("{} pieces", pieces.len()) };
        let (first, last) = (text(first), text(last));
        assert!(first.starts_with(&line(0)) && last.ends_with(&line(count - 1)));
        assert!(last.starts_with("line ") && first.len() <= PART_BYTES && last.len() <= PART_BYTES);
        assert!(
            first.len() > PART_BYTES - each && last.len() > PART_BYTES - 2 * each,
            "{} {}",
            first.len(),
            last.len()
        );
        assert_eq!(kept.facts.bytes, (count * each) as u64);
        assert_eq!((kept.facts.left_out, *gap), (kept.facts.bytes - (first.len() + last.len()) as u64, *gap));
    }

    #[test]
    fn a_stream_without_line_ends_is_kept_in_part_too() {
        let (pieces, facts) = sealed(&[(Stderr, "x".repeat(5 << 20).as_str())]);
        let kept: usize = [&pieces[0], &pieces[2]].iter().map(|piece| text(piece).len()).sum();
        assert!(kept <= 2 * PART_BYTES && kept > PART_BYTES, "{kept}");
        assert_eq!(facts.left_out, (5 << 20) - kept as u64);
    }

    #[test]
    fn no_secret_is_kept_on_either_side_of_the_gap() {
        let key = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n";
        let begin = "login ghp_0123456789abcdef0123\nPASSWORD=hunter2\n-----BEGIN PRIVATE KEY-----\n";
        let body = key.repeat(4 * PART_BYTES / key.len());
        let end = "-----END PRIVATE KEY-----\ntoken = 'abcdefghijklmnop'\ndone\n";
        let (pieces, _) = sealed(&[(Stdout, begin), (Stdout, &body), (Stderr, "fine\n"), (Stdout, end)]);
        let all: String = pieces.iter().filter(|piece| matches!(piece, Piece::Text(..))).map(text).collect();
        for secret in ["ghp_", "hunter2", "MIIE", "abcdefghijklmnop"] {
            assert!(!all.contains(secret), "{secret}");
        }
        assert!(all.starts_with("login (redacted)\nPASSWORD=(redacted)\n") && all.contains("fine\n"));
        assert!(
            all.ends_with("-----END PRIVATE KEY-----\ntoken = '(redacted)'\ndone\n"),
            "{}",
            &all[all.len() - 200..]
        );
    }

    #[test]
    fn lines_are_whole_wherever_the_chunks_end() {
        let text = "one\ntwo\rthree\r\n\nfour";
        let whole: Vec<&str> = lines(text).collect();
        for at in 0..=text.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            [&text[..at], &text[at..]].iter().for_each(|chunk| lines.push(chunk, |line| found.push(line.to_owned())));
            found.push(lines.rest());
            assert_eq!(found, whole, "{at}");
        }
    }
}
