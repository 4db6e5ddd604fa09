//! Running attempts, read from their journals. Nothing here writes, locks or seals anything.

use super::EngineError;
use super::fold::{Fold, Folded};
use super::output::{Lines, PART_BYTES};
use crate::host::owner;
use crate::host::secrets::Redactor;
use crate::journal::{Follower, JournalError, first, is_held, read_side};
use crate::record::{
    Entry, Event, EventKind, Nonce, Outcome, Owner, Piece, Quantity, Run, Sample, Sealed, Source, Stream, Table,
};
use crate::store::StoreError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// An attempt that is running, or was when its journal was written.
#[derive(Clone, Debug)]
pub struct Living {
    /// The journal.
    pub journal: PathBuf,
    /// The supervisor.
    pub owner: Owner,
    /// The nonce of the execution.
    pub nonce: Nonce,
    /// The run.
    pub run: Run,
    /// The cell's fields that are not in the identity.
    pub settings: Table,
    /// The start by the host's clock.
    pub started_unix_ms: i64,
    /// The start by the monotonic clock.
    pub started_ns: u64,
}

impl Living {
    /// Reads the first entry of a journal. `None` if the journal is gone or this program cannot read it.
    pub fn open(journal: &Path) -> Option<Self> {
        match first(journal).ok()?? {
            Entry::Opened { owner, nonce, run, settings, started_unix_ms, started_ns, .. } => Some(Self {
                journal: journal.to_owned(),
                owner,
                nonce,
                run: *run,
                settings,
                started_unix_ms,
                started_ns,
            }),
            _ => None,
        }
    }

    /// Whether no process writes the journal any more, as far as this can be seen from here.
    pub fn is_over(&self) -> bool {
        let is_gone = || matches!(owner::liveness(&self.owner), Ok(owner::Liveness::Gone));
        !self.journal.exists() || is_gone() && matches!(is_held(&self.journal), Ok(false))
    }

    /// The record as if the attempt ended now.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn sealed(&self) -> Result<Option<Sealed>, EngineError> {
        let mut fold: Option<Fold> = None;
        Follower::new(&self.journal).read(|entry| match &mut fold {
            None => fold = Fold::open(&entry),
            Some(fold) => fold.take(&entry),
        })?;
        let Some(fold) = fold else { return Ok(None) };
        let mut sealed = fold.seal("", 0).and_then(Folded::sealed).map_err(StoreError::from)?;
        sealed.attempt.outcome = Outcome::running();
        Ok(Some(sealed))
    }
}

/// The progress of an attempt and the last samples of its sensors, updated entry by entry.
#[derive(Clone, Debug, Default)]
pub struct Pulse {
    /// The last step, and the number of planned steps (0 if unknown).
    pub step: Option<(u64, u64)>,
    /// The last loss.
    pub loss: Option<f64>,
    /// Metrics so far.
    pub metrics: BTreeMap<String, f64>,
    /// The last status message of the worker.
    pub status: Option<String>,
    /// The last sample of each quantity of each device.
    pub readings: BTreeMap<(Source, Quantity), f64>,
    /// The time of the last entry, by the host's monotonic clock.
    pub last_ns: u64,
    /// Whether the attempt is over and waits to be sealed.
    pub has_ended: bool,
    planned: u64,
    first_step: Option<(u64, u64)>,
    last_step_ns: u64,
}

impl Pulse {
    /// Processes the next entry of a journal.
    pub fn take(&mut self, entry: &Entry) {
        match entry {
            Entry::Opened { started_ns, .. } => self.last_ns = *started_ns,
            Entry::Event(event) => self.event(event),
            Entry::Sample(sample) => self.sample(sample),
            Entry::Ended { ended_ns, .. } => (self.has_ended, self.last_ns) = (true, *ended_ns),
            _ => {}
        }
    }

    fn event(&mut self, event: &Event) {
        self.last_ns = self.last_ns.max(event.t_ns);
        match &event.kind {
            EventKind::Plan { steps, .. } if event.rank == 0 => self.planned = *steps,
            EventKind::Step { step, values, .. } if event.rank == 0 => {
                self.first_step.get_or_insert((*step, event.t_ns));
                self.step = Some((*step, self.planned));
                self.last_step_ns = event.t_ns;
                let loss = values.iter().find(|(name, _)| name == "loss").map(|(_, loss)| *loss);
                self.loss = loss.or(self.loss);
            }
            EventKind::Metric { name, value, .. } => drop(self.metrics.insert(name.clone(), *value)),
            EventKind::Status { message } => self.status = Some(message.clone()),
            _ => {}
        }
    }

    fn sample(&mut self, sample: &Sample) {
        self.last_ns = self.last_ns.max(sample.t_ns);
        for reading in &sample.readings {
            self.readings.insert((sample.source, reading.quantity), reading.value);
        }
    }

    /// The last samples of a quantity on all GPUs.
    pub fn of_gpus(&self, quantity: Quantity) -> impl Iterator<Item = f64> {
        let is_meant = move |(source, of): &(Source, Quantity)| matches!(source, Source::Gpu(_)) && *of == quantity;
        self.readings.iter().filter(move |(key, _)| is_meant(key)).map(|(_, value)| *value)
    }

    /// Estimates the remaining time of the planned steps in seconds, at the mean speed so far.
    pub fn left_s(&self) -> Option<f64> {
        let ((first, since_ns), (step, planned)) = (self.first_step?, self.step?);
        let (done, left) = (step.checked_sub(first)?, planned.checked_sub(step)?);
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let each_s = self.last_step_ns.saturating_sub(since_ns) as f64 / 1e9 / done as f64;
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        (done > 0).then_some(each_s * left as f64)
    }
}

/// Old redacted lines are forgotten beyond this number.
const MOST_REDACTED: usize = 1 << 16;

/// Follows the output of a running attempt.
pub struct OutputFollower {
    journal: PathBuf,
    follower: Follower,
    lines: [Lines; 2],
    redactors: [Redactor; 2],
    /// Bytes of output read so far.
    seen: u64,
    /// Bytes of the lines read so far that belong to the stored first part.
    first: u64,
    is_first_full: bool,
    /// Redacted lines: the offset of each line's end in the output, and by how many bytes redaction made it longer.
    redacted: Vec<(u64, i64)>,
}

impl OutputFollower {
    /// A follower at the beginning of an output.
    pub fn new(journal: &Path) -> Self {
        Self {
            journal: journal.to_owned(),
            follower: Follower::new(journal),
            lines: <[Lines; 2]>::default(),
            redactors: <[Redactor; 2]>::default(),
            seen: 0,
            first: 0,
            is_first_full: false,
            redacted: Vec::new(),
        }
    }

    /// The output since the last call, in whole lines without secrets.
    ///
    /// # Errors
    /// If the journal cannot be read. It is gone once its attempt is sealed.
    pub fn read(&mut self) -> Result<Vec<Piece>, JournalError> {
        let mut written = Vec::new();
        self.follower.read(|entry| written.extend(text_of(entry)))?;
        let mut pieces = Vec::new();
        // The side files continue the journal.
        for (stream, text) in written {
            self.push(stream, &text, &mut pieces);
        }
        for part in read_side(&self.journal) {
            let mut at = part.before;
            for (stream, text) in part.entries.into_iter().filter_map(text_of) {
                let before = at;
                at += text.len() as u64;
                if at <= self.seen {
                    continue;
                }
                if before > self.seen {
                    pieces.extend(self.rest());
                    self.is_first_full = true;
                    self.redactors = [Redactor::amid([text.as_str()]), Redactor::amid([text.as_str()])];
                    pieces.push(Piece::LeftOut(before - self.seen));
                }
                self.seen = before;
                self.push(stream, &text, &mut pieces);
            }
        }
        Ok(pieces)
    }

    /// The part of the sealed output that was not returned before.
    pub fn behind(&self, mut sealed: Vec<Piece>) -> Vec<Piece> {
        let done = self.done();
        let gap = sealed.iter().position(|piece| matches!(piece, Piece::LeftOut(_)));
        let Some(gap) = gap.filter(|_| self.is_first_full) else { return without_first(sealed, self.given(0, done)) };
        let mut last = sealed.split_off(gap);
        if let Piece::LeftOut(bytes) = &mut last[0] {
            let from = self.first + *bytes;
            if done >= from {
                return without_first(last.split_off(1), self.given(from, done));
            }
            *bytes = from - done;
        }
        last
    }

    /// The original bytes of the lines that were returned.
    fn done(&self) -> u64 {
        let begun: usize = self.lines.iter().map(Lines::begun_bytes).sum();
        self.seen.saturating_sub(begun as u64)
    }

    /// The length of the lines that were returned for this range of original bytes.
    fn given(&self, from: u64, to: u64) -> usize {
        let redacted = self.redacted.iter().filter(|(end, _)| (from + 1..=to).contains(end));
        let longer: i64 = redacted.map(|(_, longer)| longer).sum();
        usize::try_from((to - from).saturating_add_signed(longer)).unwrap_or(usize::MAX)
    }

    /// The last lines of both streams, which have no line end.
    pub fn rest(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (at, stream) in [Stream::Stdout, Stream::Stderr].into_iter().enumerate() {
            let rest = self.lines[at].rest();
            if !rest.is_empty() {
                pieces.push(Piece::Text(stream, self.redactors[at].line(&rest)));
            }
        }
        pieces
    }

    /// Processes the text that follows the bytes read so far.
    fn push(&mut self, stream: Stream, text: &str, pieces: &mut Vec<Piece>) {
        self.seen += text.len() as u64;
        let at = usize::from(stream == Stream::Stderr);
        let mut whole = Vec::new();
        self.lines[at].push(text, |line| whole.push(line.to_owned()));
        let mut end = self.done() - whole.iter().map(|line| line.len() as u64).sum::<u64>();
        for line in whole {
            let clean = self.redactors[at].line(&line);
            let (bytes, given) = (line.len() as u64, clean.len() as u64);
            end += bytes;
            if clean != line {
                // Only the last two parts' worth of bytes is ever compared with the sealed output.
                let oldest = end.saturating_sub(2 * PART_BYTES as u64);
                if self.redacted.len() > MOST_REDACTED {
                    self.redacted.retain(|(end, _)| *end > oldest);
                }
                self.redacted.push((end, 0_i64.saturating_add_unsigned(given).saturating_sub_unsigned(bytes)));
            }
            self.is_first_full |= self.first + bytes > PART_BYTES as u64;
            self.first += if self.is_first_full { 0 } else { bytes };
            match pieces.last_mut() {
                Some(Piece::Text(last, text)) if *last == stream => text.push_str(&clean),
                _ => pieces.push(Piece::Text(stream, clean)),
            }
        }
    }
}

/// Removes this many bytes of text from the beginning of an output.
fn without_first(pieces: Vec<Piece>, mut bytes: usize) -> Vec<Piece> {
    let mut left = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Text(_, text) if text.len() <= bytes => bytes -= text.len(),
            Piece::Text(stream, text) => {
                let from = text.ceil_char_boundary(bytes);
                bytes = 0;
                left.push(Piece::Text(stream, text[from..].to_owned()));
            }
            gap @ Piece::LeftOut(_) => left.push(gap),
        }
    }
    left
}

fn text_of(entry: Entry) -> Option<(Stream, String)> {
    match entry {
        Entry::Stdout(text) => Some((Stream::Stdout, text)),
        Entry::Stderr(text) => Some((Stream::Stderr, text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::output::{Output, Overflow};
    use crate::journal::Writer;
    use crate::record::{Parts, Reading};
    use crate::wire::decode_output;

    fn journal(dir: &Path) -> Writer {
        let config: Table = [("model.name".to_owned(), "toy".into())].into();
        let run = Run::new(Parts { config: config.into(), ..Parts::sample() });
        let (id, nonce) = (run.id, Nonce([7; 16]));
        let opened = Entry::Opened {
            owner: owner::this_owner().unwrap(),
            nonce,
            run: Box::new(run),
            settings: Table::new(),
            facts: Table::new(),
            started_unix_ms: 3,
            started_ns: 1_000_000_000,
        };
        Writer::create(dir, id, nonce, &opened).unwrap()
    }

    fn step(t_s: u64, step: u64, loss: f64) -> Entry {
        let kind = EventKind::Step { step, duration_ns: None, values: vec![("loss".to_owned(), loss)] };
        Entry::Event(Event { t_ns: t_s * 1_000_000_000, rank: 0, kind })
    }

    #[test]
    fn a_running_attempt_can_be_followed() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = journal(dir.path());
        let living = Living::open(writer.path()).unwrap();
        assert!(!living.is_over());
        let (mut follower, mut pulse) = (Follower::new(writer.path()), Pulse::default());
        let mut look = |pulse: &mut Pulse| follower.read(|entry| pulse.take(&entry)).unwrap();
        look(&mut pulse);
        assert_eq!((pulse.step, pulse.left_s(), pulse.last_ns), (None, None, 1_000_000_000));
        let kind = EventKind::Plan { steps: 11, epochs: 1, samples_per_step: 0 };
        writer.append(&Entry::Event(Event { t_ns: 2, rank: 0, kind })).unwrap();
        [step(10, 1, 3.0), step(16, 4, 2.5)].iter().for_each(|entry| writer.append(entry).unwrap());
        let reading = |quantity, value| Reading { quantity, t_ns: 1, value };
        let readings = vec![reading(Quantity::PowerInstant, 300.0), reading(Quantity::Temperature, 60.0)];
        let sample =
            |gpu| Entry::Sample(Sample { source: Source::Gpu(gpu), t_ns: 1, cost_ns: 1, readings: readings.clone() });
        [sample(0), sample(1)].iter().for_each(|entry| writer.append(entry).unwrap());
        look(&mut pulse);
        assert_eq!(pulse.step, None, "nothing of it is in the file");
        writer.flush().unwrap();
        look(&mut pulse);
        assert_eq!((pulse.step, pulse.loss), (Some((4, 11)), Some(2.5)));
        assert_eq!(pulse.left_s(), Some(14.0), "7 steps of 2 s each");
        assert_eq!(pulse.of_gpus(Quantity::PowerInstant).collect::<Vec<_>>(), [300.0, 300.0]);
        assert!(living.sealed().unwrap().unwrap().attempt.outcome.is_running());
        let path = writer.path().to_owned();
        writer.append(&Entry::Ended { outcome: Outcome::Finished, exit: None, ended_ns: 9, cpu_ns: None }).unwrap();
        writer.flush().unwrap();
        look(&mut pulse);
        assert!(pulse.has_ended);
        writer.remove().unwrap();
        assert!(living.is_over() && !path.exists());
    }

    /// Writes output as a supervisor does.
    struct Supervisor {
        writer: Writer,
        overflow: Overflow,
        output: Output,
    }

    impl Supervisor {
        fn write(&mut self, text: &str) {
            let entry = Entry::Stdout(text.to_owned());
            if !self.overflow.takes(&entry) {
                self.writer.append(&entry).unwrap();
                self.writer.flush().unwrap();
            }
            self.output.push(Stream::Stdout, text);
        }
    }

    fn text(pieces: &[Piece]) -> String {
        let of = |piece: &Piece| match piece {
            Piece::Text(_, text) => text.clone(),
            Piece::LeftOut(_) => "[…]".to_owned(),
        };
        pieces.iter().map(of).collect()
    }

    #[test]
    fn following_an_output_neither_repeats_nor_loses_lines() {
        let dir = tempfile::tempdir().unwrap();
        let writer = journal(dir.path());
        let path = writer.path().to_owned();
        let mut supervisor = Supervisor { overflow: Overflow::of(&path), writer, output: Output::default() };
        let mut follower = OutputFollower::new(&path);
        let mut seen = String::new();
        let mut written = String::new();
        let line = |number: usize| format!("line {number:07}: password = hunter2 {}\n", "x".repeat(970));
        for number in 0..5000 {
            supervisor.write(&line(number));
            written.push_str(&line(number));
            if number % 400 == 399 {
                seen.push_str(&text(&follower.read().unwrap()));
            }
        }
        supervisor.write("the end");
        // The attempt is sealed before the next read.
        let kept = supervisor.output.seal().unwrap();
        assert!(kept.facts.left_out > 0);
        seen.push_str(&text(&follower.behind(decode_output(&kept.source.kept).unwrap())));
        written.push_str("the end");
        assert!(seen == written.replace("hunter2", "(redacted)"), "{} {}", seen.len(), written.len());
    }

    #[test]
    fn the_sealed_output_continues_the_followed_one_without_repetition() {
        let dir = tempfile::tempdir().unwrap();
        let writer = journal(dir.path());
        let path = writer.path().to_owned();
        let mut supervisor = Supervisor { overflow: Overflow::of(&path), writer, output: Output::default() };
        let line = |number: usize| {
            format!("{number:07} PASSWORD=hunter2 {}\n", "x".repeat(if number.is_multiple_of(2) { 9 } else { 900 }))
        };
        let mut followers = Vec::new();
        for number in 0..8000 {
            if number % 1600 == 400 {
                let mut follower = OutputFollower::new(&path);
                let seen = text(&follower.read().unwrap());
                followers.push((follower, seen));
            }
            supervisor.write(&line(number));
        }
        let kept = supervisor.output.seal().unwrap();
        let sealed = decode_output(&kept.source.kept).unwrap();
        for (follower, mut seen) in followers {
            let first = seen.len();
            seen.push_str(&text(&follower.behind(sealed.clone())));
            let numbers: Vec<usize> =
                seen.lines().filter_map(|line| line.trim_start_matches("[…]").get(..7)?.parse().ok()).collect();
            assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "a line is given twice behind {first}");
            assert_eq!((numbers[0], numbers.last()), (0, Some(&7999)), "behind {first}");
            let missing = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
            assert_eq!(missing, seen.matches("[…]").count(), "what is missing behind {first} is said");
        }
    }

    #[test]
    fn a_late_follower_gets_a_gap_and_recovery_keeps_both_ends() {
        let dir = tempfile::tempdir().unwrap();
        let writer = journal(dir.path());
        let path = writer.path().to_owned();
        let mut supervisor = Supervisor { overflow: Overflow::of(&path), writer, output: Output::default() };
        let line = |number: usize| format!("line {number:07} {}\n", "x".repeat(1000));
        (0..6000).for_each(|number| supervisor.write(&line(number)));
        let pieces = OutputFollower::new(&path).read().unwrap();
        let [Piece::Text(_, first), Piece::LeftOut(gap), Piece::Text(_, last)] = &pieces[..] else {
            panic!("{} pieces", pieces.len())
        };
        assert!(first.starts_with(&line(0)) && last.ends_with(&line(5999)) && last.len() >= PART_BYTES);
        assert_eq!(first.len() + last.len() + usize::try_from(*gap).unwrap(), 6000 * line(0).len());
        // Recovery seals the same output as the supervisor itself.
        let folded = crate::engine::Left::read(&path).unwrap().unwrap_or_else(|_| panic!()).fold("lost").unwrap();
        let recovered = decode_output(&folded.output.unwrap().kept).unwrap();
        let sealed = decode_output(&supervisor.output.seal().unwrap().source.kept).unwrap();
        assert!(recovered == sealed, "{} {}", recovered.len(), sealed.len());
        crate::journal::discard(&path).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing else lies there");
    }
}
